//! Schemas as people write them, right and wrong, and what they make of objects.

use serde_json::json;

use super::*;
use crate::Value;

fn gadget() -> Node {
    Node::compile(&json!({"type": "object", "properties": {
        "spec": {"type": "object", "required": ["size"], "properties": {
            "size": {"type": "integer", "minimum": 1, "maximum": 9},
            "mode": {"type": "string", "enum": ["a", "b"], "default": "a"},
            "tags": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
            "when": {"type": "string", "format": "date-time"},
            "q": {"x-kubernetes-int-or-string": true},
            "ports": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                "items": {"type": "object", "required": ["name"], "properties": {
                    "name": {"type": "string"}, "port": {"type": "integer", "format": "int32", "maximum": 10},
                    "protocol": {"type": "string", "default": "TCP"}}}},
            "labels": {"type": "object", "additionalProperties": {"type": "string", "maxLength": 3}},
            "raw": {"x-kubernetes-preserve-unknown-fields": true},
            "maybe": {"type": "string", "nullable": true, "pattern": "^[a-z]+$"},
        }},
        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
    }}))
    .into_root()
}

#[track_caller]
fn errors(node: &Node, value: &Value, expected: &[&str]) {
    let mut found: Vec<String> = validate(node, value, "").iter().map(ToString::to_string).collect();
    found.extend(duplicates(node, value).iter().map(ToString::to_string));
    assert_eq!(found, expected);
}

#[test]
fn everything_wrong_is_told_in_upstreams_words() {
    let check = |spec: Value, expected: &[&str]| errors(&gadget(), &json!({"spec": spec}), expected);
    check(json!({"size": 2}), &[]);
    check(json!({}), &["spec.size: Required value"]);
    check(
        json!({"size": 20}),
        &["spec.size: Invalid value: 20: spec.size in body should be less than or equal to 9"],
    );
    check(
        json!({"size": "x", "mode": "c", "tags": ["t", "t"], "when": "noon", "q": 1.5}),
        &[
            "spec.mode: Unsupported value: \"c\": supported values: \"a\", \"b\"",
            "spec.q: Invalid value: \"number\": spec.q in body must be of type integer,string: \"number\"",
            "spec.size: Invalid value: \"string\": spec.size in body must be of type integer: \"string\"",
            "spec.when: Invalid value: \"noon\": spec.when in body must be of type date-time: \"noon\"",
            "spec.tags[1]: Duplicate value: \"t\"",
        ],
    );
    check(
        json!({"size": 1, "labels": {"a": "toolong"}}),
        &["spec.labels.a: Too long: may not be more than 3 bytes"],
    );
    check(json!({"size": 1, "maybe": null}), &[]);
    check(
        json!({"size": 1, "maybe": "A"}),
        &["spec.maybe: Invalid value: \"A\": spec.maybe in body should match '^[a-z]+$'"],
    );
    check(
        json!({"size": 1, "ports": [{"name": "a"}, {"name": "a", "port": 11}]}),
        &[
            "spec.ports[1].port: Invalid value: 11: spec.ports[1].port in body should be less than or equal to 10",
            "spec.ports[1]: Duplicate value: {\"name\":\"a\"}",
        ],
    );
    check(
        json!({"size": 1, "ports": [null]}),
        &["spec.ports[0]: Invalid value: \"null\": spec.ports[0] in body must be of type object: \"null\""],
    );
    check(
        json!({"size": 1, "when": 5}),
        &["spec.when: Invalid value: \"int64\": spec.when in body must be of type date-time: \"int64\""],
    );
    errors(
        &gadget(),
        &json!({"spec": []}),
        &["spec: Invalid value: \"array\": spec in body must be of type object: \"array\""],
    );
}

#[test]
fn alternatives_are_told_with_the_one_that_fits_best() {
    let node = Node::compile(&json!({"type": "object", "properties": {
        "a": {"type": "integer"}, "b": {"type": "string"}, "c": {"type": "array", "minItems": 1, "maxItems": 2, "items": {"type": "string"}}},
        "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
        "not": {"required": ["c"], "properties": {"a": {"minimum": 5}}}}));
    errors(
        &node,
        &json!({}),
        &["<nil>: Invalid value: \"\": \"\" must validate at least one schema (anyOf)", "a: Required value"],
    );
    errors(
        &node,
        &json!({"a": 5, "c": []}),
        &[
            "<nil>: Invalid value: \"\": \"\" must not validate the schema (not)",
            "c: Invalid value: 0: c in body should have at least 1 items",
        ],
    );
    errors(&node, &json!({"a": 1, "c": ["x", "y", "z"]}), &["c: Too many: 3: must have at most 2 items"]);
    let node = Node::compile(&json!({"type": "object", "properties": {"x": {"type": "object",
        "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
        "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}}}));
    errors(
        &node,
        &json!({"x": {"a": "", "b": ""}}),
        &[
            "<nil>: Invalid value: \"\": \"x\" must validate one and only one schema (oneOf). Found 2 valid alternatives",
        ],
    );
}

#[test]
fn what_is_not_listed_goes_and_is_named() {
    let mut value = json!({"apiVersion": "a/v1", "kind": "K", "metadata": {"name": "x", "odd": 1}, "top": 1,
        "spec": {"size": 1, "nope": {"a": 1}, "ports": [{"name": "a", "x": 1}], "labels": {"any": "y"},
            "raw": {"deep": [{"kept": 1}]}},
        "status": {"anything": {"goes": 1}}});
    let unknown = prune(&gadget(), &mut value);
    assert_eq!(unknown, ["spec.nope", "spec.ports[0].x", "top"]);
    assert_eq!(value["spec"]["raw"], json!({"deep": [{"kept": 1}]}));
    assert_eq!(value["status"], json!({"anything": {"goes": 1}}));
    assert_eq!(value["metadata"]["odd"], 1);
    assert_eq!(value["spec"]["ports"], json!([{"name": "a"}]));
}

#[test]
fn defaults_are_filled_in_where_their_parent_is() {
    let mut value = json!({"spec": {"size": null, "mode": null, "maybe": null, "ports": [{"name": "a"}]}});
    fill(&gadget(), &mut value);
    assert_eq!(
        value,
        json!({"spec": {"mode": "a", "maybe": null, "ports": [{"name": "a", "protocol": "TCP"}]}})
    );
    let mut empty = json!({});
    fill(&gadget(), &mut empty);
    assert_eq!(empty, json!({}));
}

#[test]
fn what_did_not_change_cannot_be_wrong() {
    let old =
        json!({"spec": {"size": 20, "ports": [{"name": "a", "port": 99}, {"name": "b"}], "tags": ["a"]}});
    let mut new = old.clone();
    new["spec"]["ports"] = json!([{"name": "b"}, {"name": "a", "port": 99}]);
    assert_eq!(validate_changed(&gadget(), &new, &old, ""), []);
    new["spec"]["size"] = json!(21);
    let errors = validate_changed(&gadget(), &new, &old, "");
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert_eq!(errors[0].field, "spec.size");
}

#[track_caller]
fn wrong(schema: &Value, expected: &[&str]) {
    let found: Vec<String> = structural_errors(schema, "s", true).0.iter().map(ToString::to_string).collect();
    assert_eq!(found, expected);
}

#[test]
fn schemas_that_are_not_structural_are_refused() {
    let with = |property: Value| json!({"type": "object", "properties": {"spec": property}});
    wrong(&with(json!({"type": "object"})), &[]);
    wrong(
        &with(json!({})),
        &["s.properties[spec].type: Required value: must not be empty for specified object fields"],
    );
    wrong(
        &with(json!({"type": "array", "items": {}})),
        &["s.properties[spec].items.type: Required value: must not be empty for specified array items"],
    );
    wrong(&with(json!({"type": "array"})), &["s.properties[spec].items: Required value: must be specified"]);
    wrong(
        &with(json!({"type": "object", "anyOf": [{"type": "object", "properties": {"a": {"minimum": 1}}}]})),
        &["s.properties[spec].anyOf[0].type: Forbidden: must be empty to be structural"],
    );
    wrong(
        &json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"metadata": {"type": "object", "properties": {"labels": {"type": "object"}}}}}),
        &[
            "s.properties[metadata]: Forbidden: must not specify anything other than name and generateName, but metadata is implicitly specified",
        ],
    );
    wrong(
        &with(
            json!({"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": true}),
        ),
        &[],
    );
    wrong(
        &with(json!({"type": "string", "pattern": "("})),
        &[
            "s.properties[spec].pattern: Invalid value: \"(\": must be a valid regular expression, but isn't: error parsing regexp: unclosed group: `(`",
        ],
    );
}

#[test]
fn what_alternatives_speak_of_is_described_outside_of_them() {
    let schema = json!({"type": "object", "anyOf": [{"properties": {"a": {"minimum": 1}}}]});
    let found: Vec<String> =
        structural_errors(&schema, "s", false).0.iter().map(ToString::to_string).collect();
    assert_eq!(found, ["s.properties[a]: Required value: because it is defined in s.anyOf[0].properties[a]"]);
}

#[test]
fn defaults_and_words_are_checked() {
    let with = |property: Value| json!({"type": "object", "properties": {"spec": property}});
    wrong(
        &with(json!({"type": "integer", "default": "x"})),
        &[
            "s.properties[spec].default: Invalid value: \"string\":  in body must be of type integer: \"string\"",
        ],
    );
    wrong(
        &with(json!({"type": "object", "default": {"a": 1}})),
        &["s.properties[spec].default: Invalid value: {\"a\":1}: must not have unknown fields"],
    );
    wrong(
        &with(json!({"type": "null"})),
        &[
            "s.properties[spec].type: Unsupported value: \"null\": supported values: \"array\", \"boolean\", \"integer\", \"number\", \"object\", \"string\"",
            "s.properties[spec].type: Forbidden: type cannot be set to null, use nullable as an alternative",
        ],
    );
    wrong(
        &with(json!({"type": "array", "items": {"type": "object", "properties": {"k": {"type": "string"}}},
            "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]})),
        &[
            "s.properties[spec].items.properties[k].default: Required value: this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property",
        ],
    );
    wrong(
        &with(
            json!({"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": {"type": "string"}}),
        ),
        &[
            "s.properties[spec].additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive",
        ],
    );
    wrong(
        &with(json!({"type": "object", "$ref": "#/x"})),
        &["s.properties[spec].$ref: Forbidden: $ref is not supported"],
    );
}

/// What earlier full definitions of Argo Workflows look like, as packages still carry them: a field of which nothing is said, because its type
/// contains itself, and a list of lists whose elements are not described. kube-apiserver refuses them with the same words
/// (`validateStructuralInvariants`: a type is required unless `x-kubernetes-preserve-unknown-fields` or
/// `x-kubernetes-int-or-string` stands in for it, and a list has `items`).
#[test]
fn recursion_that_is_cut_off_without_a_word_is_not_structural() {
    let with = |inline: Value, group: Value| {
        json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "tasks": {"type": "array", "items": {"type": "object", "properties": {"inline": inline}}},
            "steps": {"type": "array", "items": group},
        }}}})
    };
    wrong(
        &with(json!({}), json!({"type": "array"})),
        &[
            "s.properties[spec].properties[steps].items.items: Required value: must be specified",
            "s.properties[spec].properties[tasks].items.properties[inline].type: Required value: must not be empty for specified object fields",
        ],
    );
    let anything = json!({"x-kubernetes-preserve-unknown-fields": true});
    wrong(&with(anything.clone(), json!({"type": "array", "items": anything})), &[]);
    // A list that keeps everything still has to say what its elements are.
    wrong(
        &with(anything.clone(), json!({"type": "array", "x-kubernetes-preserve-unknown-fields": true})),
        &["s.properties[spec].properties[steps].items.items: Required value: must be specified"],
    );
}

#[test]
fn a_schema_with_words_that_mean_nothing_here_is_not_asked_for_structure() {
    let with = |property: Value| json!({"type": "object", "properties": {"spec": property}});
    wrong(
        &with(json!({"$ref": "#/definitions/pod"})),
        &["s.properties[spec].$ref: Forbidden: $ref is not supported"],
    );
    wrong(
        &with(json!({"type": "array", "items": [{"minimum": 1}]})),
        &["s.properties[spec].items: Forbidden: items must be a schema object and not an array"],
    );
    wrong(
        &with(
            json!({"type": "object", "properties": {"a": {"x-kubernetes-preserve-unknown-fields": false}}}),
        ),
        &[
            "s.properties[spec].properties[a].x-kubernetes-preserve-unknown-fields: Invalid value: false: must be true or undefined",
        ],
    );
    wrong(
        &with(json!({"type": "array", "items": {"type": "string"}, "additionalItems": false})),
        &["s.properties[spec].additionalItems: Forbidden: additionalItems is not supported"],
    );
    // Nobody else complains about this one.
    wrong(
        &with(
            json!({"type": "object", "$schema": "http://json-schema.org/schema#", "properties": {"a": {}}}),
        ),
        &["s: Invalid value: \"\": OpenAPIV3Schema 'schema' is not supported"],
    );
}

#[test]
fn rules_are_told_what_is_wrong_with_them_in_upstreams_words() {
    let with = |rule: Value| json!({"type": "object", "x-kubernetes-validations": [rule]});
    let at = "s.x-kubernetes-validations[0]";
    wrong(
        &with(json!({"rule": "true", "message": " "})),
        &[&format!("{at}.message: Invalid value: \" \": must be non-empty if specified")],
    );
    wrong(
        &with(json!({"rule": "true", "message": "a\nb"})),
        &[&format!("{at}.message: Invalid value: \"a\\nb\": must not contain line breaks")],
    );
}

#[track_caller]
fn pruned(schema: &Value, value: &Value, left: &Value, unknown: &[&str]) {
    let root = json!({"type": "object", "properties": {"spec": schema}});
    let mut value = json!({"spec": value});
    let found = prune(&Node::compile(&root).into_root(), &mut value);
    assert_eq!((&value["spec"], found), (left, unknown.iter().map(ToString::to_string).collect()));
}

#[test]
fn a_list_that_keeps_everything_keeps_it_in_its_elements() {
    let keeps = "x-kubernetes-preserve-unknown-fields";
    let element = json!({"type": "object", "properties": {
        "name": {"type": "string"}, "inner": {"type": "object", "properties": {"a": {"type": "string"}}}}});
    let value = json!([{"name": "n", "more": {"b": 1}, "inner": {"a": "x", "b": 1}}]);
    pruned(
        &json!({"type": "array", keeps: true, "items": element.clone()}),
        &value,
        &json!([{"name": "n", "more": {"b": 1}, "inner": {"a": "x"}}]),
        &["spec[0].inner.b"],
    );
    pruned(
        &json!({"type": "array", "items": element}),
        &value,
        &json!([{"name": "n", "inner": {"a": "x"}}]),
        &["spec[0].inner.b", "spec[0].more"],
    );
    pruned(
        &json!({"type": "array", keeps: true, "items": {"type": "array", "items": element}}),
        &json!([value]),
        &json!([[{"name": "n", "more": {"b": 1}, "inner": {"a": "x"}}]]),
        &["spec[0][0].inner.b"],
    );
}

#[test]
fn an_object_that_keeps_everything_does_not_hand_that_down() {
    let keeps = "x-kubernetes-preserve-unknown-fields";
    let value = json!({"a": {"b": {"c": 1}}, "n": 1, "l": [{"c": 1}]});
    pruned(&json!({"type": "object", keeps: true}), &value, &value, &[]);
    for additional in [json!(true), json!(false)] {
        for keeps_all in [json!(true), json!(null)] {
            pruned(
                &json!({"type": "object", keeps: keeps_all, "additionalProperties": additional}),
                &value,
                &json!({"a": {}, "n": 1, "l": [{}]}),
                &["spec.a.b", "spec.l[0].c"],
            );
        }
    }
    pruned(
        &json!({"type": "object", keeps: true, "additionalProperties": {"type": "object", "properties": {"b": {"type": "object"}}}}),
        &json!({"a": {"b": {"c": 1}, "d": 1}}),
        &json!({"a": {"b": {}}}),
        &["spec.a.b.c", "spec.a.d"],
    );
}

#[test]
fn fields_are_refused_where_there_may_be_none() {
    let node = Node::compile(&json!({"type": "object", "properties": {
        "none": {"type": "object", "additionalProperties": false},
        "few": {"type": "object", "maxProperties": 1, "additionalProperties": {"type": "string"}}}}));
    errors(&node, &json!({"none": {}}), &[]);
    errors(
        &node,
        &json!({"none": {"a": 1}}),
        &["none: Invalid value: \"a\": none.a in body is a forbidden property"],
    );
    // Too many fields do not hide what is wrong with one of them.
    errors(
        &node,
        &json!({"few": {"a": "x", "b": 1}}),
        &[
            "few: Too many: 2: must have at most 1 items",
            "few.b: Invalid value: \"integer\": few.b in body must be of type string: \"integer\"",
        ],
    );
}

#[test]
fn a_null_of_another_version_goes_where_it_is_no_value() {
    let mut value = json!({"spec": {"size": null, "mode": null, "maybe": null, "labels": {"a": null},
        "ports": [null, {"name": null}], "raw": {"x": null}}});
    drop_nulls(&gadget(), &mut value);
    assert_eq!(
        value,
        json!({"spec": {"mode": null, "maybe": null, "labels": {}, "ports": [null, {}], "raw": {"x": null}}})
    );
}

#[test]
fn apply_sees_lists_maps_and_metadata() {
    use crate::model::{ListKind, Schema, Type};
    let mut metadata = Schema::new();
    let any = metadata.add(Type::Any);
    let (schema, root) = types_of(&gadget(), (&metadata, any));
    let root = schema.object(root).unwrap();
    assert!(root.field("metadata").is_some() && root.field("apiVersion").is_some());
    let spec = schema.object(root.field("spec").unwrap().ty).unwrap();
    let Type::List(ports) = schema.get(spec.field("ports").unwrap().ty) else { panic!("a list") };
    assert_eq!(ports.kind, ListKind::Map(["name".into()].into()));
    assert!(matches!(schema.get(spec.field("labels").unwrap().ty), Type::Map(_)));
    assert!(matches!(schema.get(spec.field("raw").unwrap().ty), Type::Any));
}

/// A pattern of modest size and a long text kept a processor busy for 16 s.
#[test]
fn a_text_that_is_too_long_for_its_pattern_is_refused_unseen() {
    let node = |pattern: &str| Node::compile(&json!({"type": "string", "pattern": pattern}));
    let text = |length: usize| Value::from("ab".repeat(length / 2));
    let (large, small) = (node("^([a-z]{1,40}){1,40}$"), node("^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"));
    let complaints = validate(&large, &text(200_000), "");
    assert_eq!(complaints.len(), 1);
    assert!(complaints[0].detail.contains("exceeds the budget"), "{}", complaints[0].detail);
    assert!(validate(&large, &text(1_500), "").is_empty());
    assert!(validate(&small, &text(1_000_000), "").is_empty());
    // All texts of an object share the budget, also where a schema says what must not be.
    let list = Node::compile(
        &json!({"type": "array", "items": {"type": "string", "not": {"pattern": "(ab){2000}$"}}}),
    );
    let texts = |n: usize| Value::from(vec![text(3_000); n]);
    assert!(validate(&list, &texts(2), "").is_empty());
    assert!(!validate(&list, &texts(100), "").is_empty());
}
