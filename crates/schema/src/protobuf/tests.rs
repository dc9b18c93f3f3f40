//! Bytes made by hand, in the form in which Go writes them: every value that is not behind a pointer, zero or not.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::model::{Field, Inlined, ListKind, ListType, MapType, ObjectType, Scalar, Type};

const LIST: &str = "RoomList";

/// Rooms, which have one field of every sort, and lists of them.
fn schema() -> Schema {
    let mut schema = Schema::new();
    let mut fields = Vec::new();
    for (number, name, scalar) in [
        (1, "title", Scalar::String),
        (2, "open", Scalar::Bool),
        (3, "seats", Scalar::Int32),
        (4, "area", Scalar::Int64),
        (5, "height", Scalar::Double),
        (6, "key", Scalar::Bytes),
        (7, "built", Scalar::Time),
        (8, "seen", Scalar::MicroTime),
        (9, "every", Scalar::Duration),
        (10, "power", Scalar::Quantity),
        (11, "door", Scalar::IntOrString),
    ] {
        let ty = schema.add(Type::Scalar(scalar));
        fields.push(Field { number, ..Field::new(name, ty) });
    }
    let text = schema.add(Type::Scalar(Scalar::String));
    let whole = schema.add(Type::Scalar(Scalar::Int64));
    fields.push(Field { number: 12, is_pointer: true, ..Field::new("floor", whole) });
    fields.push(Field { number: 13, is_always: true, ..Field::new("name", text) });
    let map = schema.add(Type::Map(MapType { value: text, is_atomic: false }));
    fields.push(Field { number: 14, ..Field::new("labels", map) });
    let list = |element, is_wrapped| Type::List(ListType { element, kind: ListKind::Atomic, is_wrapped });
    let numbers = schema.add(list(whole, false));
    fields.push(Field { number: 15, ..Field::new("numbers", numbers) });
    let verbs = schema.add(list(text, true));
    fields.push(Field { number: 16, ..Field::new("verbs", verbs) });
    let any = schema.define(&Arc::from("RawExtension"), Type::Any);
    fields.push(Field { number: 17, ..Field::new("extra", any) });
    let room = schema.reserve(&Arc::from("Room"));
    let rooms = schema.add(list(room, false));
    fields.push(Field { number: 18, ..Field::new("rooms", rooms) });
    fields.push(Field { number: 19, ..Field::new("annex", room) });
    // A message whose fields JSON shows as the room's.
    let light = Field { number: 1, ..Field::new("light", text) };
    let lamp = ObjectType::new("Lamp", vec![light.clone()]);
    let lamp = schema.define(&Arc::from("Lamp"), Type::Object(lamp));
    fields.push(Field { within: 20, ..light });
    let mut object = ObjectType::new("Room", fields);
    object.inlined = [Inlined { number: 20, ty: lamp }].into();
    schema.define(&Arc::from("Room"), Type::Object(object));
    let items = Field { number: 2, ..Field::new("items", rooms) };
    let metadata = Field { number: 1, ..Field::new("metadata", room) };
    let object = ObjectType::new(LIST, vec![items, metadata]);
    schema.define(&Arc::from(LIST), Type::Object(object));
    schema
}

fn decode(bytes: &[u8]) -> Result<Value, ProtobufError> {
    let schema = schema();
    decode_object(bytes, &|_, kind| schema.find(kind), &schema)
}

/// A room in its envelope, as Go writes that.
fn enveloped(raw: &[u8]) -> Vec<u8> {
    let length = u8::try_from(raw.len()).unwrap();
    assert!(length < 128);
    let mut bytes = b"k8s\0\x0a\x0a\x0a\x02v1\x12\x04Room\x12".to_vec();
    bytes.push(length);
    bytes.extend_from_slice(raw);
    bytes.extend_from_slice(b"\x1a\x00\x22\x00");
    bytes
}

#[track_caller]
fn check(raw: &[u8], mut expected: Value) {
    expected["apiVersion"] = "v1".into();
    expected["kind"] = "Room".into();
    assert_eq!(decode(&enveloped(raw)).unwrap(), expected);
}

/// Also the other way round, byte for byte.
#[track_caller]
fn check_both(raw: &[u8], mut value: Value) {
    check(raw, value.clone());
    value["apiVersion"] = "v1".into();
    value["kind"] = "Room".into();
    let schema = schema();
    assert_eq!(encode_object(&value, &schema, schema.find("Room").unwrap()), enveloped(raw));
}

#[test]
fn every_sort_of_value_has_its_bytes() {
    check_both(b"", json!({}));
    check_both(b"\x0a\x02hi", json!({"title": "hi"}));
    check_both(b"\x10\x01", json!({"open": true}));
    check_both(b"\x18\x96\x01", json!({"seats": 150}));
    check_both(b"\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", json!({"seats": -1}));
    check_both(b"\x29\x00\x00\x00\x00\x00\x00\xe0\x3f", json!({"height": 0.5}));
    check_both(b"\x29\x00\x00\x00\x00\x00\x00\x08\x40", json!({"height": 3}));
    check_both(b"\x32\x02hi", json!({"key": "aGk="}));
    check_both(b"\x3a\x06\x08\x80\xa3\x05\x10\x00", json!({"built": "1970-01-02T00:00:00Z"}));
    check_both(b"\x42\x06\x08\x01\x10\x80\xfa\x01", json!({"seen": "1970-01-01T00:00:01.000032Z"}));
    check_both(b"\x4a\x06\x08\x80\xbc\xc1\x96\x0b", json!({"every": "3s"}));
    check_both(b"\x52\x06\x0a\x04100m", json!({"power": "100m"}));
    check_both(b"\x5a\x06\x08\x00\x10\x50\x1a\x00", json!({"door": 80}));
    check_both(b"\x5a\x0a\x08\x01\x10\x00\x1a\x04http", json!({"door": "http"}));
    check_both(
        b"\x72\x06\x0a\x01a\x12\x01b\x72\x05\x0a\x01c\x12\x00",
        json!({"labels": {"a": "b", "c": ""}}),
    );
    check_both(b"\x78\x01\x78\x02", json!({"numbers": [1, 2]}));
    check_both(b"\x82\x01\x08\x0a\x03get\x0a\x01x", json!({"verbs": ["get", "x"]}));
    check_both(b"\x8a\x01\x09\x0a\x07{\"a\":1}", json!({"extra": {"a": 1}}));
    check_both(b"\x9a\x01\x00", json!({"annex": {}}));
    check_both(b"\x92\x01\x00\x92\x01\x03\x0a\x01x", json!({"rooms": [{}, {"title": "x"}]}));
    check_both(b"\xa2\x01\x04\x0a\x02on", json!({"light": "on"}));
}

#[test]
fn a_zero_that_is_not_behind_a_pointer_is_no_value() {
    check(b"\x0a\x00\x10\x00\x18\x00\x20\x00\x32\x00\x3a\x00\x42\x00", json!({}));
    check(b"\x5a\x06\x08\x00\x10\x00\x1a\x00", json!({}));
    check(b"\x60\x00", json!({"floor": 0}));
    check(b"\x6a\x00", json!({"name": ""}));
    // Go has "0" here too.
    check(b"\x52\x00", json!({"power": "0"}));
}

#[test]
fn what_other_writers_do_is_read_too() {
    // Numbers in one field, parts of a message in two, a value given twice, an entry without a value.
    check(b"\x7a\x03\x01\x02\x03", json!({"numbers": [1, 2, 3]}));
    check(b"\x7a\x00", json!({}));
    let annex = b"\x9a\x01\x03\x0a\x01x\x9a\x01\x02\x10\x01";
    check(annex, json!({"annex": {"title": "x", "open": true}}));
    check(b"\x0a\x01x\x0a\x01y", json!({"title": "y"}));
    check(b"\x72\x03\x0a\x01a", json!({"labels": {"a": ""}}));
    // Unknown fields of all forms.
    let unknown =
        b"\xf8\x07\x01\xf9\x07\x00\x00\x00\x00\x00\x00\x00\x00\xfa\x07\x01x\xfd\x07\x00\x00\x00\x00";
    check(unknown, json!({}));
    // Parts of a second below the precision of the type.
    check(b"\x3a\x05\x08\x01\x10\xff\x01", json!({"built": "1970-01-01T00:00:01Z"}));
    check(b"\x42\x06\x08\x01\x10\xe8\xfb\x01", json!({"seen": "1970-01-01T00:00:01.000032Z"}));
    let nested = enveloped(b"\x0a\x01x");
    let length = u8::try_from(nested.len()).unwrap();
    let mut raw = vec![0x8a, 0x01, length + 2, 0x0a, length];
    raw.extend_from_slice(&nested);
    check(&raw, json!({"extra": {"apiVersion": "v1", "kind": "Room", "title": "x"}}));
}

#[test]
fn what_is_not_protobuf_is_refused_in_upstreams_words() {
    let refused = |bytes: &[u8]| decode(bytes).unwrap_err().to_string();
    assert_eq!(refused(b""), "empty data");
    assert_eq!(refused(b"k8s\0"), "empty body");
    assert_eq!(
        refused(b"{\"kind\":"),
        "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]"
    );
    assert_eq!(refused(&enveloped(b"\x0a\x05x")), "unexpected EOF");
    assert_eq!(refused(&enveloped(b"\x08\x05")), "proto: wrong wireType = 0 for field Title");
    assert_eq!(refused(&enveloped(b"\x0b\x0c")), "proto: illegal tag 1 (wire type 3)");
    assert_eq!(refused(&enveloped(b"\x00\x00")), "proto: illegal tag 0 (wire type 0)");
    assert_eq!(refused(&enveloped(b"\x0a\x01\xff")), "proto: field title has no valid value");
    assert_eq!(refused(&enveloped(b"\x8a\x01\x03\x0a\x01{")), "proto: field extra has no valid value");
    assert_eq!(refused(&enveloped(&[0xff; 20])), "proto: integer overflow");
    assert_eq!(
        refused(b"k8s\0\x0a\x09\x0a\x02v1\x12\x03Hut\x12\x00"),
        "no kind \"Hut\" is registered for version \"v1\""
    );
}

#[test]
fn depth_and_memory_are_bounded() {
    let mut raw = Vec::new();
    for _ in 0..MAX_DEPTH + 1 {
        let mut outer = vec![0x9a, 0x01];
        let mut length = raw.len();
        while length >= 128 {
            outer.push(u8::try_from(length % 128).unwrap() | 0x80);
            length /= 128;
        }
        outer.push(u8::try_from(length).unwrap());
        outer.extend_from_slice(&raw);
        raw = outer;
    }
    let schema = schema();
    let mut encoder = Encoder::new(&schema);
    encoder.bytes(2, &raw);
    encoder.envelope_head("v1", "Room");
    let bytes = encoder.finish();
    assert_eq!(decode(&bytes), Err(ProtobufError::TooDeep));
    // Four bytes each become an object with a field in it.
    let rooms = b"\x92\x01\x02\x60\x00".repeat(500_000);
    let mut encoder = Encoder::new(&schema);
    encoder.bytes(2, &rooms);
    encoder.envelope_head("v1", "Room");
    assert!(matches!(decode(&encoder.finish()), Err(ProtobufError::TooLarge(_))));
    assert!(matches!(decode(&vec![0; 4 << 20]), Err(ProtobufError::TooLarge(_))));
}

#[test]
fn lists_are_the_same_item_by_item() {
    let schema = schema();
    let list = schema.find(LIST).unwrap();
    let items = [json!({"title": "a", "floor": 0}), json!({"rooms": [{"light": "on"}]})];
    let mut whole = json!({"apiVersion": "v1", "kind": LIST, "metadata": {"title": "7"}});
    let mut pieces = ListEncoder::new(&schema, list).unwrap();
    items.iter().for_each(|it| pieces.push(it));
    let pieces = pieces.finish(&whole).concat();
    whole["items"] = items.into_iter().collect();
    assert_eq!(pieces, encode_object(&whole, &schema, list));
    assert_eq!(decode(&pieces).unwrap(), whole);
    assert!(ListEncoder::new(&schema, schema.find("Room").unwrap()).is_none());
}

#[test]
fn frames_of_a_watch_have_a_length() {
    let object = enveloped(b"\x0a\x01x");
    let frame = encode_watch_frame("ADDED", &object);
    let length = u8::try_from(frame.len() - 4).unwrap();
    let inner = u8::try_from(object.len()).unwrap();
    assert_eq!(frame[..11], [0, 0, 0, length, 0x0a, 5, b'A', b'D', b'D', b'E', b'D']);
    assert_eq!(frame[11..15], [0x12, inner + 2, 0x0a, inner]);
    let decoded = decode_watch_frame(&frame).unwrap().unwrap();
    assert_eq!(decoded, WatchFrame { event: "ADDED".to_owned(), object: &object, length: frame.len() });
    assert_eq!(decode_watch_frame(&frame[..frame.len() - 1]), Ok(None));
    assert!(decode_watch_frame(&[0xff; 8]).is_err());
}

#[test]
fn values_of_another_type_are_left_out() {
    let schema = schema();
    let room = schema.find("Room").unwrap();
    let odd = json!({
        "title": 1, "open": "x", "seats": "x", "height": "x", "key": "%", "built": "now", "seen": 1, "every": "x",
        "door": true, "labels": [], "numbers": {}, "verbs": 1, "rooms": [1], "annex": "x", "unknown": {}, "floor": null,
    });
    let encoded = encode_object(&odd, &schema, room);
    assert_eq!(open(&encoded).unwrap().raw, b"");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_read_or_refused(raw in proptest::collection::vec(any::<u8>(), 0..100)) {
        let _ = decode(&enveloped(&raw));
        let _ = decode(&raw);
        let _ = decode_watch_frame(&raw);
    }

    #[test]
    fn what_was_read_is_written_and_read_again(
        fields in proptest::collection::vec((1u32..22, any::<u64>(), proptest::collection::vec(any::<u8>(), 0..9)), 0..9)
    ) {
        let schema = schema();
        let mut encoder = Encoder::new(&schema);
        for (number, varint, bytes) in &fields {
            match number {
                2 | 3 | 4 | 12 => encoder.varint(*number, *varint),
                5 => encoder.fixed64(5, varint.to_le_bytes()),
                _ => encoder.bytes(*number, bytes),
            }
        }
        let raw = encoder.finish();
        if raw.len() < 128 && let Ok(value) = decode(&enveloped(&raw)) {
            let again = encode_object(&value, &schema, schema.find("Room").unwrap());
            prop_assert_eq!(decode(&again).unwrap(), value);
        }
    }
}
