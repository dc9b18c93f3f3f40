//! Cases of `check`.

use serde_json::json;

use super::*;
use crate::{
    json,
    model::{Field, ListKind, ListType, MapType, ObjectType, Scalar, Type},
};

fn schema() -> (Schema, TypeId) {
    let mut schema = Schema::new();
    let mut scalar = |it| schema.add(Type::Scalar(it));
    let text = scalar(Scalar::String);
    let fields = [
        ("int", Scalar::Int32),
        ("flag", Scalar::Bool),
        ("bytes", Scalar::Bytes),
        ("time", Scalar::Time),
        ("micro", Scalar::MicroTime),
        ("duration", Scalar::Duration),
        ("size", Scalar::Quantity),
        ("port", Scalar::IntOrString),
    ];
    let mut fields: Vec<_> = fields.into_iter().map(|(name, it)| Field::new(name, scalar(it))).collect();
    fields.push(Field { go_type: Some("v1.Protocol".into()), ..Field::new("protocol", text) });
    fields.push(Field::new("name", text));
    fields.push(Field { is_known: false, ..Field::new("later", text) });
    let spec = schema.add(Type::Object(ObjectType::new("io.k8s.api.core.v1.ThingSpec", fields)));
    let specs = schema.add(Type::List(ListType { element: spec, kind: ListKind::Atomic, is_wrapped: false }));
    let texts = schema.add(Type::Map(MapType { value: text, is_atomic: false }));
    let any = schema.add(Type::Any);
    let thing = ObjectType::new(
        "io.k8s.api.core.v1.Thing",
        vec![
            Field::new("spec", spec),
            Field::new("parts", specs),
            Field::new("data", texts),
            Field::new("raw", any),
        ],
    );
    let id = schema.add(Type::Object(thing));
    (schema, id)
}

#[track_caller]
fn refuses(value: &Value, want: &str) {
    let (schema, ty) = schema();
    let error = check(&schema, ty, value.clone()).unwrap_err();
    assert_eq!(error.to_string(), want, "{value}");
}

#[track_caller]
fn reads(value: Value, want: Value) {
    let (schema, ty) = schema();
    let checked = check(&schema, ty, value).unwrap();
    assert_eq!(checked, Checked { value: want, unknown: Vec::new() });
}

#[test]
fn wrong_types_are_refused_in_gos_words() {
    let prefix = "json: cannot unmarshal";
    refuses(
        &json!({"spec": 5}),
        &format!("{prefix} number into Go struct field Thing.spec of type v1.ThingSpec"),
    );
    refuses(
        &json!({"spec": {"name": 5}}),
        &format!("{prefix} number into Go struct field ThingSpec.spec.name of type string"),
    );
    refuses(
        &json!({"spec": {"protocol": true}}),
        &format!("{prefix} bool into Go struct field ThingSpec.spec.protocol of type v1.Protocol"),
    );
    refuses(
        &json!({"parts": [{"int": "x"}]}),
        &format!("{prefix} string into Go struct field ThingSpec.parts.int of type int32"),
    );
    refuses(
        &json!({"parts": {}}),
        &format!("{prefix} object into Go struct field Thing.parts of type []v1.ThingSpec"),
    );
    refuses(
        &json!({"spec": {"int": 1.5}}),
        &format!("{prefix} number 1.5 into Go struct field ThingSpec.spec.int of type int32"),
    );
    refuses(
        &json!({"spec": {"int": 3_000_000_000_u32}}),
        &format!("{prefix} number 3000000000 into Go struct field ThingSpec.spec.int of type int32"),
    );
    refuses(
        &json!({"data": {"k": 5}}),
        &format!("{prefix} number into Go struct field Thing.data of type string"),
    );
    refuses(
        &json!({"data": []}),
        &format!("{prefix} array into Go struct field Thing.data of type map[string]string"),
    );
    refuses(
        &json!({"spec": {"port": false}}),
        &format!("{prefix} bool into Go struct field ThingSpec.spec.port of type int32"),
    );
    refuses(
        &json!({"spec": {"time": 3}}),
        &format!("{prefix} number into Go struct field ThingSpec.spec.time of type string"),
    );
}

#[test]
fn unreadable_texts_are_refused_in_gos_words() {
    refuses(
        &json!({"spec": {"micro": "yesterday"}}),
        "parsing time \"yesterday\" as \"2006-01-02T15:04:05.000000Z07:00\": cannot parse \"yesterday\" as \"2006\"",
    );
    let quantity =
        "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
    refuses(&json!({"spec": {"size": "a lot"}}), quantity);
    refuses(&json!({"spec": {"size": {}}}), quantity);
    refuses(&json!({"spec": {"size": "5Zi"}}), quantity);
    refuses(&json!({"spec": {"size": "5Kn"}}), "unable to parse quantity's suffix");
    refuses(&json!({"spec": {"bytes": "YQ="}}), "illegal base64 data at input byte 3");
    refuses(&json!({"spec": {"bytes": "Y!=="}}), "illegal base64 data at input byte 1");
    refuses(&json!({"spec": {"bytes": "YWI"}}), "illegal base64 data at input byte 0");
    refuses(&json!({"spec": {"duration": "soon"}}), "time: invalid duration \"soon\"");
    refuses(&json!({"spec": {"duration": "5"}}), "time: missing unit in duration \"5\"");
    refuses(&json!({"spec": {"duration": "5y"}}), "time: unknown unit \"y\" in duration \"5y\"");
    // What cannot be read at all is told before what has the wrong type.
    refuses(&json!({"data": {"k": 5}, "spec": {"size": "x"}}), quantity);
}

#[test]
fn null_is_nothing() {
    reads(json!({"spec": null, "data": null}), json!({}));
    reads(json!({"data": {"k": null}, "parts": [null]}), json!({"data": {"k": ""}, "parts": [{}]}));
    reads(json!({"raw": {"a": null}}), json!({"raw": {"a": null}}));
}

#[test]
fn values_get_their_canonical_form() {
    reads(
        json!({"spec": {"time": "2026-01-02T03:04:05+01:00", "size": 2, "bytes": "YW\nI=", "duration": "1h30m"}}),
        json!({"spec": {"time": "2026-01-02T02:04:05Z", "size": "2", "bytes": "YWI=", "duration": "1h30m"}}),
    );
}

#[test]
fn quantities_are_written_as_upstream_writes_them() {
    for (text, want) in [
        ("0", "0"),
        ("0Mi", "0"),
        ("1", "1"),
        ("+1", "1"),
        ("1000m", "1"),
        ("0.5", "500m"),
        ("0.1", "100m"),
        ("1.5", "1500m"),
        ("1024Mi", "1Gi"),
        ("1.5Gi", "1536Mi"),
        ("1000Mi", "1000Mi"),
        ("512", "512"),
        ("1024", "1024"),
        ("1Ki", "1Ki"),
        ("1000", "1k"),
        ("1500", "1500"),
        ("100k", "100k"),
        ("1e3", "1e3"),
        ("12E6", "12e6"),
        ("1000e3", "1e6"),
        ("128974848", "128974848"),
        ("129M", "129M"),
        ("123Mi", "123Mi"),
        ("-5m", "-5m"),
        ("0.0000000001", "1n"),
        ("100Ki", "100Ki"),
        (".5", "500m"),
        ("1.", "1"),
        ("0.5Ki", "512"),
        ("123456789012345678901234567890123456", "123456789012345678901234567890123456"),
    ] {
        assert_eq!(canonical_quantity(text).as_deref(), Ok(want), "{text}");
    }
}

#[test]
fn unknown_fields_are_dropped_and_named() {
    let (schema, ty) = schema();
    let value = json!({"nope": 1, "spec": {"later": "x", "name": "a"}, "parts": [{}, {"b": {"c": 1}}]});
    let checked = check(&schema, ty, value).unwrap();
    assert_eq!(checked.value, json!({"spec": {"name": "a"}, "parts": [{}, {}]}));
    assert_eq!(checked.unknown, ["nope", "parts[1].b", "spec.later"]);
}

#[test]
fn a_patch_keeps_fields_of_other_releases() {
    let (schema, ty) = schema();
    let old = json!({"spec": {"later": "x"}, "parts": [{"name": "a", "later": "y"}]});
    let patched =
        json!({"spec": {"later": "x", "name": "b"}, "parts": [{"name": "new"}, {"name": "a", "later": "y"}]});
    let checked = check_patched(&schema, ty, patched.clone(), &old).unwrap();
    assert_eq!(checked, Checked { value: patched, unknown: Vec::new() });
    let changed = check_patched(&schema, ty, json!({"spec": {"later": "z"}}), &old).unwrap();
    assert_eq!(changed.unknown, ["spec.later"]);
}

#[test]
fn complaints_come_in_the_order_of_the_text() {
    let (schema, ty) = schema();
    let text =
        br#"{"z":1,"spec":{"name":"a","y":{"y":1,"y":2},"name":"b"},"data":{"k":"1","k":"2"},"a":1,"z":2,
        "raw":{"x":1,"x":2},"parts":[{},{"q":1}]}"#;
    let want = [
        r#"unknown field "z""#,
        r#"unknown field "spec.y""#,
        r#"duplicate field "spec.name""#,
        r#"duplicate field "data.k""#,
        r#"unknown field "a""#,
        r#"unknown field "parts[1].q""#,
    ];
    assert_eq!(strict_errors(&schema, ty, text), want);
    assert_eq!(
        strict_message(&[want[0].to_owned(), want[1].to_owned()]),
        r#"strict decoding error: unknown field "z", unknown field "spec.y""#
    );
}

#[test]
fn there_are_never_more_than_a_hundred_complaints() {
    let (schema, ty) = schema();
    let fields: Vec<_> = (0..500).map(|it| format!("\"f{it}\":1")).collect();
    let text = format!("{{{}}}", fields.join(","));
    assert_eq!(strict_errors(&schema, ty, text.as_bytes()).len(), MAX_REPORTED);
    let value = json::parse(text.as_bytes(), json::Limits::REQUEST).unwrap();
    assert_eq!(check(&schema, ty, value).unwrap().unknown.len(), MAX_REPORTED);
}
