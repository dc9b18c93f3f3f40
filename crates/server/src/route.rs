//! Which server answers a request: collects the facts for `fleet::route`, and catches up with the store before it says
//! that nobody does.
//!
//! Deliberately not here: the decision itself, and how a request is handed on ([`crate::forward`]).

use catalog::Verb;
use fleet::{
    MemberRecord,
    offer::Need,
    route::{self, Asked, Here, Known},
};
use meta::{GroupResource, Release, Status};

use crate::{
    chain::{Caller, Chain, Exchange},
    forward::{Candidate, MARK},
    request::ResourcePath,
    storage_gate,
};

/// The header in which clients name the release that they were made for.
pub const COMPATIBILITY: &str = "x-kubernetes-compatibility-version";

/// Where a request goes.
#[derive(Debug)]
pub(crate) enum Route {
    /// This server answers.
    Here,
    /// One of these servers does. Lists of equals, best first.
    There(Vec<Vec<Candidate>>),
}

/// Decides; 404 if nobody has what is asked for, 503 if somebody may.
pub(crate) async fn step(chain: &Chain, exchange: &Exchange, caller: &Caller) -> Result<Route, Status> {
    let Some(path) = &exchange.info.resource else {
        know_the_others(chain, exchange).await?;
        return Ok(document(chain, exchange));
    };
    let asked = Asked {
        need: Need {
            group: &path.group,
            version: &path.version,
            resource: &path.resource,
            subresource: &path.subresource,
            verb: exchange.info.verb,
        },
        compatibility: compatibility(exchange)?,
        is_forwarded: is_forwarded(chain, exchange),
    };
    let route = match decide(chain, path, &asked) {
        Decided::Route(route) => route,
        Decided::Misdirected => return Err(misdirected()),
        Decided::Nobody { .. } | Decided::Unsure => {
            catch_up(chain, path).await?;
            match decide(chain, path, &asked) {
                Decided::Route(route) => route,
                // A lone server answers in upstream's words, which depend on the path.
                Decided::Nobody { is_alone: true } => Route::Here,
                Decided::Nobody { is_alone: false } => return Err(nobody(path)),
                Decided::Misdirected | Decided::Unsure => return Err(unsure()),
            }
        }
    };
    if matches!(route, Route::Here) && !asked.is_forwarded && forwards(chain) {
        // A write that must wait here may pass elsewhere.
        return Ok(elsewhere(chain, exchange, caller, &asked).unwrap_or(Route::Here));
    }
    Ok(route)
}

enum Decided {
    Route(Route),
    Nobody { is_alone: bool },
    Unsure,
    Misdirected,
}

fn decide(chain: &Chain, path: &ResourcePath, asked: &Asked<'_>) -> Decided {
    let station = chain.dispatch.registry.station();
    let (members, is_complete) = station.members();
    let known = Known {
        me: station.identity(),
        emulated: station.config().emulated,
        here: here(chain, path, asked.need.verb),
        members: &members,
        is_complete,
        forwards: forwards(chain),
    };
    match route::route(asked, &known) {
        route::Route::Here => Decided::Route(Route::Here),
        route::Route::Forward(lists) => Decided::Route(Route::There(candidates(lists))),
        route::Route::Nobody { is_alone } => Decided::Nobody { is_alone },
        route::Route::Unsure => Decided::Unsure,
        route::Route::Misdirected => Decided::Misdirected,
    }
}

fn candidates(lists: Vec<Vec<&MemberRecord>>) -> Vec<Vec<Candidate>> {
    let candidate =
        |it: &MemberRecord| Candidate { identity: it.identity.clone(), address: it.peer_address.clone() };
    lists.into_iter().map(|it| it.into_iter().map(candidate).collect()).collect()
}

/// What this server has of what is asked for.
fn here(chain: &Chain, path: &ResourcePath, verb: &str) -> Here {
    let Some((_, served)) = chain.dispatch.find(path) else { return Here::Unknown };
    let subresource = Some(path.subresource.as_str()).filter(|it| !it.is_empty());
    match Verb::parse(verb) {
        Some(verb) if served.offers(subresource, verb) => Here::Offered,
        _ => Here::Known,
    }
}

/// A document of OpenAPI about a group and version that only others have. Everything else outside of resources is this
/// server's own, or was merged already.
fn document(chain: &Chain, exchange: &Exchange) -> Route {
    let segments: Vec<&str> = exchange.info.path.split('/').filter(|it| !it.is_empty()).collect();
    let (group, version) = match segments.as_slice() {
        ["openapi", "v3", "apis", group, version] => (*group, *version),
        ["openapi", "v3", "api", version] => ("", *version),
        _ => return Route::Here,
    };
    let dispatch = &chain.dispatch;
    let path = segments[2..].join("/");
    if !forwards(chain)
        || is_forwarded(chain, exchange)
        || dispatch.catalog.has_group_version(group, version)
        || dispatch.served.openapi_document(&path).is_some()
    {
        return Route::Here;
    }
    let station = dispatch.registry.station();
    let (members, _) = station.members();
    let has = |it: &&MemberRecord| it.identity != *station.identity() && it.offer.has_version(group, version);
    let capable: Vec<&MemberRecord> = members.iter().filter(has).collect();
    if capable.is_empty() { Route::Here } else { Route::There(candidates(vec![capable])) }
}

/// Members that may write now what this server must not write yet.
fn elsewhere(chain: &Chain, exchange: &Exchange, caller: &Caller, asked: &Asked<'_>) -> Option<Route> {
    let record = storage_gate::closed(chain, exchange, caller)?;
    let station = chain.dispatch.registry.station();
    let writers = station.writers(&record);
    let (members, _) = station.members();
    let open: Vec<&MemberRecord> = members
        .iter()
        .filter(|it| it.identity != *station.identity() && writers.contains(&it.identity))
        .filter(|it| it.offer.covers(&asked.need))
        .collect();
    (!open.is_empty()).then(|| Route::There(candidates(vec![open])))
}

/// A document that speaks for all servers is not made by one that has just started and knows only itself: clients would
/// take what is missing in it for what is not there.
async fn know_the_others(chain: &Chain, exchange: &Exchange) -> Result<(), Status> {
    let first = exchange.info.path.trim_start_matches('/').split('/').next();
    let station = chain.dispatch.registry.station();
    if !matches!(first, Some("api" | "apis" | "openapi")) || !forwards(chain) || station.members().1 {
        return Ok(());
    }
    station.catch_up().await.map_err(|why| {
        tracing::warn!(why, "what the other servers have cannot be told");
        unsure()
    })
}

/// Knows everything that was stored when this was called: members, and the definition that is asked for.
async fn catch_up(chain: &Chain, path: &ResourcePath) -> Result<(), Status> {
    let registry = &chain.dispatch.registry;
    let resource = GroupResource::new(path.group.as_str(), path.resource.as_str());
    let (members, definition) =
        tokio::join!(registry.station().catch_up(), registry.catch_up_definition(&resource));
    let behind = |why: String| {
        tracing::warn!(why, "whether another server has what is asked for cannot be told");
        unsure()
    };
    members.map_err(behind)?;
    definition.map_err(|it| behind(it.to_string()))
}

fn forwards(chain: &Chain) -> bool {
    chain.dispatch.catalog.gates().enabled(catalog::Gate::UnknownVersionInteroperabilityProxy)
}

/// Whether a server of this cluster has handed the request on already: only they are believed.
pub(crate) fn is_forwarded(chain: &Chain, exchange: &Exchange) -> bool {
    exchange.header(MARK) == "true" && chain.authenticator.is_peer(exchange)
}

/// The release that the client was made for, if it says so.
fn compatibility(exchange: &Exchange) -> Result<Option<Release>, Status> {
    let text = exchange.header(COMPATIBILITY);
    if text.is_empty() {
        return Ok(None);
    }
    let wrong = |_| {
        let shown: String = text.chars().take(64).collect();
        Status::bad_request(format!("{COMPATIBILITY} must be a release such as 1.36, not {shown:?}"))
    };
    text.trim_start_matches('v').parse().map(Some).map_err(wrong)
}

/// The seed's words.
fn nobody(path: &ResourcePath) -> Status {
    let group_version = meta::GroupVersion::new(path.group.as_str(), path.version.as_str());
    let mut status = Status::no_such_resource();
    status.message =
        format!("GVR {group_version}, Resource={} is not served by anything in this cluster", path.resource);
    status
}

fn unsure() -> Status {
    Status::unavailable("it is not known yet whether another apiserver serves this resource", 1)
}

fn misdirected() -> Status {
    Status::unavailable(
        "the request was proxied to this apiserver by a peer, and the resource is not served here",
        1,
    )
}
