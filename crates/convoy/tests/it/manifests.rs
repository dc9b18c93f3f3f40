//! Forty manifests as people write them, through kubectl from creation to deletion: what was applied once is not
//! changed by applying it again, on the client or on the server.

use std::path::Path;

use testkit::{Convoy, Options, tools};

use crate::{fixture, kubectl::Kubectl};

/// kubectl sends a part of these again each time, to upstream too, and says `configured`. In all but the last a list is
/// replaced as a whole, and the server has filled something into its elements; the selector of a budget is replaced in
/// any case (`x-kubernetes-patch-strategy: replace`).
const SENT_AGAIN: [(&str, &str); 10] = [
    ("clusterrolebinding.rbac.authorization.k8s.io/manifests-readers", "subjects: apiGroup"),
    ("deployment.apps/web", "volumes: the source of one, what is projected in another"),
    ("endpoints/legacy", "subsets: protocol"),
    ("endpointslice.discovery.k8s.io/slice", "ports: name and protocol"),
    ("limitrange/limits", "limits: default and defaultRequest"),
    ("networkpolicy.networking.k8s.io/deny", "ingress: protocol"),
    ("rolebinding.rbac.authorization.k8s.io/readers", "subjects: apiGroup"),
    ("statefulset.apps/db", "volumeClaimTemplates: apiVersion, kind, volumeMode, status"),
    ("validatingwebhookconfiguration.admissionregistration.k8s.io/manifests-webhook", "rules: scope"),
    ("poddisruptionbudget.policy/web", "selector"),
];
const N_MANIFESTS: usize = 44;

struct Round<'a> {
    kubectl: Kubectl<'a>,
    files: String,
    namespace: &'a str,
}

impl Round<'_> {
    fn ok(&self, line: &str) -> String {
        self.kubectl.ok(&format!("-n {} {line}", self.namespace))
    }

    /// Each object with its resourceVersion, one per line.
    fn versions(&self) -> Vec<String> {
        let path = "{range .items[*]}{.kind}/{.metadata.name} {.metadata.resourceVersion}{\"\\n\"}{end}";
        let said = self.ok(&format!("get -f {} -o 'jsonpath={path}'", self.files));
        said.lines().map(str::to_owned).collect()
    }

    /// kubectl finds no difference between the files and what is stored.
    fn expect_no_difference(&self, options: &str) {
        let line = format!("-n {} diff {options} -f {}", self.namespace, self.files);
        let output = self.kubectl.command(&line).output().expect("kubectl must start");
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(0), "{said}{}", String::from_utf8_lossy(&output.stderr));
    }

    fn delete(&self) {
        let said = self.ok(&format!("delete -f {}", self.files));
        assert_eq!(said.lines().filter(|it| it.contains(" deleted")).count(), N_MANIFESTS, "{said}");
    }
}

fn on_the_client(round: &Round<'_>) {
    let created = round.ok(&format!("create --save-config -f {}", round.files));
    assert_eq!(created.lines().filter(|it| it.ends_with(" created")).count(), N_MANIFESTS, "{created}");
    let before = round.versions();
    assert_eq!(before.len(), N_MANIFESTS);
    apply_again(round);
    assert_eq!(round.versions(), before, "applying changed something");
    round.expect_no_difference("");
    edit(round);
    apply_again(round);
    round.delete();
}

/// Only what upstream is sent again is sent again.
fn apply_again(round: &Round<'_>) {
    let applied = round.ok(&format!("apply -f {}", round.files));
    let said: Vec<&str> = applied.lines().filter(|it| !it.ends_with(" unchanged")).collect();
    for line in &said {
        let name = line.split_whitespace().next().unwrap_or_default();
        let is_known = SENT_AGAIN.iter().any(|(it, _)| *it == name);
        assert!(is_known && line.ends_with(" configured"), "{line}");
    }
    assert_eq!(said.len(), SENT_AGAIN.len(), "{said:?}");
}

/// Everything is edited twice: an annotation comes and goes.
fn edit(round: &Round<'_>) {
    let add = r#"sed -i 's/^\( *\)kubectl.kubernetes.io.last-applied-configuration:/\1edited: "yes"\n&/'"#;
    let remove = r#"sed -i '/^ *edited: "yes"$/d'"#;
    for (editor, n_marked) in [(add, N_MANIFESTS), (remove, 0)] {
        let mut command = round.kubectl.command(&format!("-n {} edit -f {}", round.namespace, round.files));
        let edited = command.env("KUBE_EDITOR", editor).output().expect("kubectl must start");
        let said = String::from_utf8_lossy(&edited.stdout);
        assert!(edited.status.success(), "{said}{}", String::from_utf8_lossy(&edited.stderr));
        assert_eq!(said.lines().filter(|it| it.ends_with(" edited")).count(), N_MANIFESTS, "{said}");
        let marks = "{range .items[*]}{.metadata.annotations.edited}{\"\\n\"}{end}";
        let marks = round.ok(&format!("get -f {} -o 'jsonpath={marks}'", round.files));
        assert_eq!(marks.lines().filter(|it| *it == "yes").count(), n_marked, "{marks}");
    }
}

fn on_the_server(round: &Round<'_>) {
    let apply = || round.ok(&format!("apply --server-side -f {}", round.files));
    let applied = apply();
    assert_eq!(
        applied.lines().filter(|it| it.ends_with(" serverside-applied")).count(),
        N_MANIFESTS,
        "{applied}"
    );
    let before = round.versions();
    apply();
    assert_eq!(round.versions(), before, "applying changed something");
    round.expect_no_difference("--server-side");
    round.delete();
}

fn run(convoy: &Convoy, test: &str) {
    let Some(program) = tools::kubectl() else {
        return tools::skipped(test, "there is no kubectl on the PATH");
    };
    let files = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/manifests").display().to_string();
    let round = |namespace| {
        let round =
            Round { kubectl: Kubectl { program: program.clone(), convoy }, files: files.clone(), namespace };
        round.kubectl.ok(&format!("create namespace {namespace}"));
        round
    };
    on_the_client(&round("by-client"));
    on_the_server(&round("by-server"));
}

#[tokio::test(flavor = "multi_thread")]
async fn applying_ordinary_manifests_again_changes_nothing() {
    let options = Options::embedded(fixture::BINARY).flag("--allow-unenforced-policies");
    let convoy = Convoy::start(options).await.expect("the server must start");
    run(&convoy, "forty manifests");
}
