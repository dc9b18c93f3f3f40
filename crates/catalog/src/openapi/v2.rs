//! OpenAPI v2: one document for everything that is served, made of the documents of v3.
//!
//! kubectl still reads it, for files that hold a `List`. What v2 cannot say is left out, in the way upstream does it:
//! a value of several types becomes a text, and what may be null or hold unknown fields is not described further.
//! Deliberately not here: its protobuf form, see [`super::gnostic`].

use serde_json::{Map, Value, json};

use super::COMPONENTS;

const DEFINITIONS: &str = "#/definitions/";

const KINDS: &str = "x-kubernetes-group-version-kind";

/// Schemas inside each other; what lies deeper is not described.
const MAX_DEPTH: usize = 64;

/// All that these documents of v3 say, as one of v2.
pub fn document(documents: impl IntoIterator<Item = Value>) -> Value {
    let (mut info, mut paths, mut definitions) = (Value::Null, Map::new(), Map::new());
    for document in documents {
        for (name, schema) in entries(&document["components"]["schemas"]) {
            let known = definitions.entry(name.clone()).or_insert_with(|| convert(schema, MAX_DEPTH));
            // A type is a kind only in the document that serves it.
            if let Some(kinds) = schema.get(KINDS).filter(|_| known.get(KINDS).is_none()) {
                known[KINDS] = kinds.clone();
            }
        }
        for (path, item) in entries(&document["paths"]) {
            paths.insert(path.clone(), path_item(item));
        }
        info = document["info"].clone();
    }
    json!({
        "swagger": "2.0",
        "info": info,
        "paths": paths,
        "definitions": definitions,
        "securityDefinitions": {
            "BearerToken": {
                "type": "apiKey",
                "name": "authorization",
                "in": "header",
                "description": "Bearer Token authentication",
            },
        },
        "security": [{"BearerToken": []}],
    })
}

fn entries(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

fn path_item(item: &Value) -> Value {
    let mut converted = Map::new();
    for (name, value) in entries(item) {
        let value = match name.as_str() {
            "parameters" => parameters(value),
            _ => operation(value),
        };
        converted.insert(name.clone(), value);
    }
    Value::Object(converted)
}

fn operation(operation: &Value) -> Value {
    let mut converted = Map::new();
    for (name, value) in entries(operation).filter(|(name, _)| name.starts_with("x-")) {
        converted.insert(name.clone(), value.clone());
    }
    let mut sent = parameters(&operation["parameters"]);
    let body = &operation["requestBody"];
    if let Some((_, content)) = entries(&body["content"]).next() {
        let media: Vec<&String> = entries(&body["content"]).map(|(media, _)| media).collect();
        converted.insert("consumes".to_owned(), json!(media));
        let body = json!({
            "name": "body", "in": "body", "required": true, "schema": convert(&content["schema"], MAX_DEPTH),
        });
        if let Value::Array(sent) = &mut sent {
            sent.push(body);
        }
    }
    converted.insert("parameters".to_owned(), sent);
    let mut responses = Map::new();
    for (code, response) in entries(&operation["responses"]) {
        let mut answered = json!({"description": response["description"]});
        if let Some((media, content)) = entries(&response["content"]).next() {
            converted.insert("produces".to_owned(), json!([media]));
            answered["schema"] = convert(&content["schema"], MAX_DEPTH);
        }
        responses.insert(code.clone(), answered);
    }
    converted.insert("responses".to_owned(), Value::Object(responses));
    Value::Object(converted)
}

/// The type of a parameter stands beside its name.
fn parameters(parameters: &Value) -> Value {
    let flat = |it: &Value| {
        let mut converted = it.as_object().cloned().unwrap_or_default();
        if let Some(Value::Object(schema)) = converted.remove("schema") {
            converted.extend(schema);
        }
        Value::Object(converted)
    };
    parameters.as_array().into_iter().flatten().map(flat).collect()
}

/// A schema of v3 as v2 can say it.
fn convert(schema: &Value, depth: usize) -> Value {
    let Some(schema) = schema.as_object().filter(|_| depth > 0) else { return json!({}) };
    let is_set = |name: &str| schema.get(name) == Some(&Value::Bool(true));
    let is_open = is_set("nullable") || is_set("x-kubernetes-preserve-unknown-fields");
    let mut converted = Map::new();
    for (name, value) in schema {
        let value = match (name.as_str(), value) {
            ("$ref", Value::String(target)) => json!(target.replacen(COMPONENTS, DEFINITIONS, 1)),
            // A reference with something beside it.
            ("allOf", Value::Array(parts)) => {
                if let Some(reference) = parts.first().and_then(|it| it.get("$ref")) {
                    let target = reference.as_str().unwrap_or_default();
                    converted.insert("$ref".to_owned(), json!(target.replacen(COMPONENTS, DEFINITIONS, 1)));
                }
                continue;
            }
            ("oneOf", _) if !schema.contains_key("type") => {
                converted.insert("type".to_owned(), json!("string"));
                continue;
            }
            ("allOf" | "oneOf" | "anyOf" | "not" | "nullable" | "default", _) => continue,
            ("items" | "properties", _) if is_open => continue,
            ("items" | "additionalProperties", Value::Object(_)) => convert(value, depth - 1),
            ("properties", Value::Object(fields)) => {
                fields.iter().map(|(name, it)| (name.clone(), convert(it, depth - 1))).collect()
            }
            ("required", Value::Array(fields)) => {
                let can_be_null = |it: &&Value| {
                    let field = schema.get("properties").and_then(|all| all.get(it.as_str()?));
                    field.is_some_and(|it| it["nullable"] == true)
                };
                fields.iter().filter(|it| !can_be_null(it)).cloned().collect()
            }
            _ => value.clone(),
        };
        converted.insert(name.clone(), value);
    }
    // kubectl reads no list without a type of its elements, and no open object with one.
    let ty = converted.get("type").and_then(Value::as_str);
    let is_unsaid = match ty {
        Some("array") => !converted.contains_key("items"),
        Some("object") => is_open,
        _ => is_set("nullable"),
    };
    if is_unsaid {
        converted.remove("type");
    }
    Value::Object(converted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_v2_cannot_say_is_left_out() {
        let v3 = json!({"type": "object", "required": ["a", "n"], "properties": {
            "a": {"allOf": [{"$ref": "#/components/schemas/A"}], "default": {}, "x-kubernetes-patch-strategy": "merge"},
            "n": {"type": "string", "nullable": true},
            "q": {"oneOf": [{"type": "string"}, {"type": "number"}]},
            "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"x": {}}},
            "list": {"type": "array", "x-kubernetes-preserve-unknown-fields": true, "items": {}},
            "map": {"type": "object", "additionalProperties": {"$ref": "#/components/schemas/A"}},
        }});
        let v2 = json!({"type": "object", "required": ["a"], "properties": {
            "a": {"$ref": "#/definitions/A", "x-kubernetes-patch-strategy": "merge"},
            "n": {},
            "q": {"type": "string"},
            "open": {"x-kubernetes-preserve-unknown-fields": true},
            "list": {"x-kubernetes-preserve-unknown-fields": true},
            "map": {"type": "object", "additionalProperties": {"$ref": "#/definitions/A"}},
        }});
        assert_eq!(convert(&v3, MAX_DEPTH), v2);
    }

    #[test]
    fn a_kind_is_one_wherever_it_was_first_mentioned() {
        let one = |schema: Value| json!({"components": {"schemas": {"A": schema}}});
        let kinds = json!([{"group": "g", "kind": "A", "version": "v1"}]);
        let whole = document([one(json!({"type": "object"})), one(json!({"type": "object", KINDS: kinds}))]);
        assert_eq!(whole["definitions"]["A"], json!({"type": "object", KINDS: kinds}));
    }

    #[test]
    fn operations_say_what_they_take_and_give() {
        let name = json!({"name": "name", "in": "path", "required": true, "schema": {"type": "string"}});
        let put = json!({
            "parameters": [{"name": "dryRun", "in": "query", "schema": {"type": "string", "uniqueItems": true}}],
            "requestBody": {"content": {"*/*": {"schema": {"$ref": "#/components/schemas/A"}}}, "required": true},
            "responses": {"200": {"description": "OK", "content": {"application/json": {"schema": {"type": "object"}}}}},
            "x-kubernetes-action": "put",
        });
        let document = document([json!({
            "info": {"title": "T"}, "paths": {"/a/{name}": {"put": put, "parameters": [name]}},
        })]);
        let expected = json!({
            "parameters": [{"name": "name", "in": "path", "required": true, "type": "string"}],
            "put": {
                "consumes": ["*/*"],
                "produces": ["application/json"],
                "parameters": [
                    {"name": "dryRun", "in": "query", "type": "string", "uniqueItems": true},
                    {"name": "body", "in": "body", "required": true, "schema": {"$ref": "#/definitions/A"}},
                ],
                "responses": {"200": {"description": "OK", "schema": {"type": "object"}}},
                "x-kubernetes-action": "put",
            },
        });
        assert_eq!(document["paths"]["/a/{name}"], expected);
        assert_eq!(document["info"]["title"], "T");
    }
}
