//! The record that is written, in the form of `audit.k8s.io/v1` `Event`. One event is one line of JSON.

use std::collections::BTreeMap;

use jiff::Timestamp;
use meta::time::format_micro_time;
use meta::{Status, Value};
use serde::Serialize;
use serde_json::json;

use super::{AuditDecision, Level, Stage};
use crate::User;
use crate::attributes::{Attributes, Target};

/// One event. Objects get into it only through [`AuditEvent::set_request`] and [`AuditEvent::set_response`], which
/// ask the decision first.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditEvent {
    kind: &'static str,
    api_version: &'static str,
    level: Level,
    #[serde(rename = "auditID")]
    pub audit_id: String,
    pub stage: Stage,
    #[serde(rename = "requestURI")]
    pub request_uri: String,
    pub verb: String,
    user: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    impersonated_user: Option<Value>,
    #[serde(rename = "sourceIPs", skip_serializing_if = "Vec::is_empty")]
    pub source_ips: Vec<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub user_agent: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object_ref: Option<ObjectReference>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_status: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_object: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_object: Option<Value>,
    request_received_timestamp: String,
    stage_timestamp: String,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    #[serde(skip)]
    omit_managed_fields: bool,
}

/// What a request was about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectReference {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_group: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub subresource: String,
}

impl AuditEvent {
    /// The event of a request that has just been received.
    pub fn received(
        decision: &AuditDecision,
        attributes: &Attributes<'_>,
        audit_id: impl Into<String>,
        request_uri: impl Into<String>,
        now: Timestamp,
    ) -> Self {
        let object_ref = match attributes.target {
            Target::Path(_) => None,
            Target::Resource { group, version, resource, subresource, namespace, name } => {
                Some(ObjectReference {
                    resource: resource.to_owned(),
                    namespace: namespace.to_owned(),
                    name: name.to_owned(),
                    api_group: group.to_owned(),
                    api_version: version.to_owned(),
                    subresource: subresource.to_owned(),
                    ..ObjectReference::default()
                })
            }
        };
        Self {
            kind: "Event",
            api_version: super::API_VERSION,
            level: decision.level,
            audit_id: audit_id.into(),
            stage: Stage::RequestReceived,
            request_uri: request_uri.into(),
            verb: attributes.verb.to_owned(),
            user: attributes.user.to_json(),
            impersonated_user: None,
            source_ips: Vec::new(),
            user_agent: String::new(),
            object_ref,
            response_status: None,
            request_object: None,
            response_object: None,
            request_received_timestamp: format_micro_time(now),
            stage_timestamp: format_micro_time(now),
            annotations: BTreeMap::new(),
            omit_managed_fields: decision.omit_managed_fields,
        }
    }

    /// The request goes on as somebody else.
    pub fn set_impersonated(&mut self, user: &User) {
        self.impersonated_user = Some(user.to_json());
    }

    /// Fills in what the path did not say about the object that was sent, as upstream does on every level.
    pub fn complete_reference(&mut self, object: &Value) {
        let Some(reference) = &mut self.object_ref else { return };
        let metadata = object.get("metadata");
        let text =
            |name: &str| metadata.and_then(|it| it.get(name)).and_then(Value::as_str).unwrap_or_default();
        for (field, name) in [
            (&mut reference.namespace, "namespace"),
            (&mut reference.name, "name"),
            (&mut reference.uid, "uid"),
            (&mut reference.resource_version, "resourceVersion"),
        ] {
            if field.is_empty() {
                text(name).clone_into(field);
            }
        }
    }

    /// The sent object, kept if the level asks for it.
    pub fn set_request(&mut self, object: &Value) {
        if self.level >= Level::Request {
            self.request_object = Some(self.without_managed_fields(object));
        }
    }

    /// The answered object, kept if the level asks for it.
    pub fn set_response(&mut self, object: &Value) {
        if self.level >= Level::RequestResponse {
            self.response_object = Some(self.without_managed_fields(object));
        }
    }

    /// The request reached another stage.
    pub fn set_stage(&mut self, stage: Stage, now: Timestamp) {
        self.stage = stage;
        self.stage_timestamp = format_micro_time(now);
    }

    /// The answer's code.
    pub fn set_code(&mut self, code: u16) {
        self.response_status = Some(json!({"metadata": {}, "code": code}));
    }

    /// The answer, when it is a failure.
    pub fn set_failure(&mut self, status: &Status) {
        let mut value = serde_json::to_value(status).expect("a Status must serialize");
        if let Some(map) = value.as_object_mut() {
            map.remove("kind");
            map.remove("apiVersion");
        }
        self.response_status = Some(value);
    }

    /// Whether it is known how the request was answered.
    pub fn is_answered(&self) -> bool {
        self.response_status.is_some()
    }

    /// The event as one line, with its line end.
    pub fn to_line(&self) -> String {
        let mut line = serde_json::to_string(self).expect("an event must serialize");
        line.push('\n');
        line
    }

    fn without_managed_fields(&self, object: &Value) -> Value {
        let mut object = object.clone();
        if self.omit_managed_fields {
            strip_managed_fields(&mut object);
            let items = object.get_mut("items").and_then(Value::as_array_mut);
            items.into_iter().flatten().for_each(strip_managed_fields);
        }
        object
    }
}

fn strip_managed_fields(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
}
