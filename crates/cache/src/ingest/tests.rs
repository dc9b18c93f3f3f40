//! What becomes of stored values, case by case.

use bytes::Bytes;
use proptest::prelude::*;
use store::{Entry, Key, Revision};

use super::*;

fn spec() -> CollectionSpec {
    CollectionSpec {
        prefix: "/registry/things/".into(),
        namespaced: true,
        fields: vec![
            FieldSpec::new("status.phase"),
            FieldSpec::new("spec.replicas"),
            FieldSpec::new("spec.a.b.c"),
            FieldSpec::new("type"),
            FieldSpec::at("class", &["metadata", "annotations", "example.com/class"]),
            FieldSpec::new("spec.on"),
        ],
        versions: Vec::new(),
    }
}

fn read(value: impl AsRef<[u8]>) -> Result<Item, Unreadable> {
    let entry = Entry {
        key: Key::new("/registry/things/ns/name"),
        value: Bytes::copy_from_slice(value.as_ref()),
        created: Revision::new(3),
        modified: Revision::new(42),
        lease: None,
    };
    ingest(&spec(), &Interner::default(), &entry)
}

fn served(value: &str) -> String {
    let item = read(value).unwrap();
    String::from_utf8(item.text().to_vec()).unwrap()
}

#[test]
fn the_resource_version_is_put_in_front_of_the_metadata() {
    let cases = [
        // The usual form.
        (
            r#"{"apiVersion":"v1","kind":"T","metadata":{"name":"a"},"spec":{"x":1}}"#,
            r#"{"apiVersion":"v1","kind":"T","metadata":{"resourceVersion":"42","name":"a"},"spec":{"x":1}}"#,
        ),
        // Empty, absent and null metadata.
        (
            r#"{"apiVersion":"v1","kind":"T","metadata":{}}"#,
            r#"{"apiVersion":"v1","kind":"T","metadata":{"resourceVersion":"42"}}"#,
        ),
        (
            r#"{"apiVersion":"v1","kind":"T"}"#,
            r#"{"apiVersion":"v1","kind":"T","metadata":{"resourceVersion":"42"}}"#,
        ),
        (
            r#"{"metadata":null,"apiVersion":"v1","kind":"T","x":1}"#,
            r#"{"apiVersion":"v1","kind":"T","metadata":{"resourceVersion":"42"},"x":1}"#,
        ),
        ("{}", r#"{"metadata":{"resourceVersion":"42"}}"#),
        // Another order.
        (
            r#"{"kind":"T","apiVersion":"v1","metadata":{"name":"a"},"z":1,"a":2}"#,
            r#"{"apiVersion":"v1","kind":"T","metadata":{"resourceVersion":"42","name":"a"},"z":1,"a":2}"#,
        ),
        (
            r#"{"spec":{},"metadata":{"name":"a"},"kind":"T","apiVersion":"v1"}"#,
            r#"{"apiVersion":"v1","kind":"T","metadata":{"resourceVersion":"42","name":"a"},"spec":{}}"#,
        ),
        // Only one of the two heads.
        (r#"{"kind":"T","metadata":{}}"#, r#"{"kind":"T","metadata":{"resourceVersion":"42"}}"#),
        // Whitespace goes, except in texts.
        (
            " {\n \"apiVersion\" : \"v1\",\t\"kind\":\"T\",\r\n\"metadata\": { } , \"d\": [ 1 , \" a \\\" { b \" ] }\n",
            r#"{"apiVersion":"v1","kind":"T","metadata":{"resourceVersion":"42"},"d":[1," a \" { b "]}"#,
        ),
        // A resourceVersion that was stored is replaced, wherever it is and whatever it is.
        (
            r#"{"apiVersion":"v1","kind":"T","metadata":{"resourceVersion":"7","name":"a"}}"#,
            r#"{"apiVersion":"v1","kind":"T","metadata":{"resourceVersion":"42","name":"a"}}"#,
        ),
        (
            r#"{"apiVersion":"v1","kind":"T","metadata":{"name":"a","resourceVersion":{"x":[1]}}}"#,
            r#"{"apiVersion":"v1","kind":"T","metadata":{"resourceVersion":"42","name":"a"}}"#,
        ),
        (
            r#"{"apiVersion":"v1","kind":"T","metadata":{"resource\u0056ersion":"7"}}"#,
            r#"{"apiVersion":"v1","kind":"T","metadata":{"resourceVersion":"42"}}"#,
        ),
        // One that is not the object's own stays.
        (
            r#"{"apiVersion":"v1","kind":"T","metadata":{},"involvedObject":{"resourceVersion":"7"}}"#,
            r#"{"apiVersion":"v1","kind":"T","metadata":{"resourceVersion":"42"},"involvedObject":{"resourceVersion":"7"}}"#,
        ),
        // Of members that stand there twice the last counts.
        (
            r#"{"apiVersion":"v0","kind":"T","metadata":{"name":"b"},"x":1,"x":2,"metadata":{"name":"a"},"apiVersion":"v1"}"#,
            r#"{"apiVersion":"v1","kind":"T","metadata":{"resourceVersion":"42","name":"a"},"x":2}"#,
        ),
        // Escaped names of members and texts beyond ASCII.
        (
            r#"{"apiVersion":"v1","kind":"T","meta\u0064ata":{"name":"ä"},"d\"":"ü😀"}"#,
            r#"{"apiVersion":"v1","kind":"T","metadata":{"resourceVersion":"42","name":"ä"},"d\"":"ü😀"}"#,
        ),
    ];
    for (stored, expected) in cases {
        assert_eq!(served(stored), expected, "{stored}");
    }
}

#[test]
fn a_list_item_is_the_text_without_its_head() {
    for stored in [
        r#"{"apiVersion":"v1","kind":"metadata","metadata":{"name":"a"},"x":1}"#,
        r#"{"x":1,"kind":"\"metadata\":{","metadata":{"name":"a"}}"#,
        r#"{"metadata":{"name":"a"},"x":1}"#,
    ] {
        let body = read(stored).unwrap().body();
        assert_eq!(body, r#""metadata":{"resourceVersion":"42","name":"a"},"x":1}"#);
    }
}

#[test]
fn another_resource_version_replaces_only_the_digits() {
    let item = read(r#"{"apiVersion":"v1","kind":"T","metadata":{"name":"a"}}"#).unwrap();
    let text = item.text_at(Revision::new(12345));
    assert_eq!(text, r#"{"apiVersion":"v1","kind":"T","metadata":{"resourceVersion":"12345","name":"a"}}"#);
}

#[test]
fn metadata_is_indexed_in_every_form() {
    let metadata = r#"{"uid":"u-1","labels":{"b":"2","a":"1","app":"x","a":"3"},"deletionTimestamp":"2026-01-01T00:00:00Z"}"#;
    for stored in [
        format!(r#"{{"apiVersion":"apps/v1","kind":"T","metadata":{metadata}}}"#),
        format!(r#"{{"metadata":{metadata},"kind":"T","apiVersion":"apps/v1"}}"#),
        format!(" {{ \"kind\":\"T\",\n\"metadata\": {metadata},\"apiVersion\":\"apps\\/v1\"}}"),
    ] {
        let item = read(&stored).unwrap();
        assert_eq!((item.namespace(), item.name(), item.uid()), ("ns", "name", "u-1"));
        assert_eq!(item.labels().collect::<Vec<_>>(), [("a", "3"), ("app", "x"), ("b", "2")]);
        assert_eq!((item.label("app"), item.label("ap")), (Some("x"), None));
        assert_eq!(item.storage_version().as_str(), "apps/v1");
        assert!(item.is_deleting());
        assert_eq!((item.revision(), item.created()), (Revision::new(42), Revision::new(3)));
    }
}

#[test]
fn texts_with_escapes_are_indexed_unescaped() {
    let item = read(
        r#"{"apiVersion":"v1","kind":"T","metadata":{"uid":"\u0075","labels":{"k\"":"v\n","k2":"ä\t","z":""}},"type":"a\\b"}"#,
    )
    .unwrap();
    assert_eq!(item.uid(), "u");
    assert_eq!(item.labels().collect::<Vec<_>>(), [("k\"", "v\n"), ("k2", "ä\t"), ("z", "")]);
    assert_eq!(item.label("z"), Some(""));
    assert_eq!(item.field(3), "a\\b");
}

#[test]
fn odd_metadata_hides_nothing() {
    let item =
        read(r#"{"metadata":{"uid":7,"labels":{"a":1,"b":null,"c":"x"},"deletionTimestamp":null}}"#).unwrap();
    assert_eq!((item.uid(), item.is_deleting()), ("", false));
    assert_eq!(item.labels().collect::<Vec<_>>(), [("c", "x")]);
    let item = read(r#"{"metadata":{"labels":["a"],"deletionTimestamp":""}}"#).unwrap();
    assert_eq!((item.labels().len(), item.is_deleting()), (0, false));
    assert_eq!(item.storage_version().as_str(), "");
}

#[test]
fn selectable_fields_are_found_where_they_are() {
    let item = read(
        r#"{"apiVersion":"v1","kind":"T","type":"Opaque","metadata":{"annotations":{"example.com/class":"gold"}},
            "spec":{"replicas":3,"on":true,"a":{"b":{"c":"deep"}}},"status":{"phase":"Running"}}"#,
    )
    .unwrap();
    let fields: Vec<&str> = (0..7).map(|it| item.field(it)).collect();
    assert_eq!(fields, ["Running", "3", "deep", "Opaque", "gold", "true", ""]);
}

#[test]
fn fields_that_are_not_there_are_empty() {
    let item = read(r#"{"spec":{"replicas":null,"on":{},"a":[{"b":1}]},"status":"x","type":[]}"#).unwrap();
    assert!((0..7).all(|it| item.field(it).is_empty()));
}

#[test]
fn keys_say_namespace_and_name() {
    let entry = |key: &str| Entry {
        key: Key::new(key),
        value: Bytes::from_static(b"{}"),
        created: Revision::ZERO,
        modified: Revision::ZERO,
        lease: None,
    };
    let names = |namespaced, key| {
        let spec = CollectionSpec::new("/registry/things/", namespaced);
        let item = ingest(&spec, &Interner::default(), &entry(key)).unwrap();
        (item.namespace().to_owned(), item.name().to_owned())
    };
    let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
    assert_eq!(names(true, "/registry/things/ns/a"), pair("ns", "a"));
    assert_eq!(names(true, "/registry/things/a"), pair("", "a"));
    assert_eq!(names(true, "/registry/things//a"), pair("", "a"));
    assert_eq!(names(true, "/registry/things/ns/a/b"), pair("ns", "a/b"));
    assert_eq!(names(false, "/registry/things/system:a"), pair("", "system:a"));
    assert_eq!(names(false, "/registry/things/"), pair("", ""));
}

#[test]
fn what_is_no_object_is_unreadable_and_its_content_not_shown() {
    let deep = |n: usize| format!(r#"{{"a":{}{}}}"#, "[".repeat(n - 1), "]".repeat(n - 1));
    let cases: [(&[u8], Unreadable); 14] = [
        (b"", Unreadable::NotJson(0)),
        (b"   ", Unreadable::NotJson(0)),
        (b"secret", Unreadable::NotJson(1)),
        (b"\"secret\"", Unreadable::NotObject),
        (b"[]", Unreadable::NotObject),
        (b"12", Unreadable::NotObject),
        (b"{\"a\":1", Unreadable::NotJson(6)),
        (b"{\"a\":1}{}", Unreadable::NotJson(8)),
        (b"{\"a\":01}", Unreadable::NotJson(7)),
        (b"k8s\0\x0a\x0c", Unreadable::Protobuf),
        (b"k8s:enc:aescbc:v1:key:", Unreadable::Encrypted),
        (b"{\"a\":\"\xff\"}", Unreadable::NotText),
        (b"{\"metadata\":[]}", Unreadable::WrongType("metadata")),
        (b"{\"apiVersion\":1,\"metadata\":{}}", Unreadable::WrongType("apiVersion")),
    ];
    for (value, expected) in cases {
        let error = read(value).unwrap_err();
        assert_eq!(error, expected, "{}", String::from_utf8_lossy(value));
        assert!(!error.to_string().contains("secret"));
    }
    assert!(read(deep(128)).is_ok());
    assert_eq!(read(deep(129)).unwrap_err(), Unreadable::TooDeep);
    assert_eq!(read(deep(100_000)).unwrap_err(), Unreadable::TooDeep);
    let brackets_in_a_text = format!(r#"{{"a":"{}"}}"#, "[".repeat(1000));
    assert!(read(brackets_in_a_text).is_ok());
}

#[test]
fn many_and_large_labels_are_fine() {
    let labels: Vec<String> = (0..5000).map(|it| format!("\"key-{it}\":\"{}\"", "v".repeat(100))).collect();
    let item = read(format!(r#"{{"metadata":{{"labels":{{{}}}}}}}"#, labels.join(","))).unwrap();
    assert_eq!(item.labels().len(), 5000);
    assert_eq!(item.label("key-4711"), Some("v".repeat(100).as_str()));
    assert!(item.labels().is_sorted());
}

#[test]
fn storage_versions_are_shared() {
    let interner = Interner::default();
    for number in 0..MAX_INTERNED * 2 {
        interner.intern(&format!("v{number}"));
        interner.intern("v1");
    }
    assert_eq!(interner.0.lock().len(), MAX_INTERNED);
}

fn json() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        any::<String>().prop_map(Into::into),
    ];
    leaf.prop_recursive(4, 64, 8, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Into::into),
            prop::collection::btree_map(name(), inner, 0..6)
                .prop_map(|it| serde_json::Value::Object(it.into_iter().collect())),
        ]
    })
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => prop::sample::select(vec![
            "apiVersion", "kind", "metadata", "resourceVersion", "labels", "uid", "spec", "status", "phase",
        ])
        .prop_map(str::to_owned),
        1 => any::<String>(),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Whatever the object and its layout: served is what was stored, but for the resourceVersion.
    #[test]
    fn any_object_is_served_with_its_resource_version(
        members in prop::collection::btree_map(name(), json(), 0..8),
        is_pretty in any::<bool>(),
    ) {
        let mut object = serde_json::Value::Object(members.into_iter().collect());
        let text = if is_pretty { serde_json::to_string_pretty(&object) } else { serde_json::to_string(&object) };
        let Ok(item) = read(text.unwrap()) else {
            let wrong = |name: &str, is_right: fn(&serde_json::Value) -> bool| {
                object.get(name).is_some_and(|it| !it.is_null() && !is_right(it))
            };
            let is_wrong = wrong("metadata", serde_json::Value::is_object) || wrong("apiVersion", serde_json::Value::is_string);
            prop_assert!(is_wrong);
            return Ok(());
        };
        let uid = object["metadata"]["uid"].as_str().unwrap_or("").to_owned();
        prop_assert_eq!(item.uid(), uid);
        prop_assert_eq!(item.field(0), object["status"]["phase"].as_str().unwrap_or(item.field(0)));
        if object["metadata"].is_null() {
            object["metadata"] = serde_json::json!({});
        }
        object["metadata"]["resourceVersion"] = "42".into();
        let served: serde_json::Value = serde_json::from_slice(item.text()).unwrap();
        prop_assert_eq!(served, object);
        let has_head = item.body().starts_with(br#""metadata":{"resourceVersion":"42""#);
        prop_assert!(has_head);
    }

    #[test]
    fn no_bytes_make_it_panic(value in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = read(value);
    }

    #[test]
    fn no_damage_makes_it_panic(at in 0_usize..120, byte in any::<u8>()) {
        let mut value = br#"{"apiVersion":"v1","kind":"T","metadata":{"name":"a","labels":{"a":"b"},"resourceVersion":"1"},"spec":{"a":[1]}}"#.to_vec();
        let at = at % value.len();
        value[at] = byte;
        let _ = read(value);
    }
}

#[test]
fn a_version_of_another_release_cannot_be_read() {
    let versions = vec!["example.com/v1".to_owned(), "example.com/v1beta1".to_owned()];
    let spec = CollectionSpec { versions, ..spec() };
    let read = |version: &str| {
        let entry = Entry {
            key: Key::new("/registry/things/ns/name"),
            value: Bytes::from(format!(
                "{{\"apiVersion\":\"{version}\",\"kind\":\"Thing\",\"metadata\":{{}}}}"
            )),
            created: Revision::new(3),
            modified: Revision::new(42),
            lease: None,
        };
        ingest(&spec, &Interner::default(), &entry).map(|it| it.storage_version().to_string())
    };
    assert_eq!(read("example.com/v1beta1").as_deref(), Ok("example.com/v1beta1"));
    assert_eq!(
        read("example.com/v2").err(),
        Some(Unreadable::UnknownVersion(StorageVersion::new("example.com/v2")))
    );
}
