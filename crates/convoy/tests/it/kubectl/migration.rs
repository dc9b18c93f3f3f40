//! What kubectl does with migrations: it waits for them, shows them, and has them as a plugin.

use super::Kubectl;

const MIGRATION: &str = "apiVersion: storagemigration.k8s.io/v1beta1
kind: StorageVersionMigration
metadata: {name: settings}
spec: {resource: {group: '', resource: configmaps}}
";

pub(super) fn waits(kubectl: &Kubectl<'_>) {
    let path = kubectl.convoy.home().join("migration.yaml");
    std::fs::write(&path, MIGRATION).unwrap();
    kubectl.ok(&format!("apply -f {}", path.display()));
    kubectl.ok("wait --for=condition=Succeeded --timeout=60s storageversionmigration/settings");
    let shown = kubectl.ok("get storageversionmigrations settings");
    assert!(shown.contains("Succeeded") && shown.contains("configmaps"), "{shown}");
    let events = kubectl.ok("get events -o custom-columns=REASON:.reason,NAME:.involvedObject.name");
    let reasons: Vec<&str> = events.lines().filter(|it| it.ends_with("settings")).collect();
    for reason in ["MigrationStarted", "MigrationSucceeded"] {
        assert!(reasons.iter().any(|it| it.starts_with(reason)), "{events}");
    }
}

/// The binary under the name of a plugin.
pub(super) fn plugin(kubectl: &Kubectl<'_>) {
    let folder = kubectl.convoy.home().join("plugins");
    std::fs::create_dir_all(&folder).unwrap();
    std::os::unix::fs::symlink(crate::fixture::BINARY, folder.join("kubectl-convoy")).unwrap();
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = kubectl.command("convoy census configmaps");
    let output = command.env("PATH", format!("{}:{path}", folder.display())).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("configmaps"), "{said}");
}
