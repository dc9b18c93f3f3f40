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

use access::{Authorizer, User};
use admission::Notes;
use bytes::Bytes;
use catalog::{Served, Verb};
use fleet::route::Absence;
use meta::{GroupResource, GroupVersion, Status, Value};
use registry::{Registry, Sent, Source, Target, WriteOptions};

use crate::{
    answer::{self, Answer},
    audit::Record,
    authorize::Authorized,
    body::{RequestBody, full_body},
    chain::{Caller, Envelope},
    denial,
    dispatch::Dispatch,
    negotiate::{self, Format, Media},
    pool,
    request::ResourcePath,
    reviews, service_account, shape,
    slot::read_body,
    transcode,
};

/// The largest body that is read, as upstream.
pub(crate) const MAX_BODY: usize = 3 * 1024 * 1024;

/// Collections from this size on take a while to go through.
const MANY: usize = 1_000;

/// So many requirements on objects of a collection take a while to judge.
const MANY_TERMS: usize = 50_000;

/// Lists from this size on take a while to be made into something else.
const LONG: usize = 256 << 10;

/// One request for a resource, with everything a verb needs.
pub(crate) struct Call<'a> {
    pub(crate) dispatch: &'a Dispatch,
    pub(crate) registry: &'a Arc<Registry>,
    /// What was authorized. What is carried out comes from here and from nowhere else.
    pub(crate) asked: &'a Authorized<'a>,
    pub(crate) exchange: &'a Envelope,
    pub(crate) caller: &'a Caller,
    pub(crate) served: &'a Served,
    pub(crate) path: &'a ResourcePath,
    pub(crate) target: Target,
    pub(crate) record: &'a mut Record,
    /// Proof that nobody has what is asked for, if so.
    pub(crate) absence: Option<&'a Absence>,
    /// What admission has to say.
    pub(crate) notes: Arc<Notes>,
    /// Whether it is worked on in the pool.
    pub(crate) is_apart: bool,
}

/// A request for a resource that this server has.
pub(crate) async fn serve(mut call: Call<'_>, body: RequestBody) -> Result<Answer, Status> {
    let custom = call.target.kind.custom.as_ref();
    let own = custom.and_then(|it| it.warning(&call.target.group_version.version)).map(str::to_owned);
    let deprecation = own.or_else(|| call.served.warning());
    let result = worked_on(&mut call, body).await;
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

/// Routes the request: in the pool if it is large. The body is read first, so that nobody who sends slowly keeps a slot
/// or a place in the pool.
async fn worked_on(call: &mut Call<'_>, body: RequestBody) -> Result<Answer, Status> {
    // What lasts has no deadline, and nothing to say in a body: nobody waits for the end of one.
    let bytes =
        if call.asked.info().is_long_running() { Bytes::new() } else { call.asked.read(body).await? };
    let (length, body) = (bytes.len(), full_body(bytes));
    let Dispatch { pool, .. } = call.dispatch;
    let ticket = if is_large(call, length) {
        pool.enter(&call.caller.payer)?
    } else if is_judged_at_length(call) {
        // It computes where large requests do, and is not one of them: many roles are written at once.
        pool.enter_anyway(&call.caller.payer)
    } else {
        return route(call, body).await;
    };
    call.is_apart = true;
    ticket.run(route(call, body)).await
}

/// Whether answering may take long enough to keep a thread from what else it has to do: by what is sent, by what is
/// stored, and by what a definition demands.
fn is_large(call: &Call<'_>, body: usize) -> bool {
    let Call { registry, target, asked, .. } = call;
    match asked.verb() {
        "watch" => false,
        "list" | "deletecollection" => is_long_list(call),
        "get" => registry.stored_bytes(target) >= pool::LARGE,
        _ => {
            let version = target.group_version.version.as_str();
            body >= pool::LARGE
                || &*call.served.definition.resource == "customresourcedefinitions"
                || target.kind.custom.as_ref().is_some_and(|it| it.is_costly(version))
                || registry.stored_bytes(target) >= pool::LARGE
        }
    }
}

/// Whether it may take long to decide about a write: what a role grants is compared with all that its writer holds, and
/// somebody may hold much.
fn is_judged_at_length(call: &Call<'_>) -> bool {
    let Call { dispatch, target, asked, caller, .. } = call;
    let is_write = !matches!(asked.verb(), "watch" | "list" | "deletecollection" | "get");
    is_write
        && (&*call.served.definition.group == access::rbac::GROUP
            || dispatch.authorizer.is_long(&caller.user, &target.namespace))
}

/// Whether going through a collection takes long: there is much of it, or much is asked of each object, or much has to be
/// made into something else. What is sent as it is stored costs little, however large it is.
fn is_long_list(call: &Call<'_>) -> bool {
    let n_objects = call.registry.n_objects(&call.target);
    let n_terms = call
        .asked
        .selection()
        .map_or(0, |it| it.labels.requirements().len() + it.fields.requirements().len());
    n_objects >= MANY
        || n_objects.saturating_mul(n_terms) >= MANY_TERMS
        || is_remade(call) && call.registry.extent(&call.target, MANY).n_bytes >= LONG
}

/// Whether the objects of a list are made into something else than they are stored as.
fn is_remade(call: &Call<'_>) -> bool {
    let Call { exchange, target, record, asked, .. } = call;
    let is_plain = || negotiate::response(&exchange.headers, &exchange.query) == Ok(Format::default());
    asked.verb() != "list"
        || target.kind.custom.is_some()
        || record.wants_response()
        || shape::wanted(exchange).is_some()
        || !is_plain()
}

async fn route(call: &mut Call<'_>, body: RequestBody) -> Result<Answer, Status> {
    let subresource = call.path.subresource.as_str();
    let offered = denial::check_offered(call.served, call.path, call.asked.verb(), &call.exchange.method);
    let verb = offered.map_err(|it| it.status(call.absence))?;
    if is_servers_own(call, verb) {
        call.registry.item(&call.target)?;
        let why = "the status of StorageVersions is written by the servers themselves";
        return Err(Status::forbidden(&call.target.kind.resource, &call.path.name, why));
    }
    if matches!(subresource, "eviction" | "binding" | "token") && !call.exchange.grounds()?.facts().is_empty()
    {
        return Err(Status::bad_request(format!("{subresource} cannot be made to rest on facts")));
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
        self.record.request_text(&bytes);
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
            self.record.request_object(&document.value);
            let source = Source::Yaml { text, duplicate: document.duplicate };
            return Ok(Sent { value: document.value, source });
        }
        let bytes = read_body(body).await?;
        let report = schema::json::parse_report(&bytes, schema::json::Limits::REQUEST).map_err(|error| {
            let shown = schema::json::summary(&bytes);
            Status::bad_request(format!(
                "the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; json parse \
                 error: {error} ({shown})"
            ))
        })?;
        self.record.request_object(&report.value);
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
            self.record.request_text(&bytes);
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
        if kind == "DeleteOptions" {
            self.record.request_tree(&value); // it has no name of its own
        } else {
            self.record.request_object(&value);
        }
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

    /// Asks what this user may do in this namespace: in the pool if that may take long.
    pub(crate) async fn ask<T>(
        &self,
        user: &User,
        namespace: &str,
        question: impl FnOnce(&Authorizer) -> T,
    ) -> Result<T, Status> {
        let Dispatch { authorizer, pool, .. } = self.dispatch;
        if self.is_apart || !authorizer.is_long(user, namespace) {
            return Ok(question(authorizer));
        }
        let ticket = pool.enter(&self.caller.payer)?;
        Ok(ticket.run(async { question(authorizer) }).await)
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
