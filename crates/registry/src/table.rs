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

use crate::{Kind, ListPage, Target, serve};

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
    assemble(kind, &metadata, &[object], include, now, api_version)
}

/// A table of a page of a list.
pub fn of_page(
    target: &Target,
    page: &ListPage,
    include: IncludeObject,
    now: Timestamp,
    api_version: &str,
) -> Value {
    let objects: Vec<Value> = page.items.iter().map(|it| serve::tree(target, it)).collect();
    let objects: Vec<&Value> = objects.iter().collect();
    assemble(&target.kind, &list_metadata(page), &objects, include, now, api_version)
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

fn assemble(
    kind: &Kind,
    metadata: &Value,
    objects: &[&Value],
    include: IncludeObject,
    now: Timestamp,
    api_version: &str,
) -> Value {
    let columns = columns(&kind.definition.group, &kind.definition.resource);
    let row = |it: &&Value| row(kind, columns, it, (include, api_version), now);
    let rows: Vec<Value> = objects.iter().map(row).collect();
    let definitions: Vec<Value> = columns.iter().map(Column::definition).collect();
    json!({
        "kind": "Table",
        "apiVersion": api_version,
        "metadata": metadata,
        "columnDefinitions": definitions,
        "rows": rows,
    })
}

fn row(
    kind: &Kind,
    columns: &[Column],
    object: &Value,
    (include, api_version): (IncludeObject, &str),
    now: Timestamp,
) -> Value {
    // Columns are written for one version of a kind.
    let converted = kind.converter().to_hub(object);
    let read = converted.as_ref().unwrap_or(object);
    let cells: Vec<Value> = columns.iter().map(|it| (it.cell)(read, now)).collect();
    let shown = match include {
        IncludeObject::None => Value::Null,
        IncludeObject::Metadata => partial(object, api_version),
        IncludeObject::Object => object.clone(),
    };
    json!({"cells": cells, "object": shown})
}
