//! Scenarios: recorded answers of kube-apiserver, and what its documentation promises.

use serde_json::{Value, json};

use super::fixture::{Things, managers, owned};
use crate::apply::{ApplyError, FieldSet, MAX_UPDATERS, Operation};

fn thing(rest: &Value) -> Value {
    let mut object =
        json!({"apiVersion": "v1", "kind": "Thing", "metadata": {"name": "s", "namespace": "n"}});
    object.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
    object
}

fn data(data: &Value) -> Value {
    thing(&json!({"data": data}))
}

fn conflicts(error: &ApplyError) -> (u16, String, Vec<String>) {
    let status = error.status();
    let causes = status.details.map(|it| it.causes).unwrap_or_default();
    (
        status.code,
        status.message,
        causes.into_iter().map(|it| format!("{}|{}", it.message, it.field)).collect(),
    )
}

#[test]
fn who_creates_owns_what_was_not_there_before() {
    let things = Things::new();
    let new = thing(&json!({
        "metadata": {"name": "d", "namespace": "n", "uid": "u", "generateName": "x-", "labels": {"app": "d"}},
        "data": {"k": "v"},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": "d"}},
            "containers": [{"name": "c", "image": "nginx", "ports": [{"port": 80, "protocol": "TCP"}], "env": {}}],
        },
        "status": {"phase": "x"},
    }));
    let live = things.by("differential").updated(&things.by("").nothing(), &new);
    assert_eq!(
        live["metadata"]["managedFields"],
        json!([{
            "manager": "differential", "operation": "Update", "apiVersion": "v1", "time": "2026-01-01T00:00:00Z",
            "fieldsType": "FieldsV1",
            "fieldsV1": {
                "f:data": {".": {}, "f:k": {}},
                "f:metadata": {"f:generateName": {}, "f:labels": {".": {}, "f:app": {}}},
                "f:spec": {
                    "f:containers": {".": {}, "k:{\"name\":\"c\"}": {
                        ".": {}, "f:env": {}, "f:image": {}, "f:name": {},
                        "f:ports": {".": {}, "k:{\"port\":80,\"protocol\":\"TCP\"}": {
                            ".": {}, "f:port": {}, "f:protocol": {}
                        }}
                    }},
                    "f:replicas": {}, "f:selector": {}
                }
            }
        }])
    );
}

#[test]
fn the_recorded_conversation_about_a_config_map() {
    let things = Things::new();
    let (one, two) = (things.by("one"), things.by("two"));
    let live = one.applied(&one.nothing(), &data(&json!({"a": "1", "b": "1"})));
    assert_eq!(owned(&live, "one"), json!({"f:data": {"f:a": {}, "f:b": {}}}));

    let error = two.apply(&live, &data(&json!({"a": "2"})), false).unwrap_err();
    assert_eq!(
        conflicts(&error),
        (
            409,
            "Apply failed with 1 conflict: conflict with \"one\": .data.a".to_owned(),
            vec!["conflict with \"one\"|.data.a".to_owned()]
        )
    );

    let live = two.forced(&live, &data(&json!({"a": "2"})));
    assert_eq!(live["data"], json!({"a": "2", "b": "1"}));
    assert_eq!(owned(&live, "one"), json!({"f:data": {"f:b": {}}}));
    assert_eq!(owned(&live, "two"), json!({"f:data": {"f:a": {}}}));

    let again = one.applied(&live, &data(&json!({"b": "1"})));
    assert_eq!(again, live);

    let live = one.applied(&live, &data(&json!({})));
    assert_eq!(live["data"], json!({"a": "2"}));
    assert_eq!(owned(&live, "one"), json!({"f:data": {}}));
    assert_eq!(owned(&live, "two"), json!({"f:data": {"f:a": {}}}));

    let config = thing(&json!({"metadata": {"managedFields": []}}));
    let error = one.apply(&live, &config, false).unwrap_err().status();
    assert_eq!((error.code, error.message.as_str()), (400, "metadata.managedFields must be nil"));
}

#[test]
fn conflicts_are_listed_by_manager() {
    let things = Things::new();
    let live = things.by("a").created(&data(&json!({"x": "1", "y": "1"})));
    let live = things.by("b").patched(&live, &json!({"data": {"z": "1"}}));
    let error =
        things.by("c").apply(&live, &data(&json!({"x": "2", "y": "2", "z": "2"})), false).unwrap_err();
    let (code, message, causes) = conflicts(&error);
    assert_eq!(code, 409);
    assert_eq!(
        message,
        "Apply failed with 3 conflicts: conflicts with \"a\" using v1:\n- .data.x\n- .data.y\n\
         conflicts with \"b\" using v1:\n- .data.z"
    );
    assert_eq!(causes[0], "conflict with \"a\" using v1|.data.x");
    let status = things.by("s").status().patched(&live, &json!({"status": {"phase": "x"}}));
    let error = things.by("c").status().apply(&status, &thing(&json!({"status": {"phase": "y"}})), false);
    assert_eq!(
        conflicts(&error.unwrap_err()).1,
        "Apply failed with 1 conflict: conflict with \"s\" with subresource \"status\" using v1: .status.phase"
    );
}

#[test]
fn the_same_value_is_shared_and_stays_until_all_let_go() {
    let things = Things::new();
    let (one, two) = (things.by("one"), things.by("two"));
    let live = one.applied(&one.nothing(), &data(&json!({"k": "v"})));
    let live = two.applied(&live, &data(&json!({"k": "v"})));
    assert_eq!(owned(&live, "one"), owned(&live, "two"));
    let live = one.applied(&live, &thing(&json!({})));
    assert_eq!(live["data"], json!({"k": "v"}));
    assert_eq!(owned(&live, "one"), Value::Null);
    let live = two.applied(&live, &thing(&json!({})));
    assert_eq!(live.get("data"), None);
    assert_eq!(live["metadata"].get("managedFields"), None);
}

#[test]
fn lists_are_merged_by_key_and_sets_by_value() {
    let things = Things::new();
    let (one, two) = (things.by("one"), things.by("two"));
    let spec =
        |containers: Value, tags: Value| thing(&json!({"spec": {"containers": containers, "tags": tags}}));
    let live = one.applied(
        &one.nothing(),
        &spec(json!([{"name": "a", "image": "1", "args": ["x"]}]), json!(["p", "q"])),
    );
    let live = two.applied(
        &live,
        &spec(
            json!([{"name": "b", "image": "2", "ports": [{"port": 80}]}, {"name": "a"}]),
            json!(["r", "p"]),
        ),
    );
    assert_eq!(
        live["spec"]["containers"],
        json!([
            {"name": "b", "image": "2", "ports": [{"port": 80}]},
            {"name": "a", "image": "1", "args": ["x"]}
        ])
    );
    assert_eq!(live["spec"]["tags"], json!(["r", "p", "q"]));
    assert_eq!(
        owned(&live, "two"),
        json!({"f:spec": {
            "f:containers": {
                "k:{\"name\":\"a\"}": {".": {}, "f:name": {}},
                "k:{\"name\":\"b\"}": {".": {}, "f:image": {}, "f:name": {}, "f:ports": {
                    "k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}}
                }}
            },
            "f:tags": {"v:\"p\"": {}, "v:\"r\"": {}}
        }})
    );
    let live = one.applied(&live, &spec(json!([]), json!([])));
    assert_eq!(live["spec"]["containers"][1], json!({"name": "a"}));
    assert_eq!(live["spec"]["tags"], json!(["r", "p"]));
    let live = two.applied(&live, &thing(&json!({})));
    assert_eq!(live["spec"].get("tags"), None);
}

#[test]
fn atomic_fields_are_owned_as_a_whole() {
    let things = Things::new();
    let (one, two) = (things.by("one"), things.by("two"));
    let labels = |it: Value| thing(&json!({"spec": {"selector": {"matchLabels": it}}}));
    let live = one.applied(&one.nothing(), &labels(json!({"a": "1"})));
    let error = two.apply(&live, &labels(json!({"b": "2"})), false).unwrap_err();
    assert_eq!(conflicts(&error).1, "Apply failed with 1 conflict: conflict with \"one\": .spec.selector");
    let live = two.forced(&live, &labels(json!({"b": "2"})));
    assert_eq!(live["spec"]["selector"], json!({"matchLabels": {"b": "2"}}));
    assert_eq!(owned(&live, "one"), Value::Null);
    let args = |it: Value| thing(&json!({"spec": {"containers": [{"name": "c", "args": it}]}}));
    let live = one.applied(&one.nothing(), &args(json!(["a", "b"])));
    assert_eq!(one.applied(&live, &args(json!(["c"])))["spec"]["containers"][0]["args"], json!(["c"]));
}

#[test]
fn what_nothing_is_said_about_is_granular_in_maps_and_atomic_in_lists() {
    let things = Things::new();
    let (one, two) = (things.by("one"), things.by("two"));
    let raw = |it: Value| thing(&json!({"spec": {"raw": it}}));
    let live = one.applied(&one.nothing(), &raw(json!({"a": {"x": 1, "l": [{"p": 1}]}, "s": "t"})));
    let live = two.applied(&live, &raw(json!({"a": {"y": 2}})));
    assert_eq!(live["spec"]["raw"], json!({"a": {"x": 1, "y": 2, "l": [{"p": 1}]}, "s": "t"}));
    assert_eq!(owned(&live, "two"), json!({"f:spec": {"f:raw": {"f:a": {".": {}, "f:y": {}}}}}));
    let error = two.apply(&live, &raw(json!({"a": {"l": []}})), false).unwrap_err();
    assert!(conflicts(&error).1.ends_with("\"one\": .spec.raw.a.l"), "{error}");
    let live = one.applied(&live, &raw(json!({"s": {"now": "a map"}})));
    assert_eq!(live["spec"]["raw"], json!({"a": {"y": 2}, "s": {"now": "a map"}}));
}

#[test]
fn an_update_takes_what_it_changes_and_forgets_what_it_removes() {
    let things = Things::new();
    let live =
        things.by("one").applied(&things.by("").nothing(), &data(&json!({"a": "1", "b": "1", "c": "1"})));
    let live = things.by("editor").patched(&live, &json!({"data": {"a": "2", "b": null}}));
    assert_eq!(owned(&live, "one"), json!({"f:data": {"f:c": {}}}));
    assert_eq!(owned(&live, "editor"), json!({"f:data": {"f:a": {}}}));
    let error = things.by("one").apply(&live, &data(&json!({"a": "1"})), false).unwrap_err();
    assert_eq!(
        conflicts(&error).1,
        "Apply failed with 1 conflict: conflict with \"editor\" using v1: .data.a"
    );
    // What an updater owns is not removed when an applier lets go of it.
    let live = things.by("one").applied(&live, &data(&json!({"a": "2"})));
    let live = things.by("one").applied(&live, &data(&json!({})));
    assert_eq!(live["data"], json!({"a": "2"}));
}

#[test]
fn an_element_disappears_when_who_put_it_there_lets_go() {
    let things = Things::new();
    let one = things.by("one");
    let with = |names: &[&str]| {
        let containers: Vec<_> = names.iter().map(|it| json!({"name": it, "image": "i"})).collect();
        thing(&json!({"spec": {"containers": containers}}))
    };
    let live = one.applied(&one.nothing(), &with(&["a", "b"]));
    let live = things.by("u").patched(
        &live,
        &json!({"spec": {"containers": [{"name": "a", "image": "i"}, {"name": "b", "image": "changed"}]}}),
    );
    let live = one.applied(&live, &with(&["a"]));
    assert_eq!(live["spec"]["containers"], json!([{"name": "a", "image": "i"}]));
    assert_eq!(owned(&live, "u"), Value::Null);
}

#[test]
fn times_change_only_with_what_is_owned() {
    let things = Things::new();
    let time = |object: &Value, at: usize| object["metadata"]["managedFields"][at]["time"].clone();
    let live = things.by("one").created(&data(&json!({"a": "1"})));
    let later = "2026-01-02T00:00:00Z";
    let same = things.by("one").at(later).patched(&live, &json!({}));
    assert_eq!(same, live);
    let live = things.by("one").at(later).patched(&live, &json!({"data": {"a": "2"}}));
    assert_eq!(time(&live, 0), json!(later));
    let live = things.by("two").at("2026-01-03T00:00:00Z").applied(&live, &data(&json!({"b": "1"})));
    let again = things.by("two").at("2026-01-04T00:00:00Z").applied(&live, &data(&json!({"b": "1"})));
    assert_eq!(again, live);
    // Appliers come first, whenever they wrote.
    assert_eq!(time(&live, 0), json!("2026-01-03T00:00:00Z"));
    assert_eq!(time(&live, 1), json!(later));
}

#[test]
fn entries_are_sorted_and_the_oldest_updaters_merged() {
    let things = Things::new();
    let mut live = things.by("m00").created(&data(&json!({"k00": "v"})));
    let names: Vec<String> = (1..15).map(|it| format!("m{it:02}")).collect();
    for name in &names {
        let patch = json!({"data": {(name.replace('m', "k")): "v"}});
        live = things.by(name).patched(&live, &patch);
    }
    let managers = managers(&live);
    assert_eq!(managers.len(), MAX_UPDATERS);
    let ancient = owned(&live, "ancient-changes");
    assert_eq!(ancient["f:data"].as_object().unwrap().len(), 7, "{ancient}");
    let everything = managers.values().fold(FieldSet::new(), |all, it| all.union(&it.set));
    assert_eq!(everything.len(), 16);
}

#[test]
fn clients_can_reset_but_not_break_managed_fields() {
    let things = Things::new();
    let live = things.by("one").created(&data(&json!({"a": "1"})));
    let with = |entries: Value| {
        let mut new = live.clone();
        new["metadata"]["managedFields"] = entries;
        things.by("two").updated(&live, &new)
    };
    for reset in [json!([]), json!([{}])] {
        assert_eq!(with(reset)["metadata"].get("managedFields"), None);
    }
    for broken in [
        json!([{"manager": "x", "operation": "Odd", "apiVersion": "v1", "fieldsType": "FieldsV1"}]),
        json!([{"manager": "x", "operation": "Update", "fieldsType": "FieldsV1"}]),
        json!([{"manager": "x", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV2"}]),
        json!([{"manager": "x", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": [1]}]),
        json!(null),
    ] {
        assert_eq!(with(broken), live);
    }
    let other = json!([{
        "manager": "other", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1",
        "fieldsV1": {"f:data": {"f:a": {}}}
    }]);
    assert_eq!(with(other.clone())["metadata"]["managedFields"], other);
    // Through a subresource they cannot be changed at all.
    let mut new = live.clone();
    new["metadata"]["managedFields"] = other;
    let status = things.by("two").status().updated(&live, &new);
    assert_eq!(status, live);
}

#[test]
fn an_untracked_object_is_tracked_from_the_first_apply() {
    let things = Things::new();
    let live = thing(&json!({"metadata": {"name": "s", "uid": "u"}, "data": {"old": "1"}}));
    let live = things.by("u").patched(&live, &json!({"data": {"x": "1"}}));
    assert_eq!(live["metadata"].get("managedFields"), None);
    let error = things.by("one").apply(&live, &data(&json!({"old": "2"})), false).unwrap_err();
    assert_eq!(
        conflicts(&error).1,
        "Apply failed with 1 conflict: conflict with \"before-first-apply\" using v1: .data.old"
    );
    let live = things.by("one").applied(&live, &data(&json!({"new": "1"})));
    assert_eq!(owned(&live, "before-first-apply"), json!({"f:data": {".": {}, "f:old": {}, "f:x": {}}}));
    assert_eq!(live["data"], json!({"new": "1", "old": "1", "x": "1"}));
}

#[test]
fn status_belongs_to_who_writes_the_status() {
    let things = Things::new();
    let live = things.by("one").created(&thing(&json!({"spec": {"replicas": 1}, "status": {"phase": "x"}})));
    assert_eq!(owned(&live, "one"), json!({"f:spec": {"f:replicas": {}}}));
    let live =
        things.by("one").status().patched(&live, &json!({"status": {"phase": "y"}, "spec": {"replicas": 1}}));
    let entries = managers(&live);
    assert_eq!(entries.len(), 2);
    let status = entries.iter().find(|(id, _)| id.subresource == "status").unwrap();
    assert_eq!(status.1.set.to_fields_v1(), json!({"f:status": {"f:phase": {}}}));
    let config = thing(&json!({"spec": {"replicas": 5}, "status": {"phase": "z"}}));
    let live = things.by("applier").forced(&live, &config);
    let mine = managers(&live).into_iter().find(|(id, _)| id.operation == Operation::Apply).unwrap();
    assert_eq!(mine.1.set.to_fields_v1(), json!({"f:spec": {"f:replicas": {}}}));
}

#[test]
fn kubectl_takes_over_what_it_applied_on_the_client_side() {
    let things = Things::new();
    let applied = r#"{"apiVersion":"v1","kind":"Thing","metadata":{"name":"s"},"data":{"a":"1"}}"#;
    let annotation = "kubectl.kubernetes.io/last-applied-configuration";
    let live = things.by("kubectl-client-side-apply").created(&thing(&json!({
        "metadata": {"name": "s", "annotations": {annotation: applied}}, "data": {"a": "1", "b": "1"}
    })));
    let config = data(&json!({"a": "2"}));
    assert!(matches!(things.by("other").apply(&live, &config, false), Err(ApplyError::Conflicts(_))));
    let new = things.by("kubectl").applied(&live, &config);
    assert_eq!(new["data"], json!({"a": "2", "b": "1"}));
    assert_eq!(owned(&new, "kubectl"), json!({"f:data": {"f:a": {}}}));
    let text = new["metadata"]["annotations"][annotation].as_str().unwrap();
    assert!(text.contains(r#""data":{"a":"2"}"#) && text.ends_with('\n'), "{text}");
    // What it did not apply, it cannot take.
    let error = things.by("kubectl").apply(&live, &data(&json!({"a": "2", "b": "2"})), false).unwrap_err();
    let message =
        "Apply failed with 1 conflict: conflict with \"kubectl-client-side-apply\" using v1: .data.b";
    assert_eq!(conflicts(&error).1, message);
}

#[test]
fn configurations_that_do_not_fit_are_refused_in_upstreams_words() {
    let things = Things::new();
    let one = things.by("one");
    let prefix = "failed to create typed patch object (n/s; /v1, Kind=Thing): ";
    for (spec, complaint) in [
        (
            json!({"containers": [{"name": "a"}, {"name": "a"}]}),
            ".spec.containers: duplicate entries for key [name=\"a\"]",
        ),
        (json!({"tags": ["x", "x"]}), ".spec.tags: duplicate entries for key [=\"x\"]"),
        (json!({"typo": 1}), ".spec.typo: field not declared in schema"),
        (
            json!({"containers": [{"image": "x"}]}),
            ".spec.containers: element 0: associative list with keys has an element that omits key field \"name\" \
             (and doesn't have default value)",
        ),
        (json!({"replicas": "three"}), ".spec.replicas: expected numeric (int or float), got string"),
        (
            json!({"containers": [{"name": "a", "image": 1}]}),
            ".spec.containers[name=\"a\"].image: expected string, got &value.valueUnstructured{Value:1}",
        ),
        (json!([1]), ".spec: expected map, got &{[1]}"),
        (json!({"tags": "x"}), ".spec.tags: expected list, got &{x}"),
        (
            json!({"tags": [null]}),
            ".spec.tags: element 0: associative list without keys has an element that's an explicit null",
        ),
    ] {
        let error = one.apply(&one.nothing(), &thing(&json!({"spec": spec})), true).unwrap_err().status();
        assert_eq!((error.code, error.message), (500, format!("{prefix}{complaint}")));
    }
    let many = thing(&json!({"spec": {"replicas": "x", "tags": "y"}}));
    let error = one.apply(&one.nothing(), &many, true).unwrap_err().to_string();
    assert_eq!(
        error,
        format!(
            "{prefix}errors:\n  .spec.replicas: expected numeric (int or float), got string\n  \
             .spec.tags: expected list, got &{{y}}"
        )
    );
    let wrong = json!({"apiVersion": "apps/v1", "kind": "Other"});
    let error = one.apply(&one.nothing(), &wrong, true).unwrap_err().status();
    assert_eq!((error.code, error.message.as_str()), (400, "invalid object type: apps/v1, Kind=Other"));
}

#[test]
fn null_is_owned_but_not_stored() {
    let things = Things::new();
    let one = things.by("one");
    let live = one.applied(&one.nothing(), &thing(&json!({"spec": {"replicas": 3}})));
    let live = one.applied(&live, &thing(&json!({"spec": {"replicas": null}})));
    assert_eq!(live["spec"], json!({}));
    assert_eq!(owned(&live, "one"), json!({"f:spec": {"f:replicas": {}}}));
}

#[test]
fn live_objects_with_duplicates_can_still_be_applied_to() {
    let things = Things::new();
    let live = things.by("u").created(&thing(&json!({
        "spec": {"containers": [{"name": "a", "image": "1"}, {"name": "a", "image": "2"}, {"name": "b"}]}
    })));
    assert_eq!(owned(&live, "u")["f:spec"]["f:containers"]["k:{\"name\":\"a\"}"], json!({}));
    let new = things
        .by("one")
        .applied(&live, &thing(&json!({"spec": {"containers": [{"name": "b", "image": "x"}]}})));
    assert_eq!(new["spec"]["containers"].as_array().unwrap().len(), 3);
    let new = things
        .by("one")
        .forced(&new, &thing(&json!({"spec": {"containers": [{"name": "a", "image": "x"}]}})));
    assert_eq!(new["spec"]["containers"], json!([{"name": "a", "image": "x"}, {"name": "b"}]));
}

#[test]
fn nothing_is_lost_of_live_objects_that_do_not_fit() {
    let things = Things::new();
    let live = things.by("u").created(&thing(&json!({
        "spec": {"containers": [{"image": "nameless"}], "unknown": {"kept": true}}
    })));
    let config = thing(&json!({"spec": {"containers": [{"name": "b"}]}}));
    let error = things.by("one").apply(&live, &config, true).unwrap_err().to_string();
    assert!(error.starts_with(
        "failed to create typed live object (n/s; /v1, Kind=Thing): .spec.containers: element 0"
    ));
    let live = things.by("u").created(&thing(&json!({"spec": {"unknown": {"kept": true}}})));
    let new = things.by("one").applied(&live, &config);
    assert_eq!(new["spec"]["unknown"], json!({"kept": true}));
}

#[test]
fn deep_objects_do_not_end_the_stack() {
    let deep = |depth: usize, leaf: &str| (0..depth).fold(json!(leaf), |inner, _| json!({"a": inner}));
    let work = move || {
        let things = Things::new();
        let live = things.by("u").created(&thing(&json!({"spec": {"raw": deep(240, "old")}})));
        let config = thing(&json!({"spec": {"raw": deep(120, "new")}}));
        let live = things.by("one").forced(&live, &config);
        let live = things.by("one").forced(&live, &thing(&json!({"spec": {"raw": deep(110, "newer")}})));
        things.by("one").applied(&live, &thing(&json!({})));
    };
    let worker = std::thread::Builder::new().stack_size(2 << 20).spawn(work).unwrap();
    worker.join().unwrap();
}

#[test]
fn wide_objects_take_time_in_proportion() {
    let things = Things::new();
    let wide = |value: &str| data(&(0..5_000).map(|it| (format!("k{it}"), json!(value))).collect::<Value>());
    let live = things.by("u").created(&wide("1"));
    let error = things.by("one").apply(&live, &wide("2"), false).unwrap_err();
    assert!(error.to_string().starts_with("Apply failed with 5000 conflicts: "));
    assert!(error.to_string().len() < 100_000);
    let live = things.by("one").forced(&live, &wide("2"));
    let live = things.by("one").applied(&live, &thing(&json!({})));
    assert_eq!(live["data"], json!({}));
}
