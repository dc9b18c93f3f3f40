//! `pods/eviction`, `pods/binding` and the older `bindings`.

use meta::{Reason, Status, Value, object};
use registry::{DeleteOptions, Target, WriteOptions};

use super::{Call, delete, options};
use crate::{
    admit::Admitter,
    answer::{self, Answer},
    body::RequestBody,
    negotiate,
};

/// `POST …/pods/{name}/eviction`
pub(super) async fn evict(call: &mut Call<'_>, body: RequestBody) -> Result<Answer, Status> {
    negotiate::response(&call.exchange.headers, &call.exchange.query)?;
    let options = options::write(call.exchange, "CreateOptions", &registry::Anything)?;
    let (mut eviction, warnings) = call.read_accepted(&options, body).await?;
    Admitter::of(call).answered(&call.target, &mut eviction).await?;
    check_namespace(call, &eviction)?;
    if object::name(&eviction) != call.target.name {
        return Err(Status::bad_request("name in URL does not match name in Eviction object"));
    }
    let deletion = deletion(&eviction, &options)?;
    call.registry.evict(&call.target, &deletion).await?;
    Ok(done(call, &warnings))
}

/// `POST …/pods/{name}/binding`
pub(super) async fn bind(call: &mut Call<'_>, body: RequestBody) -> Result<Answer, Status> {
    negotiate::response(&call.exchange.headers, &call.exchange.query)?;
    let options = options::write(call.exchange, "CreateOptions", &registry::Anything)?;
    let (mut binding, warnings) = call.read_accepted(&options, body).await?;
    Admitter::of(call).answered(&call.target, &mut binding).await?;
    bind_to(call, &call.target.clone(), &options, &binding).await?;
    Ok(done(call, &warnings))
}

/// `POST …/bindings`: the name of the pod is in the body.
pub(crate) async fn bind_named(call: &mut Call<'_>, body: RequestBody) -> Result<Answer, Status> {
    negotiate::response(&call.exchange.headers, &call.exchange.query)?;
    let options = options::write(call.exchange, "CreateOptions", &registry::Anything)?;
    let (mut binding, warnings) = call.read_accepted(&options, body).await?;
    Admitter::of(call).answered(&call.target, &mut binding).await?;
    let pods = call.registry.kinds().get(&meta::GroupResource::new("", "pods"));
    let kind = pods.ok_or_else(Status::no_such_resource)?;
    let name = object::name(&binding).to_owned();
    let target = Target { kind, name, ..call.target.clone() };
    bind_to(call, &target, &options, &binding).await?;
    Ok(done(call, &warnings))
}

async fn bind_to(
    call: &Call<'_>,
    target: &Target,
    options: &WriteOptions<'_>,
    binding: &Value,
) -> Result<(), Status> {
    check_namespace(call, binding)?;
    call.registry.bind(target, options, binding).await
}

fn check_namespace(call: &Call<'_>, object: &Value) -> Result<(), Status> {
    let own = object::namespace(object);
    if own.is_empty() || own == call.target.namespace {
        return Ok(());
    }
    let message = "the namespace of the provided object does not match the namespace sent on the request";
    Err(Status::bad_request(message))
}

/// The options of the eviction; a dry run may be asked for there or in the query.
fn deletion(eviction: &Value, options: &WriteOptions<'_>) -> Result<DeleteOptions, Status> {
    let mut deletion = match eviction.get("deleteOptions") {
        Some(object) => delete::from_body(object.clone())?,
        None => DeleteOptions::default(),
    };
    match (deletion.dry_run.is_empty(), options.dry_run) {
        (true, true) => deletion.dry_run = vec!["All".to_owned()],
        (false, true) if deletion.dry_run != ["All"] => {
            let own = deletion.dry_run.join(" ");
            let message = format!("Non-matching dry-run options in request and content: [All] and [{own}]");
            return Err(Status::failure(500, Reason::Unknown, message));
        }
        _ => {}
    }
    Ok(deletion)
}

fn done(call: &Call<'_>, warnings: &[String]) -> Answer {
    let answer = answer::status(call.exchange, Status::created());
    let answer = Answer { failure: None, ..answer };
    warnings.iter().fold(answer, |answer, warning| answer.warn(warning))
}
