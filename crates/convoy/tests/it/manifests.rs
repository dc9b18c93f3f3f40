//! Forty manifests as people write them, through kubectl from creation to deletion: what was applied once is not
//! changed by applying it again, on the client or on the server.

use std::path::Path;

use testkit::{Convoy, Options, tools};

use crate::{fixture, kubectl::Kubectl};

/// kubectl sends these again each time, to upstream too: they have lists that are replaced as a whole and elements in
/// which the server fills something in, or a field that is always replaced.
const SENT_AGAIN: [&str; 10] = [
    "clusterrolebinding.rbac.authorization.k8s.io/manifests-readers",
    "deployment.apps/web",
    "endpoints/legacy",
    "endpointslice.discovery.k8s.io/slice",
    "limitrange/limits",
    "networkpolicy.networking.k8s.io/deny",
    "poddisruptionbudget.policy/web",
    "rolebinding.rbac.authorization.k8s.io/readers",
    "statefulset.apps/db",
    "validatingwebhookconfiguration.admissionregistration.k8s.io/manifests-webhook",
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
    let applied = round.ok(&format!("apply -f {}", round.files));
    for line in applied.lines().filter(|it| !it.ends_with(" unchanged")) {
        let name = line.split_whitespace().next().unwrap_or_default();
        assert!(SENT_AGAIN.contains(&name) && line.ends_with(" configured"), "{line}");
    }
    assert_eq!(round.versions(), before, "applying changed something");
    round.expect_no_difference("");
    edit(round);
    round.delete();
}

fn edit(round: &Round<'_>) {
    let mut command = round.kubectl.command(&format!("-n {} edit configmap settings", round.namespace));
    let edited = command.env("KUBE_EDITOR", "sed -i s/red/blue/").output().expect("kubectl must start");
    assert!(edited.status.success(), "{}", String::from_utf8_lossy(&edited.stderr));
    assert_eq!(round.ok("get configmap settings -o 'jsonpath={.data.colour}'"), "blue");
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
