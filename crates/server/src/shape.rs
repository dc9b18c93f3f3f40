//! Objects in another shape: a `Table` for people, bare metadata for controllers. Asked for with `as=` in `Accept`.
//!
//! What the shapes contain is in `registry::table`; here is only who gets which.

use bytes::Bytes;
use meta::{Status, Value};
use registry::table::{self, IncludeObject};
use store::SharedClock;

use crate::{api::Call, chain::Envelope};

/// What a client wants instead of plain objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A `Table` of this version of `meta.k8s.io`.
    Table(&'static str),
    /// `PartialObjectMetadata` of this version, or its list.
    Metadata {
        /// The version of `meta.k8s.io`.
        api_version: &'static str,
        /// The list is asked for.
        is_list: bool,
    },
}

/// The shape that `Accept` puts first, if that is not the plain object.
pub fn wanted(exchange: &Envelope) -> Option<Shape> {
    for entry in exchange.header("accept").split(',') {
        let mut parts = entry.split(';').map(str::trim);
        let media = parts.next().unwrap_or_default();
        let (mut shape, mut group, mut version) = ("", "", "");
        for part in parts {
            match part.split_once('=') {
                Some(("as", value)) => shape = value,
                Some(("g", value)) => group = value,
                Some(("v", value)) => version = value,
                _ => {}
            }
        }
        match (media, shape) {
            // Plain, or in a form that is decided on elsewhere.
            (_, "") => return None,
            ("application/json" | "*/*" | "application/*", _) if group == "meta.k8s.io" => {
                let api_version = match version {
                    "v1beta1" => "meta.k8s.io/v1beta1",
                    "v1" => "meta.k8s.io/v1",
                    _ => continue,
                };
                match shape {
                    "Table" => return Some(Shape::Table(api_version)),
                    "PartialObjectMetadata" => return Some(Shape::Metadata { api_version, is_list: false }),
                    "PartialObjectMetadataList" => {
                        return Some(Shape::Metadata { api_version, is_list: true });
                    }
                    _ => {}
                }
            }
            _ => {}
        }
    }
    None
}

/// One object in the shape.
pub(crate) fn object(call: &Call<'_>, shape: Shape, text: &[u8]) -> Result<Bytes, Status> {
    let tree: Value = serde_json::from_slice(text).map_err(Status::internal)?;
    let shaped = match shape {
        Shape::Metadata { is_list: true, .. } => return Err(unfit(call, "List", "not a list", "")),
        Shape::Metadata { api_version, .. } => table::partial(&tree, api_version),
        Shape::Table(version) => table::of_object(
            &call.target.kind,
            &tree,
            include(call.exchange)?,
            call.registry.clock().now(),
            version,
        ),
    };
    Ok(Bytes::from(shaped.to_string()))
}

/// A scale in the shape.
pub(crate) fn scale(call: &Call<'_>, shape: Shape, text: &[u8]) -> Result<Bytes, Status> {
    let tree: Value = serde_json::from_slice(text).map_err(Status::internal)?;
    let shaped = match shape {
        Shape::Metadata { is_list: true, .. } => {
            let message = "you requested PartialObjectMetadataList, but the requested object is not a list \
                           (*autoscaling.Scale)";
            return Err(Status::failure(406, meta::Reason::NotAcceptable, message));
        }
        Shape::Metadata { api_version, .. } => table::partial(&tree, api_version),
        Shape::Table(version) => {
            table::of_scale(&tree, include(call.exchange)?, call.registry.clock().now(), version)
        }
    };
    Ok(Bytes::from(shaped.to_string()))
}

/// A page of a list in the shape.
pub(crate) fn page(call: &Call<'_>, shape: Shape, page: &registry::ListPage) -> Result<Bytes, Status> {
    let shaped = match shape {
        Shape::Metadata { is_list: false, .. } => return Err(unfit(call, "", "a list", "List")),
        Shape::Metadata { api_version, .. } => table::partial_page(&call.target, page, api_version),
        Shape::Table(version) => {
            table::of_page(&call.target, page, include(call.exchange)?, call.registry.clock().now(), version)
        }
    };
    Ok(Bytes::from(shaped.to_string()))
}

/// Puts the events of one watch into the shape.
pub(crate) struct Events {
    shape: Shape,
    include: IncludeObject,
    kind: std::sync::Arc<registry::Kind>,
    clock: SharedClock,
    is_first: bool,
}

impl Events {
    pub(crate) fn new(call: &Call<'_>, shape: Shape) -> Result<Self, Status> {
        let kind = std::sync::Arc::clone(&call.target.kind);
        let clock = call.registry.clock().clone();
        Ok(Self { shape, include: include(call.exchange)?, kind, clock, is_first: true })
    }

    /// The event with its object in the shape. Errors stay as they are.
    pub(crate) fn reshape(&mut self, frame: &Bytes) -> Bytes {
        let Ok(mut event) = serde_json::from_slice::<Value>(frame) else { return frame.clone() };
        if event["type"] == "ERROR" {
            return frame.clone();
        }
        let object = event["object"].take();
        event["object"] = match self.shape {
            Shape::Metadata { api_version, .. } => table::partial(&object, api_version),
            Shape::Table(version) => {
                let is_first = std::mem::take(&mut self.is_first);
                table::of_event(&self.kind, &object, self.include, self.clock.now(), version, is_first)
            }
        };
        Bytes::from(format!("{event}\n"))
    }
}

/// 406: one object was asked for and there are many, or the other way round.
fn unfit(call: &Call<'_>, wanted: &str, is: &str, suffix: &str) -> Status {
    let go_type = registry::go_type(&call.target, suffix);
    let message =
        format!("you requested PartialObjectMetadata{wanted}, but the requested object is {is} (*{go_type})");
    Status::failure(406, meta::Reason::NotAcceptable, message)
}

fn include(exchange: &Envelope) -> Result<IncludeObject, Status> {
    let text = exchange.query.get("includeObject");
    IncludeObject::parse(text).ok_or_else(|| {
        Status::bad_request(format!(
            "Unable to convert to Table as requested: includeObject: Invalid value: {}: must be 'Metadata', 'Object', \
             'None', or empty",
            meta::field::quote(text)
        ))
    })
}
