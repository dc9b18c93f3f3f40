//! What is wrong with the path of a request, and what it takes to say so: nobody in the cluster may have what it names.
//!
//! The only place that makes a 404 or 405 about a path. Deliberately not here: objects that are not found, and the
//! decision who answers ([`crate::route`]), which makes the proof.

use catalog::{Served, Verb};
use fleet::route::{Absence, Here};
use http::Method;
use meta::{RetryAfter, Status};

use crate::{
    answer::{self, Answer},
    request::{RequestInfo, ResourcePath},
};

/// What is wrong with a path, seen from one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Denial {
    /// 404
    NoSuchResource,
    /// 405
    MethodNotAllowed,
}

impl Denial {
    /// The answer if nobody has what the path names. Without a proof of that the server knew better a moment ago, when it
    /// was decided who answers.
    pub(crate) fn status(self, absence: Option<&Absence>) -> Status {
        match (self, absence) {
            (_, None) => unsure(),
            (Self::NoSuchResource, Some(_)) => Status::no_such_resource(),
            (Self::MethodNotAllowed, Some(_)) => Status::method_not_allowed(),
        }
    }
}

/// 404 for a resource that nobody has. Where there are other servers it says so, in the seed's words.
pub(crate) fn no_such_resource(path: &ResourcePath, absence: Option<&Absence>) -> Status {
    let mut status = Denial::NoSuchResource.status(absence);
    if absence.is_some_and(|it| it.here() == Here::Unknown && !it.is_alone()) {
        let group_version = meta::GroupVersion::new(path.group.as_str(), path.version.as_str());
        status.message = format!(
            "GVR {group_version}, Resource={} is not served by anything in this cluster",
            path.resource
        );
    }
    status
}

/// 404 in plain text, for a path below the documents.
pub(crate) fn page_not_found(absence: Option<&Absence>) -> Result<Answer, Status> {
    absence.map(|_| answer::page_not_found()).ok_or_else(unsure)
}

/// 503: somebody may have it.
pub(crate) fn unsure() -> Status {
    Status::unavailable(
        "it is not known yet whether another apiserver serves this resource",
        RetryAfter::not_begun(1),
    )
}

/// Whether a resource that is served has such a path.
pub(crate) fn check(
    served: &Served,
    info: &RequestInfo,
    path: &ResourcePath,
    method: &Method,
) -> Result<Verb, Denial> {
    check_place(served, info, path)?;
    check_offered(served, path, info.verb, method)
}

/// Whether objects of the resource are where the path looks for them: in a namespace or in none.
pub(crate) fn check_place(served: &Served, info: &RequestInfo, path: &ResourcePath) -> Result<(), Denial> {
    let is_misplaced = !served.definition.namespaced && path.is_in_namespace;
    let is_everywhere = served.definition.namespaced && !path.is_in_namespace;
    if info.is_gapped || is_misplaced || (is_everywhere && path.is_named) {
        return Err(Denial::NoSuchResource);
    }
    if is_everywhere && !matches!(info.verb, "list" | "watch") {
        // All namespaces at once can only be read.
        let can_list = served.offers(None, Verb::List);
        return Err(if can_list { Denial::MethodNotAllowed } else { Denial::NoSuchResource });
    }
    if !path.rest.is_empty() && path.subresource != "proxy" {
        return Err(Denial::NoSuchResource);
    }
    Ok(())
}

/// 404 if there is no such subresource, 405 if the verb is not offered on it.
pub(crate) fn check_offered(
    served: &Served,
    path: &ResourcePath,
    verb: &str,
    method: &Method,
) -> Result<Verb, Denial> {
    if verb == "proxy" || (verb == "watch" && !path.subresource.is_empty()) {
        // The old prefixes: of `watch` only objects and collections are left, of `proxy` nothing.
        return Err(Denial::NoSuchResource);
    }
    let verb = Verb::parse(verb).ok_or(Denial::MethodNotAllowed)?;
    let is_read = matches!(verb, Verb::Get | Verb::List | Verb::Watch);
    if is_read && method != Method::GET {
        // Upstream answers GET only, and what is below the old prefix can only be read.
        return Err(Denial::MethodNotAllowed);
    }
    let is_offered = match path.subresource.as_str() {
        "" => {
            let is_named = path.is_named;
            let is_collection = matches!(verb, Verb::List | Verb::Watch | Verb::DeleteCollection);
            let of_objects = [Verb::Get, Verb::Update, Verb::Patch, Verb::Delete];
            if is_named && !is_collection && !of_objects.iter().any(|it| served.offers(None, *it)) {
                return Err(Denial::NoSuchResource);
            }
            let fits = match verb {
                Verb::Get | Verb::Update | Verb::Patch | Verb::Delete => is_named,
                Verb::Create => !is_named,
                // These may name an object: in a field selector, or as a watch of just that one.
                Verb::List | Verb::Watch | Verb::DeleteCollection => true,
            };
            fits && served.offers(None, verb)
        }
        name => {
            served.subresource(name).ok_or(Denial::NoSuchResource)?;
            served.offers(Some(name), verb)
        }
    };
    if is_offered { Ok(verb) } else { Err(Denial::MethodNotAllowed) }
}
