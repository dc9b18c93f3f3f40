//! Server-side printing: objects as rows of a `Table`, and as bare metadata.
//!
//! Responsible for the shapes; which columns a kind has is in `columns`. Works on parsed objects: who asks for a table
//! reads it with their eyes, so speed is not what matters here.
//! Deliberately not here: which shape a client asked for.

mod columns;

use jiff::Timestamp;
use meta::{Value, object};
use serde_json::json;

pub use columns::{Column, columns};
pub(crate) use columns::{age, created_column, name_column};

use crate::{Kind, ListPage, Target, custom::columns::CustomColumns, serve};

/// What a row carries beside its cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IncludeObject {
    /// Nothing.
    None,
    /// The metadata.
    Metadata,
    /// The whole object.
    Object,
}

impl IncludeObject {
    /// Reads the query parameter; empty is the default.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "" | "Metadata" => Some(Self::Metadata),
            "None" => Some(Self::None),
            "Object" => Some(Self::Object),
            _ => None,
        }
    }
}

/// A table of one object.
pub fn of_object(
    kind: &Kind,
    object: &Value,
    include: IncludeObject,
    now: Timestamp,
    api_version: &str,
) -> Value {
    let metadata = json!({"resourceVersion": object::resource_version(object)});
    let version = version_of(object::api_version(object));
    assemble(kind, version, &metadata, &[object], include, now, api_version)
}

/// A table of a page of a list.
pub fn of_page(
    target: &Target,
    page: &ListPage,
    include: IncludeObject,
    now: Timestamp,
    api_version: &str,
) -> Value {
    let mut objects: Vec<Value> = page.items.iter().map(|it| serve::tree(target, it)).collect();
    if &*target.kind.definition.resource == "flowschemas" {
        // In the order in which requests are matched.
        let rank = |it: &Value| it["spec"]["matchingPrecedence"].as_i64().unwrap_or_default();
        objects.sort_by(|a, b| rank(a).cmp(&rank(b)).then_with(|| object::name(a).cmp(object::name(b))));
    }
    let objects: Vec<&Value> = objects.iter().collect();
    let version = target.group_version.version.as_str();
    assemble(&target.kind, version, &list_metadata(page), &objects, include, now, api_version)
}

/// The rows of a watch event; only the first event of a watch tells the columns.
pub fn of_event(
    kind: &Kind,
    object: &Value,
    include: IncludeObject,
    now: Timestamp,
    api_version: &str,
    is_first: bool,
) -> Value {
    let mut table = of_object(kind, object, include, now, api_version);
    if !is_first {
        table["columnDefinitions"] = Value::Null;
    }
    table
}

/// The metadata of an object, and nothing else of it.
pub fn partial(object: &Value, api_version: &str) -> Value {
    json!({
        "kind": "PartialObjectMetadata",
        "apiVersion": api_version,
        "metadata": object.get("metadata").cloned().unwrap_or_else(|| json!({})),
    })
}

/// The metadata of the objects of a page.
pub fn partial_page(target: &Target, page: &ListPage, api_version: &str) -> Value {
    let items = page.items.iter().map(|it| partial(&serve::tree(target, it), api_version));
    let items: Vec<Value> = items.collect();
    json!({
        "kind": "PartialObjectMetadataList",
        "apiVersion": api_version,
        "metadata": list_metadata(page),
        "items": items,
    })
}

fn list_metadata(page: &ListPage) -> Value {
    let mut metadata = json!({"resourceVersion": page.revision.to_string()});
    if !page.continue_token.is_empty() {
        metadata["continue"] = json!(page.continue_token);
    }
    if let Some(remaining) = page.remaining {
        metadata["remainingItemCount"] = json!(remaining);
    }
    metadata
}

/// `v1` of `apps/v1`.
fn version_of(api_version: &str) -> &str {
    api_version.rsplit('/').next().unwrap_or_default()
}

fn assemble(
    kind: &Kind,
    version: &str,
    metadata: &Value,
    objects: &[&Value],
    include: IncludeObject,
    now: Timestamp,
    api_version: &str,
) -> Value {
    let (definitions, cells): (Vec<Value>, Vec<Vec<Value>>) = match kind.custom.as_deref() {
        Some(custom) => {
            let columns = CustomColumns::of(custom, version);
            (columns.definitions(), objects.iter().map(|it| columns.cells(it, now)).collect())
        }
        None => {
            let columns = columns(&kind.definition.group, &kind.definition.resource);
            let cells = |it: &&Value| {
                // Columns are written for one version of a kind.
                let converted = kind.converter().to_hub(it);
                let read = converted.as_ref().unwrap_or(it);
                columns.iter().map(|column| (column.cell)(read, now)).collect()
            };
            (columns.iter().map(Column::definition).collect(), objects.iter().map(cells).collect())
        }
    };
    let is_pod = kind.definition.group.is_empty() && &*kind.definition.resource == "pods";
    let rows: Vec<Value> = objects
        .iter()
        .zip(cells)
        .map(|(it, cells)| {
            let mut row = row(&cells, it, include, api_version);
            if let Some(condition) = completion(it).filter(|_| is_pod) {
                row["conditions"] = json!([condition]);
            }
            row
        })
        .collect();
    json!({
        "kind": "Table",
        "apiVersion": api_version,
        "metadata": metadata,
        "columnDefinitions": definitions,
        "rows": rows,
    })
}

fn row(cells: &[Value], object: &Value, include: IncludeObject, api_version: &str) -> Value {
    let shown = match include {
        IncludeObject::None => Value::Null,
        IncludeObject::Metadata => partial(object, api_version),
        IncludeObject::Object => object.clone(),
    };
    json!({"cells": cells, "object": shown})
}

/// The condition of the row of a Pod that has ended; kubectl can hide such rows.
fn completion(pod: &Value) -> Option<Value> {
    let (reason, message) = match pod["status"]["phase"].as_str()? {
        "Succeeded" => ("Succeeded", "The pod has completed successfully."),
        "Failed" => ("Failed", "The pod failed."),
        _ => return None,
    };
    Some(json!({"type": "Completed", "status": "True", "reason": reason, "message": message}))
}

/// A table of one scale.
pub fn of_scale(scale: &Value, include: IncludeObject, now: Timestamp, api_version: &str) -> Value {
    let columns = columns::SCALES;
    let cells: Vec<Value> = columns.iter().map(|it| (it.cell)(scale, now)).collect();
    json!({
        "kind": "Table",
        "apiVersion": api_version,
        "metadata": {"resourceVersion": object::resource_version(scale)},
        "columnDefinitions": columns.iter().map(Column::definition).collect::<Vec<_>>(),
        "rows": [row(&cells, scale, include, api_version)],
    })
}
