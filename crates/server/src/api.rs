//! The verbs on resources as HTTP: what is read from the request, which step of the registry is called, how the answer
//! looks. What a verb *does* is in `registry`.

mod delete;
pub(crate) mod options;
pub(crate) mod pod;
mod read;
mod scale;
mod watch;
mod write;

use std::sync::Arc;

use admission::Notes;
use bytes::{Bytes, BytesMut};
use catalog::{Served, Verb};
use http_body_util::BodyExt;
use meta::{GroupResource, GroupVersion, Status, Value};
use registry::{Registry, Sent, Source, Target, WriteOptions};

use crate::{
    answer::{self, Answer},
    audit::Record,
    body::RequestBody,
    chain::{Caller, Exchange},
    dispatch::Dispatch,
    negotiate::{self, Media},
    request::ResourcePath,
    reviews, service_account, transcode,
};

/// The largest body that is read, as upstream.
pub(crate) const MAX_BODY: usize = 3 * 1024 * 1024;

/// One request for a resource, with everything a verb needs.
pub(crate) struct Call<'a> {
    pub(crate) dispatch: &'a Dispatch,
    pub(crate) registry: &'a Arc<Registry>,
    pub(crate) exchange: &'a Exchange,
    pub(crate) caller: &'a Caller,
    pub(crate) served: &'a Served,
    pub(crate) path: &'a ResourcePath,
    pub(crate) target: Target,
    pub(crate) record: &'a mut Record,
    /// What admission has to say.
    pub(crate) notes: Arc<Notes>,
}

/// A request for a resource that this server has.
pub(crate) async fn serve(mut call: Call<'_>, body: RequestBody) -> Result<Answer, Status> {
    let custom = call.target.kind.custom.as_ref();
    let own = custom.and_then(|it| it.warning(&call.target.group_version.version)).map(str::to_owned);
    let deprecation = own.or_else(|| call.served.warning());
    let result = route(&mut call, body).await;
    let answer = match result {
        Ok(answer) => answer,
        Err(status) => answer::status(call.exchange, status),
    };
    let answer = answer.about_resource();
    for (key, value) in call.notes.take_annotations() {
        call.record.annotate(key, value);
    }
    let warnings = admission::limited(call.notes.take_warnings());
    let answer = warnings.iter().fold(answer, |answer, warning| answer.warn(warning));
    Ok(match deprecation {
        Some(warning) => answer.warn(&warning),
        None => answer,
    })
}

async fn route(call: &mut Call<'_>, body: RequestBody) -> Result<Answer, Status> {
    let subresource = call.path.subresource.as_str();
    let verb = Verb::parse(call.exchange.info.verb).ok_or_else(Status::method_not_allowed)?;
    check_offered(call, verb)?;
    if call.exchange.method == http::Method::HEAD {
        // Upstream answers GET only.
        return Err(Status::method_not_allowed());
    }
    if is_servers_own(call, verb) {
        call.registry.item(&call.target)?;
        let why = "the status of StorageVersions is written by the servers themselves";
        return Err(Status::forbidden(&call.target.kind.resource, &call.path.name, why));
    }
    match (subresource, verb) {
        ("", Verb::Create) if call.served.definition.is_stored() => write::create(call, body).await,
        ("", Verb::Create) => reviews::create(call, body).await,
        ("", Verb::Get | Verb::List) if !call.served.definition.is_stored() => read::component_status(call),
        ("" | "status" | "ephemeralcontainers" | "resize" | "approval", Verb::Get) => read::get(call).await,
        ("", Verb::List) => read::list(call).await,
        ("", Verb::Watch) => watch::watch(call).await,
        ("" | "status", Verb::Update) => write::update(call, body).await,
        ("" | "status", Verb::Patch) => write::patch(call, body).await,
        ("", Verb::Delete) => delete::delete(call, body).await,
        ("", Verb::DeleteCollection) => delete::delete_collection(call, body).await,
        ("scale", Verb::Get) => scale::get(call).await,
        ("scale", Verb::Update) => scale::update(call, body).await,
        ("scale", Verb::Patch) => scale::patch(call, body).await,
        ("finalize", Verb::Update) => write::finalize(call, body).await,
        ("eviction", Verb::Create) => pod::evict(call, body).await,
        ("binding", Verb::Create) => pod::bind(call, body).await,
        ("token", Verb::Create) => service_account::token_request(call, body).await,
        (other, _) => Err(not_here(call, other)),
    }
}

/// 404 if there is no such subresource, 405 if the verb is not offered on it.
fn check_offered(call: &Call<'_>, verb: Verb) -> Result<(), Status> {
    let subresource = call.path.subresource.as_str();
    let is_offered = match subresource {
        "" => {
            let is_named = !call.path.name.is_empty();
            let is_collection = matches!(verb, Verb::List | Verb::Watch | Verb::DeleteCollection);
            let of_objects = [Verb::Get, Verb::Update, Verb::Patch, Verb::Delete];
            if is_named && !is_collection && !of_objects.iter().any(|it| call.served.offers(None, *it)) {
                return Err(Status::no_such_resource());
            }
            let fits = match verb {
                Verb::Get | Verb::Update | Verb::Patch | Verb::Delete => is_named,
                Verb::Create => !is_named,
                // These may name an object: in a field selector, or as a watch of just that one.
                Verb::List | Verb::Watch | Verb::DeleteCollection => true,
            };
            fits && call.served.offers(None, verb)
        }
        name => {
            call.served.subresource(name).ok_or_else(Status::no_such_resource)?;
            call.served.offers(Some(name), verb)
        }
    };
    if is_offered { Ok(()) } else { Err(Status::method_not_allowed()) }
}

/// 501: what needs nodes, or a later build.
fn not_here(call: &Call<'_>, subresource: &str) -> Status {
    let resource = &call.target.kind.resource;
    match subresource {
        "exec" | "attach" | "portforward" | "log" | "proxy" | "resize" | "ephemeralcontainers" => {
            Status::not_implemented(format!(
                "{resource}/{subresource} is not available: this control plane has no nodes, so nothing runs in it"
            ))
        }
        other => Status::not_implemented(format!("{resource}/{other} is not available on this server")),
    }
}

impl Call<'_> {
    /// The whole body, bounded.
    pub(crate) async fn read(&mut self, body: RequestBody) -> Result<Bytes, Status> {
        let bytes = read_body(body).await?;
        self.record.request_object(&bytes);
        Ok(bytes)
    }

    /// The body as an object, with what is odd about its text.
    pub(crate) async fn read_sent(&mut self, body: RequestBody) -> Result<Sent, Status> {
        let media = negotiate::request(&self.exchange.headers)?;
        let (group_version, kind) = self.body_kind();
        if media == Media::Protobuf {
            let bytes = read_body(body).await?;
            return self.transcoded(media, &bytes, &group_version.to_string(), &kind).map(Sent::from);
        }
        if media == Media::Yaml {
            let text = read_body(body).await?;
            let document = transcode::read_yaml(&text, &kind)?;
            self.record.request_tree(&document.value);
            let source = Source::Yaml { text, duplicate: document.duplicate };
            return Ok(Sent { value: document.value, source });
        }
        let bytes = self.read(body).await?;
        let report = schema::json::parse_report(&bytes, schema::json::Limits::REQUEST).map_err(|error| {
            let shown = schema::json::summary(&bytes);
            Status::bad_request(format!(
                "the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; json parse \
                 error: {error} ({shown})"
            ))
        })?;
        let source = Source::Json { has_duplicates: !report.duplicates.is_empty(), text: bytes };
        Ok(Sent { value: report.value, source })
    }

    /// The `DeleteOptions` of the body, if there are any.
    pub(crate) async fn read_delete_options(&mut self, body: RequestBody) -> Result<Option<Value>, Status> {
        let bytes = read_body(body).await?;
        if bytes.is_empty() {
            return Ok(None);
        }
        let group_version = GroupVersion::new("meta.k8s.io", "v1");
        let media = negotiate::request(&self.exchange.headers)?;
        let value = if media == Media::Json {
            self.record.request_object(&bytes);
            schema::json::parse(&bytes, schema::json::Limits::REQUEST).map_err(|error| {
                delete::unreadable(format!("couldn't get version/kind; json parse error: {error}"))
            })?
        } else {
            self.transcoded(media, &bytes, &group_version.to_string(), "DeleteOptions")?
        };
        if let Some(why) = registry::unreadable_head(&value) {
            return Err(delete::unreadable(why));
        }
        let kind = meta::object::kind(&value);
        if !matches!(kind, "" | "DeleteOptions") {
            let api_version = meta::object::api_version(&value);
            let scheme = "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme/register.go:36";
            return Err(delete::unreadable(format!(
                "no kind {kind:?} is registered for version {api_version:?} in scheme {scheme:?}"
            )));
        }
        self.dispatch
            .schemas
            .kind("meta.k8s.io", "v1", "DeleteOptions")
            .map_or(Ok(value.clone()), |ty| {
                let checked = schema::check::check(self.dispatch.schemas.schema(), ty, value);
                checked.map(|it| it.value).map_err(|it| delete::unreadable(it.to_string()))
            })
            .map(Some)
    }

    /// An object that was sent in another form than JSON.
    fn transcoded(
        &mut self,
        media: Media,
        bytes: &[u8],
        group_version: &str,
        kind: &str,
    ) -> Result<Value, Status> {
        let own = self.target.group_version.to_string();
        if transcode::find(&self.dispatch.schemas, &own, &self.served.definition.kind).is_none() {
            negotiate::untyped(media)?;
        }
        let value = transcode::read(&self.dispatch.schemas, media, bytes, group_version, kind)?;
        self.record.request_tree(&value);
        Ok(value)
    }

    /// The body as an object of its kind with all fields checked, and warnings for its client.
    pub(crate) async fn read_accepted(
        &mut self,
        options: &WriteOptions<'_>,
        body: RequestBody,
    ) -> Result<(Value, Vec<String>), Status> {
        let mut sent = self.read_sent(body).await?;
        let (group_version, kind) = self.body_kind();
        if kind == "Eviction" && meta::object::api_version(&sent.value) == "policy/v1beta1" {
            // The older version looks the same, and is still understood.
            sent.value["apiVersion"] = Value::from(group_version.to_string());
        }
        self.registry.accept(&group_version, &kind, options.field_validation, sent)
    }

    /// What the body must be: the kind of the path, or that of the subresource.
    fn body_kind(&self) -> (GroupVersion, String) {
        let own = || self.target.group_version.clone();
        match self.served.subresource(&self.path.subresource) {
            Some(it) => (it.group_version.clone().unwrap_or_else(own), it.kind.to_string()),
            None => (own(), self.served.definition.kind.to_string()),
        }
    }

    /// `pods` of the core group, for messages.
    pub(crate) fn resource(&self) -> &GroupResource {
        &self.target.kind.resource
    }
}

/// Whether this would change what servers say about themselves: nobody else may, whatever their rights.
fn is_servers_own(call: &Call<'_>, verb: Verb) -> bool {
    let definition = &call.served.definition;
    call.path.subresource == "status"
        && matches!(verb, Verb::Update | Verb::Patch)
        && (&*definition.group, &*definition.resource) == ("internal.apiserver.k8s.io", "storageversions")
}

/// Reads a body to its end, or 413.
pub(crate) async fn read_body(mut body: RequestBody) -> Result<Bytes, Status> {
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame =
            frame.map_err(|it| Status::bad_request(format!("the request body could not be read: {it}")))?;
        let Ok(piece) = frame.into_data() else { continue };
        if whole.len() + piece.len() > MAX_BODY {
            return Err(Status::too_large(format!("limit is {MAX_BODY}")));
        }
        whole.extend_from_slice(&piece);
    }
    Ok(whole.freeze())
}
