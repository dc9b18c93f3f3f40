//! Where a request goes once it is allowed: health, metrics, version, discovery, or a verb on a resource.

use std::{sync::Arc, time::Duration};

use admission::Admission;
use bytes::Bytes;
use catalog::{
    Catalog, Schemas, Served,
    discovery::{Documents, Tagged},
};
use fleet::route::Absence;
use http::{HeaderValue, Method};
use meta::{GroupResource, GroupVersion, Status};
use registry::{Kind, Registry, Target};

use crate::{
    answer::{self, Answer},
    api::{self, Call},
    audit::Record,
    authenticate::Authenticator,
    authorize::Authorized,
    body::RequestBody,
    chain::Envelope,
    denial::{self, Denial},
    documents::{Aggregated, Made, ServedDocuments},
    fleet_api,
    health::Checks,
    lifecycle::Lifecycle,
    memory::Memory,
    metrics::{Metrics, RequestKey, WatchGuard},
    negotiate::{
        self,
        discovery::{Form, Profile, Wanted},
    },
    openapi,
    pool::Pool,
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
    pub(crate) served: Arc<ServedDocuments>,
    pub(crate) openapi: openapi::Documents,
    pub(crate) authorizer: access::Authorizer,
    pub(crate) authenticator: Arc<Authenticator>,
    pub(crate) tokens: TokenSettings,
    pub(crate) health: Arc<Checks>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) lifecycle: Lifecycle,
    pub(crate) version: Bytes,
    pub(crate) min_request_timeout: Duration,
    pub(crate) snapshots: Option<Snapshots>,
    pub(crate) pool: Pool,
    pub(crate) memory: Memory,
}

impl Dispatch {
    /// Sends the request where it belongs. Without a proof of absence nothing is denied that another server may have.
    pub(crate) async fn route(
        &self,
        asked: &Authorized<'_>,
        body: RequestBody,
        record: &mut Record,
        absence: Option<&Absence>,
    ) -> Result<Answer, Status> {
        if let Some(path) = asked.resource() {
            return self.resource(asked, path, body, record, absence).await;
        }
        let (exchange, path) = (asked.envelope(), asked.path());
        let segments: Vec<&str> = path.split('/').filter(|it| !it.is_empty()).collect();
        match segments.as_slice() {
            ["healthz" | "livez" | "readyz", ..] => Ok(self.health(asked)),
            ["convoy", "snapshot"] => crate::snapshot::save(self, exchange).await,
            ["convoy", "census"] if exchange.method == Method::GET => fleet_api::census(self, exchange).await,
            ["convoy", "hold"] => fleet_api::hold(self, asked, body, record).await,
            ["convoy", "identity"] if exchange.method == Method::GET => fleet_api::identity(self, exchange),
            ["convoy", "status"] if exchange.method == Method::GET => fleet_api::status(self, exchange),
            _ if asked.info().is_gapped => self.unknown_path(&segments, absence),
            ["version"] if exchange.method != Method::GET => Err(Status::method_not_allowed()),
            ["api" | "apis", ..] if exchange.method != Method::GET => self.wrong_method(&segments, absence),
            ["metrics"] => Ok(self.render_metrics()),
            ["openapi", "v2"] => self.openapi_v2(exchange).await,
            ["openapi", "v3"] => self.openapi_index(exchange).await,
            ["openapi", "v3", rest @ ..] => self.openapi_document(exchange, rest, absence).await,
            ["version"] => self.document(exchange, &self.version),
            [] => self.document(exchange, self.served.of_all().root()),
            segments => self.described(asked, segments, absence),
        }
    }

    /// A document of discovery. Made only for those who ask for one: after every change the next of them waits for it.
    fn described(
        &self,
        asked: &Authorized<'_>,
        segments: &[&str],
        absence: Option<&Absence>,
    ) -> Result<Answer, Status> {
        let exchange = asked.envelope();
        let documents = match segments {
            ["api" | "apis", ..] => self.documents(asked),
            _ => return self.unknown_path(segments, absence),
        };
        match segments {
            ["api"] => self.discovery(exchange, &documents.api, documents.aggregated_api()),
            ["apis"] => self.discovery(exchange, &documents.apis, documents.aggregated_apis()),
            segments => match group_document(&documents, segments) {
                Some(document) => self.document(exchange, document),
                None => self.unknown_path(segments, absence),
            },
        }
    }

    /// The documents about all servers; those about this one alone for whoever says `profile=nopeer`; everything that any
    /// server serves for whoever says `profile=union`, though clients may be shown less by default.
    fn documents(&self, asked: &Authorized<'_>) -> Arc<Made> {
        let profile = Wanted::of(asked.envelope().header("accept")).profile;
        if profile == Profile::NoPeer && matches!(asked.path().trim_end_matches('/'), "/api" | "/apis") {
            self.metrics.discovery_without_peers();
        }
        self.served.of(profile)
    }

    /// Sees to it that documents of discovery are there before they are looked at: that may take a while.
    pub(crate) async fn prepare_documents(&self, asked: &Authorized<'_>) {
        match asked.path().split('/').find(|it| !it.is_empty()) {
            None => self.served.prepare(Profile::Usual).await,
            Some("api" | "apis") => {
                let profile = Wanted::of(asked.envelope().header("accept")).profile;
                self.served.prepare(profile).await;
            }
            Some(_) => {}
        }
    }

    /// Whether there is a document at a path below `/api`, `/apis` or `/openapi`.
    pub(crate) fn has_document(&self, asked: &Authorized<'_>, segments: &[&str]) -> bool {
        if asked.info().is_gapped {
            return false;
        }
        match segments {
            ["api" | "apis"] | ["openapi", "v2" | "v3"] => true,
            ["openapi", "v3", "api", version] => self.has_group_version("", version),
            ["openapi", "v3", "apis", group, version] => self.has_group_version(group, version),
            ["openapi", ..] => false,
            segments => {
                let profile = Wanted::of(asked.envelope().header("accept")).profile;
                group_document(&self.served.of(profile), segments).is_some()
            }
        }
    }

    /// Whether this server itself serves anything in a group and version.
    pub(crate) fn has_group_version(&self, group: &str, version: &str) -> bool {
        self.catalog.has_group_version(group, version) || self.served.defines(group, version)
    }

    /// Documents can only be read, and what is not there cannot even be that.
    fn wrong_method(&self, segments: &[&str], absence: Option<&Absence>) -> Result<Answer, Status> {
        let is_there = matches!(segments, ["api" | "apis"]);
        if is_there || group_document(&self.served.of_all(), segments).is_some() {
            return Err(Denial::MethodNotAllowed.status(absence));
        }
        self.unknown_path(segments, absence)
    }

    fn unknown_path(&self, segments: &[&str], absence: Option<&Absence>) -> Result<Answer, Status> {
        match segments {
            ["api", ..] => self.unknown("", absence),
            ["apis", group, _, ..] => self.unknown(group, absence),
            ["apis", ..] => denial::page_not_found(absence),
            _ => Ok(answer::page_not_found()),
        }
    }

    async fn resource(
        &self,
        asked: &Authorized<'_>,
        path: &ResourcePath,
        body: RequestBody,
        record: &mut Record,
        absence: Option<&Absence>,
    ) -> Result<Answer, Status> {
        let Some((kind, served)) = self.find(path) else {
            return match absence {
                // A lone server answers in upstream's words, which depend on the path.
                Some(it) if it.is_alone() => self.unknown(&path.group, absence),
                _ => Err(denial::no_such_resource(path, absence)),
            };
        };
        let served = &*served;
        denial::check_place(served, asked.info(), path).map_err(|it| it.status(absence))?;
        let is_object = path.is_named && asked.verb() != "watch";
        let target = Target {
            kind,
            group_version: GroupVersion::new(path.group.as_str(), path.version.as_str()),
            namespace: path.home().to_owned(),
            name: if is_object { path.name.clone() } else { String::new() },
            subresource: path.subresource.clone(),
        };
        let call = Call {
            dispatch: self,
            registry: &self.registry,
            asked,
            exchange: asked.envelope(),
            caller: asked.caller(),
            served,
            path,
            target,
            record,
            absence,
            notes: Arc::default(),
            is_apart: false,
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
    fn unknown(&self, group: &str, absence: Option<&Absence>) -> Result<Answer, Status> {
        if group.is_empty() || self.catalog.has_group(group) {
            Err(Denial::NoSuchResource.status(absence))
        } else {
            denial::page_not_found(absence)
        }
    }

    pub(crate) fn document(&self, exchange: &Envelope, document: &Bytes) -> Result<Answer, Status> {
        let format = negotiate::response(&exchange.headers, &exchange.query)?;
        Ok(answer::json(exchange, 200, document.clone(), format))
    }

    /// The plain document, or the aggregated one for clients that ask for it.
    fn discovery(
        &self,
        exchange: &Envelope,
        plain: &Bytes,
        aggregated: [Aggregated<'_>; 2],
    ) -> Result<Answer, Status> {
        let [v2, v2beta1] = aggregated;
        let (wanted, content_type) = match Wanted::of(exchange.header("accept")).form {
            Form::Plain => return self.document(exchange, plain),
            Form::V2 => (v2, "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"),
            Form::V2beta1 => {
                (v2beta1, "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList")
            }
        };
        let Tagged { body, etag } = wanted.document;
        let etag = HeaderValue::from_str(etag).map_err(Status::internal)?;
        let answer = answer::document(exchange, content_type, body, wanted.packed(), etag)
            .with_header("vary", HeaderValue::from_static("Accept"));
        Ok(match answer.response.status().as_u16() {
            304 => answer,
            _ => answer.with_header("cache-control", HeaderValue::from_static("public")),
        })
    }

    fn health(&self, asked: &Authorized<'_>) -> Answer {
        let query = asked.uri().query().unwrap_or_default();
        let (code, text) = self.health.handle(asked.path(), query);
        answer::text(code, text)
    }

    fn render_metrics(&self) -> Answer {
        let content_type = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
        answer::plain(200, content_type, crate::body::Body::full(self.metrics.render()))
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

/// The document of a group, or of a group and version.
fn group_document<'a>(documents: &'a Documents, segments: &[&str]) -> Option<&'a Bytes> {
    match segments {
        ["api", version] => documents.group_versions.get(*version),
        ["apis", group] => documents.groups.get(*group),
        ["apis", group, version] => documents.group_versions.get(format!("{group}/{version}").as_str()),
        _ => None,
    }
}
