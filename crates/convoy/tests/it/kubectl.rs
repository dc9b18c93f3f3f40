//! kubectl as a user types it, on both stores. Loud when there is none.

mod custom;
mod migration;

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;
use testkit::{Convoy, tools};

use crate::fixture;

/// kubectl with the admin's kubeconfig and a cache of its own.
pub(crate) struct Kubectl<'a> {
    pub(crate) program: PathBuf,
    pub(crate) convoy: &'a Convoy,
}

impl Kubectl<'_> {
    pub(crate) fn command(&self, line: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.args(words(line)).env("KUBECONFIG", self.convoy.kubeconfig()).env("HOME", self.convoy.home());
        command.stdin(Stdio::null());
        command
    }

    /// What it prints; it must succeed.
    pub(crate) fn ok(&self, line: &str) -> String {
        let output = self.command(line).output().expect("kubectl must start");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let failed = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "kubectl {line}\n{said}{failed}\nserver:\n{}",
            self.convoy.log_tail()
        );
        said
    }

    /// What it complains; it must fail.
    fn refused(&self, line: &str) -> String {
        let output = self.command(line).output().expect("kubectl must start");
        assert!(!output.status.success(), "kubectl {line} must fail");
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    fn json(&self, line: &str) -> Value {
        serde_json::from_str(&self.ok(line)).expect("-o json must print JSON")
    }
}

/// Splits at spaces; single quotes hold together, as in a shell.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    for (number, part) in line.split('\'').enumerate() {
        let is_quoted = number % 2 == 1;
        let mut pieces = if is_quoted { vec![part] } else { part.split(' ').collect() }.into_iter();
        if let Some(last) = words.last_mut() {
            last.push_str(pieces.next().unwrap_or_default());
        }
        words.extend(pieces.map(str::to_owned));
    }
    words.retain(|it| !it.is_empty());
    words
}

fn run(convoy: &Convoy, test: &str) {
    let Some(program) = tools::kubectl() else {
        return tools::skipped(test, "there is no kubectl on the PATH");
    };
    let kubectl = Kubectl { program, convoy };
    discovery(&kubectl);
    creation(&kubectl);
    changes(&kubectl);
    selection(&kubectl);
    watching(&kubectl);
    files(&kubectl);
    custom::resources(&kubectl);
    custom::cascades(&kubectl);
    migration::waits(&kubectl);
    migration::plugin(&kubectl);
    custom::namespaces(&kubectl);
    rights(&kubectl);
}

fn discovery(kubectl: &Kubectl<'_>) {
    let version = kubectl.json("version -o json");
    assert_eq!(version["serverVersion"]["major"], "1", "{version}");
    let resources = kubectl.ok("api-resources");
    for expected in ["configmaps", "deployments", "deploy", "clusterroles", "customresourcedefinitions"] {
        assert!(resources.contains(expected), "{expected} in {resources}");
    }
    let namespaced = kubectl.ok("api-resources --namespaced=false -o name");
    assert!(namespaced.contains("namespaces") && !namespaced.contains("configmaps"), "{namespaced}");
    let versions = kubectl.ok("api-versions");
    assert!(
        versions.lines().any(|it| it == "apps/v1") && versions.lines().any(|it| it == "v1"),
        "{versions}"
    );
    assert!(kubectl.ok("get namespaces").contains("kube-system"));
    assert!(kubectl.ok("cluster-info").contains("running at"));
}

fn creation(kubectl: &Kubectl<'_>) {
    for (line, expected) in [
        ("create namespace shop", "namespace/shop created"),
        ("-n shop create configmap settings --from-literal=colour=red", "configmap/settings created"),
        ("-n shop create secret generic key --from-literal=password=hunter2", "secret/key created"),
        ("-n shop create serviceaccount robot", "serviceaccount/robot created"),
        (
            "-n shop create role reader --verb=get,list --resource=configmaps",
            "role.rbac.authorization.k8s.io/reader created",
        ),
        (
            "-n shop create rolebinding robot-reads --role=reader --serviceaccount=shop:robot",
            "rolebinding.rbac.authorization.k8s.io/robot-reads created",
        ),
        (
            "create clusterrole pod-reader --verb=get --resource=pods",
            "clusterrole.rbac.authorization.k8s.io/pod-reader created",
        ),
        (
            "create clusterrolebinding pods --clusterrole=pod-reader --user=ann",
            "clusterrolebinding.rbac.authorization.k8s.io/pods created",
        ),
        (
            "-n shop create deployment web --image=example.org/web:1 --replicas=2",
            "deployment.apps/web created",
        ),
        ("-n shop create service clusterip web --tcp=80:8080", "service/web created"),
        ("-n shop create ingress web --default-backend=web:80", "ingress.networking.k8s.io/web created"),
        (
            "-n shop create poddisruptionbudget web --selector=app=web --min-available=1",
            "poddisruptionbudget.policy/web created",
        ),
        ("create priorityclass high --value=1000", "priorityclass.scheduling.k8s.io/high created"),
        (
            "-n shop create cronjob tick --image=example.org/tick:1 --schedule='*/5 * * * *'",
            "cronjob.batch/tick created",
        ),
        ("-n shop run shell --image=example.org/shell:1", "pod/shell created"),
    ] {
        assert_eq!(kubectl.ok(line).trim(), expected);
    }
    let again = kubectl.refused("create namespace shop");
    assert_eq!(again.trim(), "Error from server (AlreadyExists): namespaces \"shop\" already exists");
    let missing = kubectl.refused("-n shop get configmap nothing");
    assert_eq!(missing.trim(), "Error from server (NotFound): configmaps \"nothing\" not found");
    let unknown = kubectl.refused("get nonsense");
    assert!(unknown.contains("the server doesn't have a resource type \"nonsense\""), "{unknown}");
    let secret = kubectl.json("-n shop get secret key -o json");
    assert_eq!(secret["data"]["password"], "aHVudGVyMg==");
    assert!(kubectl.ok("-n shop get configmap settings -o yaml").contains("colour: red"));
    assert_eq!(kubectl.ok("-n shop get deployment web -o name").trim(), "deployment.apps/web");
    assert_eq!(kubectl.ok("-n shop get deploy web -o 'jsonpath={.spec.replicas}'"), "2");
    assert!(kubectl.ok("-n shop get all -o name").contains("deployment.apps/web"));
}

fn changes(kubectl: &Kubectl<'_>) {
    kubectl.ok("-n shop label configmap settings tier=front");
    let kept = kubectl.refused("-n shop label configmap settings tier=back");
    assert!(kept.contains("already has a value"), "{kept}");
    kubectl.ok("-n shop label configmap settings tier=back --overwrite");
    kubectl.ok("-n shop annotate configmap settings note='hello there'");
    kubectl.ok("-n shop patch configmap settings --type=merge -p '{\"data\":{\"size\":\"xl\"}}'");
    kubectl.ok(
        "-n shop patch configmap settings --type=json -p '[{\"op\":\"replace\",\"path\":\"/data/colour\",\"value\":\"blue\"}]'",
    );
    let settings = kubectl.json("-n shop get configmap settings -o json");
    assert_eq!(settings["metadata"]["labels"]["tier"], "back");
    assert_eq!(settings["metadata"]["annotations"]["note"], "hello there");
    assert_eq!(settings["data"], serde_json::json!({"colour": "blue", "size": "xl"}));
    kubectl.ok("-n shop label configmap settings tier-");
    let dry = kubectl.ok("-n shop create configmap dry --from-literal=a=b --dry-run=server -o name");
    assert_eq!(dry.trim(), "configmap/dry");
    kubectl.refused("-n shop get configmap dry");
}

fn selection(kubectl: &Kubectl<'_>) {
    for number in 1..=5 {
        kubectl.ok(&format!("-n shop create configmap many-{number} --from-literal=number={number}"));
        let parity = if number % 2 == 0 { "even" } else { "odd" };
        kubectl.ok(&format!("-n shop label configmap many-{number} parity={parity}"));
    }
    let names = |line: &str| kubectl.ok(line).split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let odd = names("-n shop get configmaps -l parity=odd -o name");
    assert_eq!(odd, ["configmap/many-1", "configmap/many-3", "configmap/many-5"]);
    let not_odd = names("-n shop get configmaps -l parity,parity!=odd -o name");
    assert_eq!(not_odd, ["configmap/many-2", "configmap/many-4"]);
    let field = names("-n shop get configmaps --field-selector=metadata.name=many-4 -o name");
    assert_eq!(field, ["configmap/many-4"]);
    let pending = names("-n shop get pods --field-selector=status.phase=Pending -o name");
    assert_eq!(pending, ["pod/shell"]);
    let chunked = names("-n shop get configmaps -l parity --chunk-size=2 -o name");
    assert_eq!(chunked.len(), 5, "{chunked:?}");
    let table = kubectl.ok("get configmaps --all-namespaces --chunk-size=2");
    assert!(
        table.lines().next().is_some_and(|it| it.contains("NAMESPACE") && it.contains("NAME")),
        "{table}"
    );
    let wide = kubectl.ok("-n shop get deployments -o wide");
    assert!(wide.contains("web"), "{wide}");
}

fn watching(kubectl: &Kubectl<'_>) {
    let mut watch = kubectl
        .command("-n shop get configmaps -l watched=yes --watch -o name")
        .stdout(Stdio::piped())
        .spawn()
        .expect("kubectl must start");
    let lines = BufReader::new(watch.stdout.take().expect("stdout must be piped")).lines();
    kubectl.ok("-n shop create configmap seen --from-literal=a=b");
    kubectl.ok("-n shop label configmap seen watched=yes");
    kubectl.ok("-n shop annotate configmap seen note=changed");
    let waited = kubectl.ok(
        "-n shop wait configmap/seen '--for=jsonpath={.metadata.annotations.note}=changed' --timeout=30s",
    );
    assert!(waited.contains("condition met"), "{waited}");
    let mut wait = kubectl.command("-n shop wait configmap/seen --for=delete --timeout=60s").spawn().unwrap();
    kubectl.ok("-n shop delete configmap seen");
    assert!(wait.wait().unwrap().success(), "wait --for=delete");
    let seen: Vec<String> = lines.map_while(Result::ok).take(2).collect();
    watch.kill().unwrap();
    watch.wait().unwrap();
    assert_eq!(seen, ["configmap/seen", "configmap/seen"]);

    let deleted = kubectl.ok("-n shop delete configmaps -l parity=odd");
    assert_eq!(deleted.matches("deleted").count(), 3, "{deleted}");
    kubectl.ok("-n shop delete pod shell --wait");
    kubectl.ok("-n shop delete deployment,service,ingress web");
    kubectl.ok("-n shop delete configmaps --all");
}

/// Manifests: what needs the OpenAPI documents, strategic merge patches and server-side apply.
fn files(kubectl: &Kubectl<'_>) {
    let write = |name: &str, colour: &str| {
        let path = kubectl.convoy.home().join(name);
        let text = format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: palette\n  namespace: shop\ndata:\n  colour: {colour}\n"
        );
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let (red, blue, green) =
        (write("red.yaml", "red"), write("blue.yaml", "blue"), write("green.yaml", "green"));
    let colour = || kubectl.ok("-n shop get configmap palette -o 'jsonpath={.data.colour}'");
    assert_eq!(kubectl.ok(&format!("create -f {red} --save-config")).trim(), "configmap/palette created");
    assert_eq!(kubectl.ok(&format!("apply -f {red}")).trim(), "configmap/palette unchanged");
    let changed = kubectl.command(&format!("diff -f {blue}")).output().unwrap();
    assert_eq!(changed.status.code(), Some(1), "{}", String::from_utf8_lossy(&changed.stderr));
    assert!(String::from_utf8_lossy(&changed.stdout).contains("+  colour: blue"));
    assert_eq!(kubectl.ok(&format!("apply -f {blue}")).trim(), "configmap/palette configured");
    assert_eq!(colour(), "blue");
    assert_eq!(kubectl.ok(&format!("replace -f {green}")).trim(), "configmap/palette replaced");
    assert_eq!(colour(), "green");
    let conflict = kubectl.refused(&format!("apply --server-side --field-manager=painter -f {red}"));
    assert!(conflict.contains("conflict") && conflict.contains(".data.colour"), "{conflict}");
    kubectl.ok(&format!("apply --server-side --field-manager=painter --force-conflicts -f {red}"));
    assert_eq!(colour(), "red");
    let wrong = kubectl.convoy.home().join("wrong.yaml");
    std::fs::write(&wrong, "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: wrong\ndatta: {}\n").unwrap();
    let said = kubectl.refused(&format!("-n shop create -f {}", wrong.display()));
    assert!(said.contains("unknown field \"datta\""), "{said}");
    lists(kubectl);
    assert!(kubectl.ok("explain configmap.data").contains("FIELD: data"));
    assert_eq!(kubectl.ok(&format!("delete -f {red}")).trim(), "configmap \"palette\" deleted");
}

/// Files that hold a `List`: kubectl checks them itself, by the document of OpenAPI v2.
fn lists(kubectl: &Kubectl<'_>) {
    let write = |name: &str, field: &str| {
        let path = kubectl.convoy.home().join(name);
        let map = |it: &str| {
            format!("- apiVersion: v1\n  kind: ConfigMap\n  metadata: {{name: {it}}}\n  {field}: {{k: v}}\n")
        };
        let text = format!("apiVersion: v1\nkind: List\nitems:\n{}{}", map("one"), map("two"));
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let good = write("list.yaml", "data");
    let made = kubectl.ok(&format!("-n shop create -f {good}"));
    assert_eq!(made.lines().collect::<Vec<_>>(), ["configmap/one created", "configmap/two created"]);
    let said = kubectl.refused(&format!("-n shop create -f {}", write("wrong-list.yaml", "datta")));
    assert!(said.contains("unknown field \"datta\" in io.k8s.api.core.v1.ConfigMap"), "{said}");
    kubectl.ok(&format!("-n shop delete -f {good}"));
}

fn rights(kubectl: &Kubectl<'_>) {
    assert_eq!(kubectl.ok("auth can-i create deployments").trim(), "yes");
    let all = kubectl.ok("auth can-i --list");
    assert!(all.contains("*.*"), "{all}");
    let robot = "--as=system:serviceaccount:shop:robot";
    assert_eq!(kubectl.ok(&format!("-n shop auth can-i get configmaps {robot}")).trim(), "yes");
    let no = kubectl.command(&format!("-n shop auth can-i delete configmaps {robot}")).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&no.stdout).trim(), "no");
    let listed = kubectl.ok(&format!("-n shop auth can-i --list {robot}"));
    assert!(listed.contains("configmaps"), "{listed}");
    let whoami = kubectl.ok("auth whoami");
    assert!(whoami.contains("system:masters"), "{whoami}");

    let token = kubectl.ok("-n shop create token robot --duration=1h");
    let token = token.trim();
    assert_eq!(token.split('.').count(), 3, "a token has three parts");
    // Without the admin's certificate, only the token counts.
    let bare = kubectl.convoy.home().join("empty.kubeconfig");
    std::fs::write(&bare, "apiVersion: v1\nkind: Config\n").unwrap();
    let ca = kubectl.convoy.home().join("ca.pem");
    std::fs::write(&ca, kubectl.convoy.ca()).unwrap();
    let as_robot = |line: &str| {
        let server = kubectl.convoy.base();
        let line =
            format!("--server={server} --certificate-authority={} --token={token} {line}", ca.display());
        let mut command = kubectl.command(&line);
        command.env("KUBECONFIG", &bare).output().expect("kubectl must start")
    };
    let read = as_robot("-n shop get configmaps");
    assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
    let refused = as_robot("-n shop delete configmap nothing");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(said.contains("Forbidden") || said.contains("forbidden"), "{said}");
    let secrets = as_robot("-n shop get secrets");
    let said = String::from_utf8_lossy(&secrets.stderr);
    let expected = "secrets is forbidden: User \"system:serviceaccount:shop:robot\" cannot list resource \
                    \"secrets\" in API group \"\" in the namespace \"shop\"";
    assert!(said.contains(expected), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_works_on_the_embedded_store() {
    let convoy = fixture::embedded().await;
    run(&convoy, "kubectl on the embedded store");
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_works_on_etcd() {
    let Some((_etcd, convoy)) = fixture::on_etcd().await else { return };
    run(&convoy, "kubectl on etcd");
}
