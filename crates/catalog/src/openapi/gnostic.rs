//! A document of OpenAPI v2 in the protobuf form that kubectl asks for.
//!
//! Only what this server's documents contain is written. Maps become lists of pairs, so that their order is kept;
//! extensions and other free values become texts that are read as YAML.
//! Deliberately not here: reading it.

use serde_json::{Map, Value};

/// The document as bytes.
pub fn encode(document: &Value) -> Vec<u8> {
    let info = &document["info"];
    let mut message = Message::default();
    message.text(1, &document["swagger"]);
    message.message(2, &{
        let mut message = Message::default();
        message.text(1, &info["title"]);
        message.text(2, &info["version"]);
        message
    });
    message.message(8, &named(2, &document["paths"], path_item));
    message.message(9, &named(1, &document["definitions"], schema));
    message.each(12, &document["security"], |it| named(1, it, |scopes| texts(1, scopes)));
    message.message(
        13,
        &named(1, &document["securityDefinitions"], |it| {
            let mut key = Message::default();
            for (number, field) in (1..).zip(["type", "name", "in", "description"]) {
                key.text(number, &it[field]);
            }
            wrapped(2, &key)
        }),
    );
    message.0
}

/// Bytes of a message in the making.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        loop {
            let [low, ..] = value.to_le_bytes();
            value >>= 7;
            if value == 0 {
                return self.0.push(low & 0x7f);
            }
            self.0.push(low | 0x80);
        }
    }

    fn tag(&mut self, number: u64, wire: u64) {
        self.varint(number << 3 | wire);
    }

    fn bytes(&mut self, number: u64, bytes: &[u8]) {
        self.tag(number, 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn text(&mut self, number: u64, value: &Value) {
        if let Some(text) = value.as_str().filter(|it| !it.is_empty()) {
            self.bytes(number, text.as_bytes());
        }
    }

    fn flag(&mut self, number: u64, value: &Value) {
        if value == &Value::Bool(true) {
            self.tag(number, 0);
            self.varint(1);
        }
    }

    fn count(&mut self, number: u64, value: &Value) {
        if let Some(count) = value.as_u64().filter(|it| *it > 0) {
            self.tag(number, 0);
            self.varint(count);
        }
    }

    fn double(&mut self, number: u64, value: &Value) {
        if let Some(double) = value.as_f64() {
            self.tag(number, 1);
            self.0.extend_from_slice(&double.to_le_bytes());
        }
    }

    fn message(&mut self, number: u64, message: &Self) {
        self.bytes(number, &message.0);
    }

    fn each(&mut self, number: u64, values: &Value, make: impl Fn(&Value) -> Self) {
        for value in values.as_array().into_iter().flatten() {
            self.message(number, &make(value));
        }
    }

    fn texts(&mut self, number: u64, values: &Value) {
        for value in values.as_array().into_iter().flatten().filter_map(Value::as_str) {
            self.bytes(number, value.as_bytes());
        }
    }

    fn extensions(&mut self, number: u64, of: &Value) {
        for (name, value) in of.as_object().into_iter().flatten().filter(|(name, _)| name.starts_with("x-")) {
            self.message(number, &pair(name, &any(value)));
        }
    }
}

fn texts(number: u64, values: &Value) -> Message {
    let mut message = Message::default();
    message.texts(number, values);
    message
}

fn wrapped(number: u64, inner: &Message) -> Message {
    let mut message = Message::default();
    message.message(number, inner);
    message
}

fn pair(name: &str, value: &Message) -> Message {
    let mut message = Message::default();
    message.bytes(1, name.as_bytes());
    message.message(2, value);
    message
}

/// A free value, as a text of YAML. JSON is one.
fn any(value: &Value) -> Message {
    let mut message = Message::default();
    message.bytes(2, value.to_string().as_bytes());
    message
}

/// A map, as pairs in a message of their own.
fn named(number: u64, map: &Value, make: impl Fn(&Value) -> Message) -> Message {
    let mut message = Message::default();
    for (name, value) in map.as_object().into_iter().flat_map(Map::iter) {
        message.message(number, &pair(name, &make(value)));
    }
    message
}

fn schema(schema: &Value) -> Message {
    let mut message = Message::default();
    message.text(1, &schema["$ref"]);
    for (number, field) in [(2, "format"), (3, "title"), (4, "description"), (13, "pattern")] {
        message.text(number, &schema[field]);
    }
    for (number, field) in [(6, "multipleOf"), (7, "maximum"), (9, "minimum")] {
        message.double(number, &schema[field]);
    }
    for (number, field) in [(8, "exclusiveMaximum"), (10, "exclusiveMinimum"), (16, "uniqueItems")] {
        message.flag(number, &schema[field]);
    }
    for (number, field) in [
        (11, "maxLength"),
        (12, "minLength"),
        (14, "maxItems"),
        (15, "minItems"),
        (17, "maxProperties"),
        (18, "minProperties"),
    ] {
        message.count(number, &schema[field]);
    }
    message.texts(19, &schema["required"]);
    message.each(20, &schema["enum"], any);
    match &schema["additionalProperties"] {
        Value::Bool(is_allowed) => {
            let mut flag = Message::default();
            flag.flag(2, &Value::Bool(*is_allowed));
            message.message(21, &flag);
        }
        value @ Value::Object(_) => message.message(21, &wrapped(1, &self::schema(value))),
        _ => {}
    }
    if schema["type"].is_string() {
        let mut ty = Message::default();
        ty.text(1, &schema["type"]);
        message.message(22, &ty);
    }
    if schema["items"].is_object() {
        message.message(23, &wrapped(1, &self::schema(&schema["items"])));
    }
    if schema["properties"].is_object() {
        message.message(25, &named(1, &schema["properties"], self::schema));
    }
    message.extensions(31, schema);
    message
}

fn path_item(item: &Value) -> Message {
    let mut message = Message::default();
    for (number, method) in [(2, "get"), (3, "put"), (4, "post"), (5, "delete"), (8, "patch")] {
        if item[method].is_object() {
            message.message(number, &operation(&item[method]));
        }
    }
    message.each(9, &item["parameters"], parameter);
    message
}

fn operation(operation: &Value) -> Message {
    let mut message = Message::default();
    message.texts(6, &operation["produces"]);
    message.texts(7, &operation["consumes"]);
    message.each(8, &operation["parameters"], parameter);
    message.message(
        9,
        &named(1, &operation["responses"], |it| {
            let mut response = Message::default();
            response.text(1, &it["description"]);
            if it["schema"].is_object() {
                response.message(2, &wrapped(1, &schema(&it["schema"])));
            }
            wrapped(1, &response)
        }),
    );
    message.extensions(13, operation);
    message
}

fn parameter(parameter: &Value) -> Message {
    let mut message = Message::default();
    if parameter["in"] == "body" {
        message.text(2, &parameter["name"]);
        message.text(3, &parameter["in"]);
        message.flag(4, &parameter["required"]);
        message.message(5, &schema(&parameter["schema"]));
        return wrapped(1, &wrapped(1, &message));
    }
    message.flag(1, &parameter["required"]);
    message.text(2, &parameter["in"]);
    message.text(4, &parameter["name"]);
    let is_path = parameter["in"] == "path";
    let (kind, ty, unique) = if is_path { (4, 5, 19) } else { (3, 6, 20) };
    message.text(ty, &parameter["type"]);
    message.flag(unique, &parameter["uniqueItems"]);
    wrapped(1, &wrapped(2, &wrapped(kind, &message)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_definition_has_the_bytes_that_the_format_asks_for() {
        let document = json!({"swagger": "2.0", "definitions": {"A": {
            "type": "object", "required": ["x"], "properties": {"x": {"type": "array", "items": {"$ref": "#/definitions/B"}}},
            "x-k": true,
        }}});
        let items = b"\xba\x01\x13\x0a\x11\x0a\x0f#/definitions/B";
        let mut list = b"\xb2\x01\x07\x0a\x05array".to_vec();
        list.extend_from_slice(items);
        let mut property = b"\x0a\x01x\x12".to_vec();
        property.push(u8::try_from(list.len()).unwrap());
        property.extend_from_slice(&list);
        let mut schema = b"\x9a\x01\x01x\xb2\x01\x08\x0a\x06object\xca\x01".to_vec();
        schema.push(u8::try_from(property.len() + 2).unwrap());
        schema.push(0x0a);
        schema.push(u8::try_from(property.len()).unwrap());
        schema.extend_from_slice(&property);
        schema.extend_from_slice(b"\xfa\x01\x0d\x0a\x03x-k\x12\x06\x12\x04true");
        let bytes = encode(&document);
        assert!(bytes.starts_with(b"\x0a\x032.0"));
        assert!(bytes.windows(schema.len()).any(|it| it == schema), "{bytes:x?}");
    }

    #[test]
    fn long_lengths_take_several_bytes() {
        let mut message = Message::default();
        message.varint(300);
        message.varint(127);
        assert_eq!(message.0, [0xac, 0x02, 0x7f]);
    }
}
