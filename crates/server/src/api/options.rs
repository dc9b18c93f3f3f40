//! Query parameters of the verbs, checked.

use meta::{FieldError, FieldSelector, GroupKind, LabelSelector, Status};
use registry::{ListOptions, Review, WatchOptions, WriteOptions};

use crate::request::Query;

pub(super) fn write<'a>(query: &Query, kind: &str, review: &'a Review) -> Result<WriteOptions<'a>, Status> {
    Ok(WriteOptions { dry_run: dry_run(query, kind)?, review })
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
