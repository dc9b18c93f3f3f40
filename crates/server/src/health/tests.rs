//! The exact texts that probes and people see.

use super::*;

fn checks() -> (Checks, Lifecycle) {
    let lifecycle = Lifecycle::new();
    let metrics = Metrics::new(&store::SystemClock::shared(), "v1.36.0", meta::Release::v1(36));
    (Checks::new(lifecycle.clone(), Arc::new(metrics)), lifecycle)
}

#[test]
fn a_healthy_server_says_ok_and_verbosely_why() {
    let (checks, _lifecycle) = checks();
    for path in ["/healthz", "/livez", "/readyz", "/readyz/", "/livez/ping"] {
        assert_eq!(checks.handle(path, ""), (200, "ok".to_owned()), "{path}");
    }
    let (code, text) = checks.handle("/readyz", "verbose");
    assert_eq!(code, 200);
    assert_eq!(text, "[+]ping ok\n[+]log ok\n[+]shutdown ok\nreadyz check passed\n");
    let (_, text) = checks.handle("/livez", "verbose=true");
    assert_eq!(text, "[+]ping ok\n[+]log ok\nlivez check passed\n");
}

#[test]
fn a_failed_check_is_named_without_its_reason_unless_asked_for_by_name() {
    let (checks, _lifecycle) = checks();
    checks.add("etcd", Scope::Everywhere, || Err("disk on fire".to_owned()));
    let (code, text) = checks.handle("/healthz", "");
    assert_eq!(code, 500);
    assert_eq!(text, "[+]ping ok\n[+]log ok\n[-]etcd failed: reason withheld\nhealthz check failed\n");
    assert_eq!(checks.handle("/healthz/etcd", ""), (500, "internal server error: disk on fire\n".to_owned()));
    assert!(!checks.is_ready());
}

#[test]
fn checks_can_be_excluded_and_unknown_ones_are_told() {
    let (checks, _lifecycle) = checks();
    checks.add("etcd", Scope::Everywhere, || Err("no".to_owned()));
    assert_eq!(checks.handle("/readyz", "exclude=etcd"), (200, "ok".to_owned()));
    let (code, text) = checks.handle("/readyz", "verbose&exclude=etcd&exclude=x%22y&exclude=");
    assert_eq!(code, 200);
    assert_eq!(
        text,
        "[+]ping ok\n[+]log ok\n[+]etcd excluded: ok\n[+]shutdown ok\n\
         warn: some health checks cannot be excluded: no matches for \"x\\\"y\"\nreadyz check passed\n"
    );
}

#[test]
fn a_gate_holds_back_readiness_until_it_is_done() {
    let (checks, _lifecycle) = checks();
    let gate = checks.gate("poststarthook/rbac/bootstrap-roles", Scope::Everywhere);
    let path = "/readyz/poststarthook/rbac/bootstrap-roles";
    assert_eq!(checks.handle(path, ""), (500, "internal server error: not finished\n".to_owned()));
    gate.done();
    assert_eq!(checks.handle(path, ""), (200, "ok".to_owned()));
}

#[test]
fn a_leaving_server_is_alive_but_not_ready() {
    let (checks, lifecycle) = checks();
    lifecycle.leave();
    assert_eq!(checks.handle("/livez", "").0, 200);
    assert_eq!(checks.handle("/readyz", "").0, 500);
    assert!(!checks.has("/livez/shutdown"), "readiness alone knows of the shutdown");
}

#[test]
fn unknown_paths_and_broken_queries_do_no_harm() {
    let (checks, _lifecycle) = checks();
    for path in ["/readyz/nope", "/readyzz", "", "/", "/healthz/ping/x"] {
        assert_eq!(checks.handle(path, "").0, 404, "{path}");
    }
    let long = "exclude=%zz%&".repeat(10_000);
    assert_eq!(checks.handle("/readyz", &long).0, 200);
}

/// Whoever watches the metrics sees it at every endpoint; whoever restarts what is not alive leaves the server alone.
#[test]
fn a_server_that_has_not_reported_is_alive_but_neither_healthy_nor_ready() {
    let (checks, _lifecycle) = checks();
    let name = "poststarthook/built-in-resources-storage-version-updater";
    let done = Gate(Arc::default());
    let checked = done.clone();
    checks.add(name, Scope::Health, move || if checked.is_done() { Ok(()) } else { Err("wait".to_owned()) });
    let series = |endpoint: &str, value: u8| {
        let text = checks.metrics.render();
        let line = format!("kubernetes_healthcheck{{name=\"{name}\",type=\"{endpoint}\"}} {value}");
        assert!(text.contains(&line), "{line} is not in {text}");
    };
    for (endpoint, code) in [("healthz", 500), ("livez", 200), ("readyz", 500)] {
        assert_eq!(checks.handle(&format!("/{endpoint}"), "").0, code, "{endpoint}");
        series(endpoint, 0);
    }
    let (_, text) = checks.handle("/livez", "verbose");
    assert!(text.contains(&format!("[+]{name} excluded: ok\n")), "{text}");
    done.done();
    for endpoint in ["healthz", "livez", "readyz"] {
        assert_eq!(checks.handle(&format!("/{endpoint}"), "").0, 200, "{endpoint}");
        series(endpoint, 1);
    }
}
