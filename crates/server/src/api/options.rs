//! Query parameters of the verbs, checked.

use std::num::IntErrorKind;

use http::header::USER_AGENT;
use meta::{FieldError, FieldErrors, GroupKind, Status};
use registry::{Admit, DeleteOptions, ListOptions, WatchOptions, WriteOptions};
use schema::{check::FieldValidation, patch::PatchKind};
use serde_json::json;

use super::Call;
use crate::{
    chain::Envelope,
    request::{Query, Selection},
};

/// The longest name of a manager, as upstream.
const MAX_MANAGER: usize = 128;

/// The options of a create or update; `kind` is what they are called.
pub(crate) fn write<'a>(
    exchange: &'a Envelope,
    kind: &str,
    admit: &'a dyn Admit,
) -> Result<WriteOptions<'a>, Status> {
    checked(exchange, kind, FieldErrors::default(), admit)
}

/// The options of a patch. Who applies must say who it is, and only who applies can force.
pub(super) fn patch<'a>(
    exchange: &'a Envelope,
    patch: PatchKind,
    admit: &'a dyn Admit,
) -> Result<WriteOptions<'a>, Status> {
    let query = &exchange.query;
    let mut errors = FieldErrors::default();
    if patch == PatchKind::Apply {
        if query.get("fieldManager").is_empty() {
            errors.push(FieldError::required("fieldManager", "is required for apply patch"));
        }
    } else if query.has("force") {
        errors.push(FieldError::forbidden("force", "may not be specified for non-apply patch"));
    }
    checked(exchange, "PatchOptions", errors, admit)
}

/// All complaints about the options come at once, in upstream's order.
fn checked<'a>(
    exchange: &'a Envelope,
    kind: &str,
    mut errors: FieldErrors,
    admit: &'a dyn Admit,
) -> Result<WriteOptions<'a>, Status> {
    let query = &exchange.query;
    check_manager(query.get("fieldManager"), &mut errors);
    let dry_run: Vec<&str> = query.all("dryRun").collect();
    if dry_run.iter().any(|it| *it != "All") {
        errors.push(FieldError::not_supported_shown("dryRun", json!(dry_run).to_string(), &["All"]));
    }
    let validation = query.get("fieldValidation");
    let field_validation = FieldValidation::parse(validation);
    if field_validation.is_none() {
        let supported = &FieldValidation::SUPPORTED;
        errors.push(FieldError::not_supported("fieldValidation", validation, supported));
    }
    if !errors.is_empty() {
        return Err(errors.into_status(&GroupKind::new("meta.k8s.io", kind), ""));
    }
    Ok(WriteOptions {
        dry_run: !dry_run.is_empty(),
        manager: manager(exchange),
        field_validation: field_validation.unwrap_or_default(),
        admit,
        grounds: exchange.grounds()?,
    })
}

fn check_manager(name: &str, errors: &mut FieldErrors) {
    if name.len() > MAX_MANAGER {
        errors.push(FieldError::too_long("fieldManager", MAX_MANAGER));
    }
    for (position, odd) in name.char_indices().filter(|(_, it)| it.is_control()) {
        let detail = format!("invalid character U+{:04X} (at position {position})", u32::from(odd));
        errors.push(FieldError::invalid("fieldManager", name, detail));
    }
}

/// `fieldManager`, or what the client calls itself up to the first slash.
fn manager(exchange: &Envelope) -> &str {
    let name = exchange.query.get("fieldManager");
    if !name.is_empty() {
        return name;
    }
    let agent = exchange.headers.get(USER_AGENT).and_then(|it| it.to_str().ok()).unwrap_or_default();
    let agent = agent.split(['/', '\t']).next().unwrap_or_default();
    // A header that is text is ASCII: every byte is a character.
    &agent[..agent.len().min(MAX_MANAGER)]
}

/// What a DELETE without a body asks for. With a body these are not looked at, as upstream.
pub(super) fn delete(query: &Query) -> Result<DeleteOptions, Status> {
    let grace =
        query.has("gracePeriodSeconds").then(|| integer(query.get("gracePeriodSeconds"))).transpose()?;
    Ok(DeleteOptions {
        grace_period_seconds: grace,
        preconditions: None,
        propagation_policy: query.has("propagationPolicy").then(|| query.get("propagationPolicy").to_owned()),
        orphan_dependents: query.has("orphanDependents").then(|| query.is_true("orphanDependents")),
        dry_run: query.all("dryRun").map(str::to_owned).collect(),
        ignore_store_read_error_with_cluster_breaking_potential: query
            .has("ignoreStoreReadErrorWithClusterBreakingPotential")
            .then(|| query.is_true("ignoreStoreReadErrorWithClusterBreakingPotential")),
    })
}

/// What a LIST, or a DELETE of a collection, asks for.
pub(super) fn list(call: &Call<'_>) -> Result<ListOptions, Status> {
    let query = &call.exchange.query;
    if query.has("timeoutSeconds") {
        // Lists do not use it, but it must be a number.
        number(query.get("timeoutSeconds"))?;
    }
    let limit = match query.get("limit") {
        "" => None,
        text => Some(number(text)?),
    };
    let Selection { labels, fields } = call.asked.selection()?.clone();
    Ok(ListOptions {
        labels,
        fields,
        limit,
        continue_token: query.get("continue").to_owned(),
        resource_version: query.get("resourceVersion").to_owned(),
        resource_version_match: query.get("resourceVersionMatch").to_owned(),
        send_initial_events: initial_events(query),
    })
}

fn initial_events(query: &Query) -> Option<bool> {
    query.has("sendInitialEvents").then(|| query.is_true("sendInitialEvents"))
}

/// What a WATCH asks for. A watch of one object is a watch of its collection that looks at one name.
pub(super) fn watch(call: &Call<'_>) -> Result<WatchOptions, Status> {
    let query = &call.exchange.query;
    let Selection { labels, fields } = call.asked.selection()?.clone();
    Ok(WatchOptions {
        labels,
        fields,
        resource_version: query.get("resourceVersion").to_owned(),
        resource_version_match: query.get("resourceVersionMatch").to_owned(),
        allow_bookmarks: query.is_true("allowWatchBookmarks"),
        send_initial_events: initial_events(query),
        continue_token: query.get("continue").to_owned(),
    })
}

/// A number; what is less than nothing counts as nothing.
pub(super) fn number(text: &str) -> Result<u64, Status> {
    integer(text).map(|it| u64::try_from(it).unwrap_or(0))
}

/// A number, or 400 in the words of Go's parser.
fn integer(text: &str) -> Result<i64, Status> {
    text.parse::<i64>().map_err(|error| {
        let why = match error.kind() {
            IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => "value out of range",
            _ => "invalid syntax",
        };
        Status::bad_request(format!("strconv.ParseInt: parsing {text:?}: {why}"))
    })
}
