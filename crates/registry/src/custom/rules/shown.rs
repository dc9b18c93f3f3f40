//! Versions of a definition as upstream's messages show them: its internal structure, written as JSON.

use meta::{Map, Value};
use serde_json::json;

use super::{common, versions as all};

/// The whole list. What all versions have in common is not part of it any more.
pub(super) fn versions(crd: &Value) -> String {
    let shown: Vec<String> = all(crd).iter().map(|it| version(crd, it)).collect();
    format!("[{}]", shown.join(","))
}

fn version(crd: &Value, version: &Value) -> String {
    let own = |field: &str| version.get(field).filter(|it| common(crd, field).is_none() && !it.is_null());
    let flag = |field: &str| version.get(field) == Some(&Value::Bool(true));
    let or_null = |value: Option<Value>| value.unwrap_or_default().to_string();
    let name = version.get("name").cloned().unwrap_or_else(|| json!(""));
    let warning = version.get("deprecationWarning").cloned();
    let schema = own("schema").map(|it| match it.get("openAPIV3Schema") {
        Some(schema) => format!("{{\"OpenAPIV3Schema\":{}}}", capitalized(schema)),
        None => "{\"OpenAPIV3Schema\":null}".to_owned(),
    });
    format!(
        "{{\"Name\":{name},\"Served\":{},\"Storage\":{},\"Deprecated\":{},\"DeprecationWarning\":{},\"Schema\":{},\
         \"Subresources\":{},\"AdditionalPrinterColumns\":{},\"SelectableFields\":{}}}",
        flag("served"),
        flag("storage"),
        flag("deprecated"),
        or_null(warning),
        schema.unwrap_or_else(|| "null".to_owned()),
        own("subresources").map_or_else(|| "null".to_owned(), |it| subresources(it).to_string()),
        own("additionalPrinterColumns").map_or_else(|| "null".to_owned(), |it| capitalized(it).to_string()),
        own("selectableFields").map_or_else(|| "null".to_owned(), |it| capitalized(it).to_string()),
    )
}

fn subresources(value: &Value) -> Value {
    let status = value.get("status").filter(|it| !it.is_null()).map(|_| json!({}));
    let scale = value.get("scale").filter(|it| !it.is_null()).map(capitalized);
    json!({"Status": status, "Scale": scale})
}

/// Names as Go's structures have them. Fields that are not set are left out, which upstream does not do; nobody reads
/// that far.
fn capitalized(value: &Value) -> Value {
    match value {
        Value::Object(map) => Value::Object(
            map.iter()
                .map(|(name, value)| {
                    let is_map = matches!(name.as_str(), "properties");
                    let inner = match value {
                        Value::Object(inner) if is_map => Value::Object(
                            inner.iter().map(|(key, it)| (key.clone(), capitalized(it))).collect::<Map>(),
                        ),
                        other => capitalized(other),
                    };
                    (go_name(name), inner)
                })
                .collect(),
        ),
        Value::Array(items) => Value::Array(items.iter().map(capitalized).collect()),
        other => other.clone(),
    }
}

fn go_name(name: &str) -> String {
    if let Some(extension) = name.strip_prefix("x-kubernetes-") {
        return extension.split('-').fold("X".to_owned(), |out, part| out + &go_name(part));
    }
    let mut letters = name.chars();
    match letters.next() {
        Some(first) => first.to_uppercase().collect::<String>() + letters.as_str(),
        None => String::new(),
    }
}
