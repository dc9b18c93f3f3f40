//! Where a request goes once it is allowed: health, metrics, version, discovery, or a verb on a resource.

use std::{sync::Arc, time::Duration};

use admission::Admission;
use bytes::Bytes;
use catalog::{
    Catalog, Schemas, Served,
    discovery::{Documents, Tagged},
};
use http::{HeaderValue, Method};
use meta::{GroupResource, GroupVersion, Status};
use registry::{Kind, Registry, Target};
use serde_json::json;

use crate::{
    answer::{self, Answer},
    api::{self, Call},
    audit::Record,
    authenticate::Authenticator,
    body::RequestBody,
    chain::{Caller, Exchange},
    documents::ServedDocuments,
    fleet_api,
    health::Checks,
    lifecycle::Lifecycle,
    metrics::{Metrics, RequestKey, WatchGuard},
    negotiate::{
        self,
        discovery::{Form, Profile, Wanted},
    },
    request::ResourcePath,
    service_account::TokenSettings,
    snapshot::Snapshots,
};

/// Everything that requests can be sent to.
pub struct Dispatch {
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) schemas: Schemas,
    pub(crate) registry: Arc<Registry>,
    pub(crate) admission: Arc<Admission>,
    pub(crate) served: ServedDocuments,
    pub(crate) authorizer: access::Authorizer,
    pub(crate) authenticator: Arc<Authenticator>,
    pub(crate) tokens: TokenSettings,
    pub(crate) health: Arc<Checks>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) lifecycle: Lifecycle,
    pub(crate) version: Bytes,
    pub(crate) min_request_timeout: Duration,
    pub(crate) snapshots: Option<Snapshots>,
}

impl Dispatch {
    /// Sends the request where it belongs.
    pub(crate) async fn route(
        &self,
        exchange: &Exchange,
        caller: &Caller,
        body: RequestBody,
        record: &mut Record,
    ) -> Result<Answer, Status> {
        if let Some(path) = &exchange.info.resource {
            return self.resource(exchange, caller, path, body, record).await;
        }
        let path = exchange.info.path.as_str();
        let segments: Vec<&str> = path.split('/').filter(|it| !it.is_empty()).collect();
        match segments.as_slice() {
            ["healthz" | "livez" | "readyz", ..] => Ok(self.health(exchange)),
            ["convoy", "snapshot"] => crate::snapshot::save(self, exchange).await,
            ["convoy", "census"] if exchange.method == Method::GET => fleet_api::census(self, exchange).await,
            ["convoy", "hold"] => fleet_api::hold(self, exchange, caller, body).await,
            ["convoy", "identity"] if exchange.method == Method::GET => fleet_api::identity(self, exchange),
            ["convoy", "status"] if exchange.method == Method::GET => fleet_api::status(self, exchange),
            _ if is_gapped(path) => self.unknown_path(&segments),
            ["version"] | ["api" | "apis", ..] if exchange.method != Method::GET => {
                self.wrong_method(&segments)
            }
            ["metrics"] => Ok(self.render_metrics()),
            ["openapi", "v2"] => self.openapi_v2(exchange),
            ["openapi", "v3"] => self.document(exchange, &self.served.openapi_index_of_all(&self.openapi())),
            ["openapi", "v3", rest @ ..] => self.openapi_document(exchange, &rest.join("/")),
            ["version"] => self.document(exchange, &self.version),
            [] => self.document(exchange, &self.root()),
            segments => self.described(exchange, segments),
        }
    }

    /// A document of discovery. Made only for those who ask for one: after every change the next of them waits for it.
    fn described(&self, exchange: &Exchange, segments: &[&str]) -> Result<Answer, Status> {
        let documents = match segments {
            ["api" | "apis", ..] => self.documents(exchange),
            _ => return self.unknown_path(segments),
        };
        match segments {
            ["api"] => self.discovery(
                exchange,
                &documents.api,
                [&documents.aggregated_api_v2, &documents.aggregated_api_v2beta1],
            ),
            ["apis"] => self.discovery(
                exchange,
                &documents.apis,
                [&documents.aggregated_apis_v2, &documents.aggregated_apis_v2beta1],
            ),
            segments => match group_document(&documents, segments) {
                Some(document) => self.document(exchange, document),
                None => self.unknown_path(segments),
            },
        }
    }

    /// The documents about all servers; those about this one alone for whoever says `profile=nopeer`; everything that any
    /// server serves for whoever says `profile=union`, though clients may be shown less by default.
    fn documents(&self, exchange: &Exchange) -> Arc<Documents> {
        match Wanted::of(exchange.header("accept")).profile {
            Profile::Usual => return self.served.of_all(),
            Profile::Union => return self.served.union(),
            Profile::NoPeer => {}
        }
        if matches!(exchange.info.path.trim_end_matches('/'), "/api" | "/apis") {
            self.metrics.discovery_without_peers();
        }
        self.served.own()
    }

    /// Documents can only be read, and what is not there cannot even be that.
    fn wrong_method(&self, segments: &[&str]) -> Result<Answer, Status> {
        let is_there = matches!(segments, ["version"] | ["api" | "apis"]);
        if is_there || group_document(&self.served.of_all(), segments).is_some() {
            return Err(Status::method_not_allowed());
        }
        self.unknown_path(segments)
    }

    fn unknown_path(&self, segments: &[&str]) -> Result<Answer, Status> {
        match segments {
            ["api", ..] => self.unknown(""),
            ["apis", group, _, ..] => self.unknown(group),
            _ => Ok(answer::page_not_found()),
        }
    }

    async fn resource(
        &self,
        exchange: &Exchange,
        caller: &Caller,
        path: &ResourcePath,
        body: RequestBody,
        record: &mut Record,
    ) -> Result<Answer, Status> {
        let Some((kind, served)) = self.find(path) else { return self.unknown(&path.group) };
        let served = &*served;
        let is_namespace = &*served.definition.resource == "namespaces" && served.definition.group.is_empty();
        let namespace = if is_namespace { "" } else { path.namespace.as_str() };
        let is_object =
            !path.name.is_empty() && !matches!(exchange.info.verb, "list" | "watch" | "deletecollection");
        let is_misplaced = !served.definition.namespaced && !namespace.is_empty();
        let is_everywhere = served.definition.namespaced && namespace.is_empty();
        if is_misplaced || (is_everywhere && is_object) {
            return Err(Status::no_such_resource());
        }
        if is_everywhere && !matches!(exchange.info.verb, "list" | "watch") {
            // All namespaces at once can only be read.
            let can_list = served.offers(None, catalog::Verb::List);
            return Err(if can_list { Status::method_not_allowed() } else { Status::no_such_resource() });
        }
        if !path.rest.is_empty() && path.subresource != "proxy" {
            return Err(Status::no_such_resource());
        }
        let target = Target {
            kind,
            group_version: GroupVersion::new(path.group.as_str(), path.version.as_str()),
            namespace: namespace.to_owned(),
            name: if is_object { path.name.clone() } else { String::new() },
            subresource: path.subresource.clone(),
        };
        let call = Call {
            dispatch: self,
            registry: &self.registry,
            exchange,
            caller,
            served,
            path,
            target,
            record,
            notes: Arc::default(),
        };
        api::serve(call, body).await
    }

    /// The resource in the version that is asked for: built in, or defined by a user.
    pub(crate) fn find(&self, path: &ResourcePath) -> Option<(Arc<Kind>, Arc<Served>)> {
        let resource = GroupResource::new(path.group.as_str(), path.resource.as_str());
        let kinds = self.registry.kinds();
        match self.catalog.find(&path.group, &path.version, &path.resource) {
            Some(served) => Some((kinds.get(&resource)?, Arc::clone(served))),
            None => kinds.custom_served(&resource, &path.version),
        }
    }

    /// Upstream answers in JSON where the group is known, and in plain text where it is not.
    fn unknown(&self, group: &str) -> Result<Answer, Status> {
        if group.is_empty() || self.catalog.has_group(group) {
            Err(Status::no_such_resource())
        } else {
            Ok(answer::page_not_found())
        }
    }

    pub(crate) fn document(&self, exchange: &Exchange, document: &Bytes) -> Result<Answer, Status> {
        let format = negotiate::response(&exchange.headers, &exchange.query)?;
        Ok(answer::json(exchange, 200, document.clone(), format))
    }

    /// The plain document, or the aggregated one for clients that ask for it.
    fn discovery(
        &self,
        exchange: &Exchange,
        plain: &Bytes,
        aggregated: [&Tagged; 2],
    ) -> Result<Answer, Status> {
        let [v2, v2beta1] = aggregated;
        let (document, content_type) = match Wanted::of(exchange.header("accept")).form {
            Form::Plain => return self.document(exchange, plain),
            Form::V2 => (v2, "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"),
            Form::V2beta1 => {
                (v2beta1, "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList")
            }
        };
        let etag = HeaderValue::from_str(&document.etag).map_err(Status::internal)?;
        let vary = HeaderValue::from_static("Accept");
        if exchange.header("if-none-match") == &*document.etag {
            let answer =
                answer::plain(304, HeaderValue::from_static(content_type), crate::body::Body::empty());
            return Ok(answer.with_header("etag", etag).with_header("vary", vary));
        }
        let format = negotiate::Format::default();
        Ok(answer::json(exchange, 200, document.body.clone(), format)
            .with_header("content-type", HeaderValue::from_static(content_type))
            .with_header("cache-control", HeaderValue::from_static("public"))
            .with_header("etag", etag)
            .with_header("vary", vary))
    }

    fn health(&self, exchange: &Exchange) -> Answer {
        let query = exchange.uri.query().unwrap_or_default();
        let (code, text) = self.health.handle(&exchange.info.path, query);
        answer::text(code, text)
    }

    fn render_metrics(&self) -> Answer {
        let content_type = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
        answer::plain(200, content_type, crate::body::Body::full(self.metrics.render()))
    }

    /// `/`: what there is.
    fn root(&self) -> Bytes {
        let mut paths: Vec<String> = [
            "/api",
            "/api/v1",
            "/apis",
            "/healthz",
            "/livez",
            "/metrics",
            "/openapi/v2",
            "/openapi/v3",
            "/readyz",
            "/version",
        ]
        .map(str::to_owned)
        .to_vec();
        let documents = self.served.of_all();
        paths.extend(documents.groups.keys().map(|it| format!("/apis/{it}")));
        paths.extend(
            documents.group_versions.keys().filter(|it| it.contains('/')).map(|it| format!("/apis/{it}")),
        );
        paths.sort();
        Bytes::from(json!({ "paths": paths }).to_string())
    }

    /// Counts a watch while it lasts.
    pub(crate) fn watch_started(&self, call: &Call<'_>) -> WatchGuard {
        let key = RequestKey {
            verb: "WATCH",
            dry_run: false,
            group: &call.path.group,
            version: &call.path.version,
            resource: &call.path.resource,
            subresource: "",
            scope: if call.target.namespace.is_empty() { "cluster" } else { "namespace" },
            code: 200,
        };
        self.metrics.watch_started(&key, &call.served.definition.kind)
    }
}

/// Something is missing between two slashes. Before and behind everything more slashes do not matter.
fn is_gapped(path: &str) -> bool {
    path.trim_matches('/').contains("//")
}

/// The document of a group, or of a group and version.
fn group_document<'a>(documents: &'a Documents, segments: &[&str]) -> Option<&'a Bytes> {
    match segments {
        ["api", version] => documents.group_versions.get(*version),
        ["apis", group] => documents.groups.get(*group),
        ["apis", group, version] => documents.group_versions.get(format!("{group}/{version}").as_str()),
        _ => None,
    }
}
