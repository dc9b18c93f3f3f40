//! What a scraper sees.

use std::sync::Arc;

use super::*;

fn metrics() -> Metrics {
    Metrics::new(&store::SystemClock::shared(), "v1.36.0+convoy", meta::Release::v1(36))
}

fn get(resource: &str) -> RequestKey<'_> {
    RequestKey {
        verb: "GET",
        dry_run: false,
        group: "",
        version: "v1",
        resource,
        subresource: "",
        scope: "resource",
        code: 200,
    }
}

#[track_caller]
fn assert_has(text: &str, line: &str) {
    assert!(text.lines().any(|it| it == line), "no line {line:?} in\n{text}");
}

#[test]
fn requests_are_counted_under_upstreams_names() {
    let metrics = metrics();
    for _ in 0..3 {
        metrics.request_done(&get("configmaps"), Duration::from_millis(30), Some(1_500));
    }
    let text = metrics.render();
    assert_has(&text, "# TYPE apiserver_request_total counter");
    assert_has(
        &text,
        "apiserver_request_total{code=\"200\",component=\"apiserver\",dry_run=\"\",group=\"\",\
         resource=\"configmaps\",scope=\"resource\",subresource=\"\",verb=\"GET\",version=\"v1\"} 3",
    );
    assert_has(&text, "# TYPE apiserver_request_duration_seconds histogram");
    let labels = "component=\"apiserver\",dry_run=\"\",group=\"\",resource=\"configmaps\",scope=\"resource\",\
                  subresource=\"\",verb=\"GET\",version=\"v1\"";
    assert_has(&text, &format!("apiserver_request_duration_seconds_bucket{{le=\"0.025\",{labels}}} 0"));
    assert_has(&text, &format!("apiserver_request_duration_seconds_bucket{{le=\"0.05\",{labels}}} 3"));
    assert_has(&text, &format!("apiserver_request_duration_seconds_bucket{{le=\"+Inf\",{labels}}} 3"));
    assert_has(&text, &format!("apiserver_request_duration_seconds_count{{{labels}}} 3"));
    assert!(text.contains("apiserver_response_sizes_bucket{le=\"10000.0\""), "{text}");
    assert!(!text.contains("EOF"));
}

#[test]
fn hostile_names_and_verbs_do_not_grow_without_bound() {
    let metrics = metrics();
    for n in 0..MAX_REQUEST_SERIES + 500 {
        metrics.request_done(&get(&format!("r{n}")), Duration::ZERO, None);
        metrics.request_done(&RequestKey { verb: &format!("V{n}"), ..get("pods") }, Duration::ZERO, None);
    }
    let series = metrics.render().lines().filter(|it| it.starts_with("apiserver_request_total{")).count();
    assert!(series <= MAX_REQUEST_SERIES + 2, "{series}");
    assert!(metrics.render().contains("verb=\"OTHER\""));
}

#[test]
fn watches_are_counted_while_they_are_open() {
    let metrics = metrics();
    let key = RequestKey { verb: "WATCH", ..get("pods") };
    let guard = metrics.watch_started(&key, "Pod");
    guard.events.inc();
    let text = metrics.render();
    assert_has(&text, "apiserver_registered_watchers{group=\"\",kind=\"Pod\",version=\"v1\"} 1");
    assert_has(&text, "apiserver_watch_events_total{group=\"\",kind=\"Pod\",version=\"v1\"} 1");
    drop(guard);
    assert_has(&metrics.render(), "apiserver_registered_watchers{group=\"\",kind=\"Pod\",version=\"v1\"} 0");
}

#[test]
fn health_build_process_and_late_values_are_shown() {
    let metrics = metrics();
    metrics.health_checked("etcd", "readyz", true);
    metrics.before_render(|it| it.set_storage_objects("pods", 7));
    metrics.authentication_attempt("success");
    metrics.set_in_flight("readOnly", 2);
    let text = metrics.render();
    assert_has(&text, "kubernetes_healthcheck{name=\"etcd\",type=\"readyz\"} 1");
    assert_has(&text, "kubernetes_healthchecks_total{name=\"etcd\",status=\"success\",type=\"readyz\"} 1");
    assert_has(&text, "apiserver_storage_objects{resource=\"pods\"} 7");
    assert_has(&text, "authentication_attempts{result=\"success\"} 1");
    assert_has(&text, "apiserver_current_inflight_requests{request_kind=\"readOnly\"} 2");
    assert_has(&text, "# TYPE process_cpu_seconds_total counter");
    assert!(text.contains("kubernetes_build_info{git_version=\"v1.36.0+convoy\",major=\"1\",minor=\"36\""));
    assert!(text.contains("process_resident_memory_bytes "));
}

#[test]
fn counting_from_many_threads_loses_nothing() {
    let metrics = Arc::new(metrics());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for n in 0..1_000 {
                    metrics.request_done(&get(["pods", "nodes"][n % 2]), Duration::ZERO, None);
                }
            });
        }
    });
    let text = metrics.render();
    let sum: u64 = text
        .lines()
        .filter(|it| it.starts_with("apiserver_request_total{"))
        .filter_map(|it| it.rsplit_once(' ')?.1.parse::<u64>().ok())
        .sum();
    assert_eq!(sum, 4_000);
}
