//! Prometheus' text format 0.0.4, made from the registry's OpenMetrics.
//!
//! The two differ in names: OpenMetrics describes a counter without the `_total` that its samples carry, Prometheus
//! describes every sample by its full name and knows counters without `_total`.

use prometheus_client::{encoding::text::encode, registry::Registry};

/// Counters that upstream named before `_total` was the custom.
const COUNTERS_WITHOUT_TOTAL: [&str; 3] = [
    "authentication_attempts",
    "apiserver_admission_webhook_rejection_count",
    "apiserver_admission_webhook_fail_open_count",
];

/// Gauges here, because they are set and not counted; counters for everybody else.
const SET_COUNTERS: [&str; 1] = ["process_cpu_seconds_total"];

pub(super) fn render(registry: &Registry) -> String {
    let mut open_metrics = String::with_capacity(64 * 1024);
    encode(&mut open_metrics, registry).expect("writing to a string must succeed");
    to_prometheus(&open_metrics)
}

fn to_prometheus(open_metrics: &str) -> String {
    let mut text = String::with_capacity(open_metrics.len());
    // The help comes before the type, and only the type says how the metric is called.
    let mut help = "";
    let mut strip_total: Option<String> = None;
    for line in open_metrics.lines() {
        if let Some(described) = line.strip_prefix("# HELP ") {
            help = described;
        } else if let Some(described) = line.strip_prefix("# TYPE ") {
            let (name, kind) = described.split_once(' ').unwrap_or((described, "untyped"));
            let is_old = COUNTERS_WITHOUT_TOTAL.contains(&name);
            let kind = match kind {
                "unknown" => "untyped",
                _ if SET_COUNTERS.contains(&name) => "counter",
                kind => kind,
            };
            let total =
                if kind == "counter" && !is_old && !SET_COUNTERS.contains(&name) { "_total" } else { "" };
            strip_total = is_old.then(|| format!("{name}_total"));
            let help = help.split_once(' ').map_or("", |(_, it)| it);
            text.push_str(&format!("# HELP {name}{total} {help}\n# TYPE {name}{total} {kind}\n"));
        } else if line.starts_with('#') {
            // `# UNIT` and `# EOF` are not Prometheus'.
        } else {
            match strip_total.as_deref().and_then(|it| Some((it, line.strip_prefix(it)?))) {
                Some((name, rest)) => {
                    text.push_str(name.trim_end_matches("_total"));
                    text.push_str(rest);
                }
                None => text.push_str(line),
            }
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_described_by_the_name_of_their_samples() {
        let open = "# HELP a_b What.\n# TYPE a_b counter\na_b_total{x=\"1\"} 2\n\
                    # HELP authentication_attempts Who.\n# TYPE authentication_attempts counter\n\
                    authentication_attempts_total{result=\"success\"} 1\n\
                    # HELP g A gauge.\n# TYPE g gauge\ng 1\n# EOF\n";
        let want = "# HELP a_b_total What.\n# TYPE a_b_total counter\na_b_total{x=\"1\"} 2\n\
                    # HELP authentication_attempts Who.\n# TYPE authentication_attempts counter\n\
                    authentication_attempts{result=\"success\"} 1\n\
                    # HELP g A gauge.\n# TYPE g gauge\ng 1\n";
        assert_eq!(to_prometheus(open), want);
    }
}
