//! Events in both groups. What comes in through `v1` is checked as it always was; `events.k8s.io/v1` is strict.
//!
//! Errors name the fields of `v1` in both, as upstream's do.

use meta::{FieldError, FieldErrors, Value, name, object, validate::IMMUTABLE};

use super::value::{at, complain, number, text};

const MAX_NAME: usize = 128;
const MAX_NOTE: usize = 1024;

/// A new event. `group` is the one the client speaks.
pub(super) fn validate(group: &str, event: &Value, errors: &mut FieldErrors) {
    let event = Event { fields: Fields::of(group), event };
    check_always(&event, errors);
    if group.is_empty() {
        return;
    }
    check_series(&event, errors);
    if event.at("eventTime").is_none() {
        errors.push(FieldError::required("eventTime", ""));
    }
    let kind = event.text("type");
    if !matches!(kind, "Normal" | "Warning") {
        errors.push(FieldError::invalid("type", "", format!("has invalid value: {kind}")));
    }
    let source = event.fields.source;
    let is_set = [
        ("firstTimestamp", event.at(event.fields.first).is_some()),
        ("lastTimestamp", event.at(event.fields.last).is_some()),
        ("count", number(event.event, &[event.fields.count]).unwrap_or(0) != 0),
        ("source", ["component", "host"].iter().any(|it| !text(event.event, &[source, it]).is_empty())),
    ];
    for (field, _) in is_set.into_iter().filter(|(_, is_set)| *is_set) {
        errors.push(FieldError::invalid(field, "", "needs to be unset"));
    }
}

/// A changed event. Through `events.k8s.io` only the series changes.
pub(super) fn validate_changed(group: &str, new: &Value, old: &Value, errors: &mut FieldErrors) {
    let fields = Fields::of(group);
    let (new, old) = (Event { fields, event: new }, Event { fields, event: old });
    check_always(&new, errors);
    if group.is_empty() {
        return;
    }
    if new.at("series") != old.at("series") {
        check_series(&new, errors);
    }
    for (field, shown_new, shown_old) in fields.immutable(&new, &old) {
        if shown_new != shown_old {
            errors.push(FieldError::invalid_shown(field, shown_new, IMMUTABLE));
        }
    }
}

/// What fields are called in the group that the client speaks.
#[derive(Clone, Copy)]
struct Fields {
    regarding: &'static str,
    note: &'static str,
    source: &'static str,
    first: &'static str,
    last: &'static str,
    count: &'static str,
    controller: &'static str,
}

impl Fields {
    fn of(group: &str) -> Self {
        if group.is_empty() {
            Self {
                regarding: "involvedObject",
                note: "message",
                source: "source",
                first: "firstTimestamp",
                last: "lastTimestamp",
                count: "count",
                controller: "reportingComponent",
            }
        } else {
            Self {
                regarding: "regarding",
                note: "note",
                source: "deprecatedSource",
                first: "deprecatedFirstTimestamp",
                last: "deprecatedLastTimestamp",
                count: "deprecatedCount",
                controller: "reportingController",
            }
        }
    }

    /// What may not change, in upstream's order: the field, and its value as errors show it, now and before.
    fn immutable<'a>(&self, new: &Event<'a>, old: &Event<'a>) -> Vec<(&'static str, String, String)> {
        type Show<'a> = fn(&Event<'a>, &str) -> String;
        let fields: [(&'static str, &str, Show<'a>); 14] = [
            ("involvedObject", self.regarding, Event::reference),
            ("reason", "reason", Event::quoted),
            ("message", self.note, Event::quoted),
            ("source", self.source, Event::source),
            ("firstTimestamp", self.first, Event::plain),
            ("lastTimestamp", self.last, Event::plain),
            ("count", self.count, Event::count),
            // Upstream says it twice.
            ("reason", "reason", Event::quoted),
            ("type", "type", Event::quoted),
            ("eventTime", "eventTime", Event::plain),
            ("action", "action", Event::quoted),
            ("related", "related", Event::optional_reference),
            ("reportingController", self.controller, Event::quoted),
            ("reportingInstance", "reportingInstance", Event::quoted),
        ];
        fields.iter().map(|(field, own, show)| (*field, show(new, own), show(old, own))).collect()
    }
}

struct Event<'a> {
    fields: Fields,
    event: &'a Value,
}

impl<'a> Event<'a> {
    fn at(&self, field: &str) -> Option<&'a Value> {
        at(self.event, &[field])
    }

    fn text(&self, field: &str) -> &'a str {
        text(self.event, &[field])
    }

    fn quoted(&self, field: &str) -> String {
        meta::field::quote(self.text(field))
    }

    /// A time, or null.
    fn plain(&self, field: &str) -> String {
        self.at(field).map_or_else(|| "null".to_owned(), Value::to_string)
    }

    fn count(&self, field: &str) -> String {
        number(self.event, &[field]).unwrap_or(0).to_string()
    }

    fn source(&self, field: &str) -> String {
        self.go_struct(field, &[("Component", "component"), ("Host", "host")])
    }

    fn reference(&self, field: &str) -> String {
        self.go_struct(
            field,
            &[
                ("Kind", "kind"),
                ("Namespace", "namespace"),
                ("Name", "name"),
                ("UID", "uid"),
                ("APIVersion", "apiVersion"),
                ("ResourceVersion", "resourceVersion"),
                ("FieldPath", "fieldPath"),
            ],
        )
    }

    fn optional_reference(&self, field: &str) -> String {
        if self.at(field).is_some() { self.reference(field) } else { "\"null\"".to_owned() }
    }

    fn go_struct(&self, field: &str, parts: &[(&'static str, &'static str)]) -> String {
        let parts: Vec<_> =
            parts.iter().map(|(go_name, part)| (*go_name, text(self.event, &[field, part]))).collect();
        super::value::GoStruct(&parts).to_string()
    }
}

/// What both groups check, on create and update.
fn check_always(event: &Event<'_>, errors: &mut FieldErrors) {
    let namespace = object::namespace(event.event);
    let regarded = text(event.event, &[event.fields.regarding, "namespace"]);
    // Only clients of the newer kind of events set this.
    let is_new = event.at("eventTime").is_some();
    let agrees = match (is_new, regarded.is_empty()) {
        (false, true) => matches!(namespace, "" | "default"),
        (false, false) => namespace == regarded,
        (true, true) => matches!(namespace, "default" | "kube-system"),
        (true, false) => true,
    };
    if !agrees {
        let field = "involvedObject.namespace";
        errors.push(FieldError::invalid(field, regarded, "does not match event.namespace"));
    }
    if is_new {
        check_reporter(event, errors);
    }
    complain(errors, "namespace", namespace, name::dns_subdomain(namespace));
}

fn check_reporter(event: &Event<'_>, errors: &mut FieldErrors) {
    let controller = event.text(event.fields.controller);
    if controller.is_empty() {
        errors.push(FieldError::required("reportingController", ""));
    }
    complain(errors, "reportingController", controller, name::qualified(controller));
    for field in ["reportingInstance", "action", "reason"] {
        let text = event.text(field);
        if text.is_empty() {
            errors.push(FieldError::required(field, ""));
        }
        limit(field, text, MAX_NAME, errors);
    }
    limit("message", event.text(event.fields.note), MAX_NOTE, errors);
}

fn limit(field: &str, text: &str, max: usize, errors: &mut FieldErrors) {
    if text.len() > max {
        errors.push(FieldError::invalid(field, "", format!("can have at most {max} characters")));
    }
}

fn check_series(event: &Event<'_>, errors: &mut FieldErrors) {
    if event.at("series").is_none() {
        return;
    }
    if number(event.event, &["series", "count"]).unwrap_or(0) < 2 {
        errors.push(FieldError::invalid("series.count", "", "should be at least 2"));
    }
    if at(event.event, &["series", "lastObservedTime"]).is_none() {
        errors.push(FieldError::required("series.lastObservedTime", ""));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::rules::testing::{expect_changed, expect_new};

    const OLD: &str = "v1/events";
    const NEW: &str = "events.k8s.io/v1/events";
    const MISMATCH: &str = "Invalid involvedObject.namespace: Invalid value: ";

    fn strict() -> Value {
        json!({
            "metadata": {"namespace": "x", "name": "e"}, "regarding": {"kind": "Pod", "namespace": "x", "name": "p"},
            "eventTime": "2026-01-01T00:00:00.000000Z", "reportingController": "example.com/c",
            "reportingInstance": "c-1", "action": "Start", "reason": "Started", "type": "Normal", "note": "fine",
        })
    }

    #[test]
    fn an_event_lives_in_the_namespace_of_what_it_is_about() {
        let event = |namespace: &str, regarded: &str| json!({"metadata": {"namespace": namespace}, "involvedObject": {"namespace": regarded}});
        expect_new(OLD, &event("x", "x"), &[]);
        expect_new(OLD, &event("default", ""), &[]);
        for (namespace, regarded) in [("x", ""), ("x", "y"), ("kube-system", "")] {
            let expected = format!("{MISMATCH}\"{regarded}\": does not match event.namespace");
            expect_new(OLD, &event(namespace, regarded), &[&expected]);
            expect_changed(OLD, &event(namespace, regarded), &event("x", "x"), &[&expected]);
        }
    }

    #[test]
    fn events_with_a_time_say_who_reports_what() {
        let event = json!({"metadata": {"namespace": "x"}, "eventTime": "2026-01-01T00:00:00.000000Z"});
        expect_new(
            OLD,
            &event,
            &[
                &format!("{MISMATCH}\"\": does not match event.namespace"),
                "Required reportingController: Required value",
                "Invalid reportingController: Invalid value: \"\": name part must be non-empty",
                "Invalid reportingController: Invalid value: \"\": name part must consist of alphanumeric characters, '-', \
                 '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or \
                 '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
                "Required reportingInstance: Required value",
                "Required action: Required value",
                "Required reason: Required value",
            ],
        );
        let long = "x".repeat(129);
        let event = json!({
            "metadata": {"namespace": "kube-system"}, "eventTime": "2026-01-01T00:00:00.000000Z",
            "reportingComponent": "c", "reportingInstance": long, "action": long, "reason": long,
            "message": "x".repeat(1025),
        });
        let too_long = |field: &str, max: u32| {
            format!("Invalid {field}: Invalid value: \"\": can have at most {max} characters")
        };
        let expected = [
            too_long("reportingInstance", 128),
            too_long("action", 128),
            too_long("reason", 128),
            too_long("message", 1024),
        ];
        expect_new(OLD, &event, &expected.each_ref().map(String::as_str));
    }

    #[test]
    fn the_newer_group_is_strict() {
        expect_new(NEW, &strict(), &[]);
        let mut series = strict();
        series["series"] = json!({"count": 2, "lastObservedTime": "2026-01-01T00:00:01.000000Z"});
        expect_new(NEW, &series, &[]);
        expect_new(
            NEW,
            &json!({
                "metadata": {"namespace": "default"}, "series": {"count": 1}, "type": "Odd",
                "deprecatedFirstTimestamp": "2026-01-01T00:00:00Z", "deprecatedLastTimestamp": "2026-01-01T00:00:00Z",
                "deprecatedCount": 1, "deprecatedSource": {"host": "h"},
            }),
            &[
                "Invalid series.count: Invalid value: \"\": should be at least 2",
                "Required series.lastObservedTime: Required value",
                "Required eventTime: Required value",
                "Invalid type: Invalid value: \"\": has invalid value: Odd",
                "Invalid firstTimestamp: Invalid value: \"\": needs to be unset",
                "Invalid lastTimestamp: Invalid value: \"\": needs to be unset",
                "Invalid count: Invalid value: \"\": needs to be unset",
                "Invalid source: Invalid value: \"\": needs to be unset",
            ],
        );
    }

    #[test]
    fn only_the_series_changes_through_the_newer_group() {
        let mut new = strict();
        new["series"] = json!({"count": 3, "lastObservedTime": "2026-01-01T00:00:01.000000Z"});
        expect_changed(NEW, &new, &strict(), &[]);
        new["series"]["count"] = json!(1);
        expect_changed(
            NEW,
            &new,
            &strict(),
            &["Invalid series.count: Invalid value: \"\": should be at least 2"],
        );
        let mut new = strict();
        new["regarding"]["name"] = json!("q");
        new["reason"] = json!("Other");
        new["deprecatedSource"] = json!({"component": "c"});
        new["deprecatedCount"] = json!(2);
        new["related"] = json!({"kind": "Node"});
        new["eventTime"] = json!("2026-01-01T00:00:09.000000Z");
        expect_changed(
            NEW,
            &new,
            &strict(),
            &[
                "Invalid involvedObject: Invalid value: {\"Kind\":\"Pod\",\"Namespace\":\"x\",\"Name\":\"q\",\"UID\":\"\",\
                 \"APIVersion\":\"\",\"ResourceVersion\":\"\",\"FieldPath\":\"\"}: field is immutable",
                "Invalid reason: Invalid value: \"Other\": field is immutable",
                "Invalid source: Invalid value: {\"Component\":\"c\",\"Host\":\"\"}: field is immutable",
                "Invalid count: Invalid value: 2: field is immutable",
                "Invalid reason: Invalid value: \"Other\": field is immutable",
                "Invalid eventTime: Invalid value: \"2026-01-01T00:00:09.000000Z\": field is immutable",
                "Invalid related: Invalid value: {\"Kind\":\"Node\",\"Namespace\":\"\",\"Name\":\"\",\"UID\":\"\",\
                 \"APIVersion\":\"\",\"ResourceVersion\":\"\",\"FieldPath\":\"\"}: field is immutable",
            ],
        );
        // Through the older group everything may change.
        expect_changed(
            OLD,
            &json!({"metadata": {"namespace": "default"}, "reason": "b"}),
            &json!({"reason": "a"}),
            &[],
        );
    }
}
