//! Query parameters of the verbs, checked.

use http::header::USER_AGENT;
use meta::{FieldError, FieldErrors, FieldSelector, GroupKind, LabelSelector, Status};
use registry::{ListOptions, Review, WatchOptions, WriteOptions};
use schema::{check::FieldValidation, patch::PatchKind};

use crate::{chain::Exchange, request::Query};

/// The longest name of a manager, as upstream.
const MAX_MANAGER: usize = 128;

pub(super) fn write<'a>(
    exchange: &'a Exchange,
    kind: &str,
    review: &'a Review,
) -> Result<WriteOptions<'a>, Status> {
    let dry_run = dry_run(&exchange.query, kind)?;
    let field_validation = field_validation(&exchange.query, kind)?;
    Ok(WriteOptions { dry_run, manager: manager(exchange, kind)?, field_validation, review })
}

/// `fieldValidation=Strict|Warn|Ignore`
pub(super) fn field_validation(query: &Query, kind: &str) -> Result<FieldValidation, Status> {
    let value = query.get("fieldValidation");
    FieldValidation::parse(value).ok_or_else(|| {
        let error = FieldError::not_supported("fieldValidation", value, &FieldValidation::SUPPORTED);
        Status::invalid(&GroupKind::new("meta.k8s.io", kind), "", error)
    })
}

/// The options of a patch. Who applies must say who it is, and only who applies can force.
pub(super) fn patch<'a>(
    exchange: &'a Exchange,
    patch: PatchKind,
    review: &'a Review,
) -> Result<WriteOptions<'a>, Status> {
    const KIND: &str = "PatchOptions";
    let query = &exchange.query;
    let mut errors = FieldErrors::default();
    if patch == PatchKind::Apply {
        if query.get("fieldManager").is_empty() {
            errors.push(FieldError::required("fieldManager", "is required for apply patch"));
        }
    } else if query.has("force") {
        errors.push(FieldError::forbidden("force", "may not be specified for non-apply patch"));
    }
    if !errors.is_empty() {
        return Err(errors.into_status(&GroupKind::new("meta.k8s.io", KIND), ""));
    }
    write(exchange, KIND, review)
}

/// `fieldManager`, or what the client calls itself up to the first slash.
fn manager<'a>(exchange: &'a Exchange, kind: &str) -> Result<&'a str, Status> {
    let name = exchange.query.get("fieldManager");
    let refuse = |error| Err(Status::invalid(&GroupKind::new("meta.k8s.io", kind), "", error));
    if name.len() > MAX_MANAGER {
        return refuse(FieldError::too_long("fieldManager", MAX_MANAGER));
    }
    if name.chars().any(char::is_control) {
        let detail = "should only contain printable characters";
        return refuse(FieldError::invalid("fieldManager", name, detail));
    }
    if !name.is_empty() {
        return Ok(name);
    }
    let agent = exchange.headers.get(USER_AGENT).and_then(|it| it.to_str().ok()).unwrap_or_default();
    let agent = agent.split(['/', '\t']).next().unwrap_or_default();
    // A header that is text is ASCII: every byte is a character.
    Ok(&agent[..agent.len().min(MAX_MANAGER)])
}

/// `dryRun=All` or nothing.
pub(super) fn dry_run(query: &Query, kind: &str) -> Result<bool, Status> {
    let mut is_dry = false;
    for value in query.all("dryRun") {
        if value != "All" {
            let error = FieldError::not_supported("dryRun", value, &["All"]);
            return Err(Status::invalid(&GroupKind::new("meta.k8s.io", kind), "", error));
        }
        is_dry = true;
    }
    Ok(is_dry)
}

pub(super) fn list(query: &Query) -> Result<ListOptions, Status> {
    let limit = match query.get("limit") {
        "" => None,
        text => Some(number(text)?),
    };
    Ok(ListOptions {
        labels: labels(query)?,
        fields: fields(query)?,
        limit,
        continue_token: query.get("continue").to_owned(),
        resource_version: query.get("resourceVersion").to_owned(),
        resource_version_match: query.get("resourceVersionMatch").to_owned(),
    })
}

pub(super) fn watch(query: &Query) -> Result<WatchOptions, Status> {
    let send_initial_events = query.has("sendInitialEvents").then(|| query.is_true("sendInitialEvents"));
    Ok(WatchOptions {
        labels: labels(query)?,
        fields: fields(query)?,
        resource_version: query.get("resourceVersion").to_owned(),
        resource_version_match: query.get("resourceVersionMatch").to_owned(),
        allow_bookmarks: query.is_true("allowWatchBookmarks"),
        send_initial_events,
    })
}

/// A number that is not negative.
pub(super) fn number(text: &str) -> Result<u64, Status> {
    match text.parse::<i64>() {
        Ok(number) => Ok(u64::try_from(number).unwrap_or(0)),
        Err(_) => Err(Status::bad_request(format!("strconv.ParseInt: parsing {text:?}: invalid syntax"))),
    }
}

fn labels(query: &Query) -> Result<LabelSelector, Status> {
    LabelSelector::parse(query.get("labelSelector")).map_err(|it| Status::bad_request(it.to_string()))
}

fn fields(query: &Query) -> Result<FieldSelector, Status> {
    FieldSelector::parse(query.get("fieldSelector")).map_err(|it| Status::bad_request(it.to_string()))
}
