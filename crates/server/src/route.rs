//! Which server answers a request: collects the facts for `fleet::route`, and catches up with the store when it asks for
//! that.
//!
//! Deliberately not here: the decision itself, and how a request is handed on ([`crate::forward`]).

use catalog::Verb;
use fleet::{
    MemberRecord,
    offer::Need,
    route::{self, Absence, Asked, Here, Known, Reach},
};
use meta::{GroupResource, Release, RetryAfter, Status};

use crate::{
    authorize::Authorized,
    chain::{Chain, Envelope},
    denial,
    forward::{Candidate, MARK},
    negotiate::discovery::{Profile, Wanted},
    request::ResourcePath,
    storage_gate,
};

/// The header in which clients name the release that they were made for.
pub const COMPATIBILITY: &str = "x-kubernetes-compatibility-version";

/// Where a request goes.
#[derive(Debug)]
pub(crate) enum Route {
    /// This server answers; with a proof if it is to say that nobody has what is asked for.
    Here(Option<Absence>),
    /// One of these servers does. Lists of equals, best first.
    There(Vec<Vec<Candidate>>),
}

/// Decides; 503 if it cannot be told.
pub(crate) async fn step(chain: &Chain, request: &Authorized<'_>) -> Result<Route, Status> {
    let Some(path) = request.resource() else { return document(chain, request).await };
    let asked = Asked {
        need: need(request, path),
        compatibility: compatibility(request.envelope())?,
        is_forwarded: is_forwarded(chain, request.envelope()),
    };
    let mut reach = Reach::Unchecked;
    let route = loop {
        let here = here(chain, request, path);
        let decided = with_known(chain, here, reach, forwards(chain), |known| route::route(&asked, known));
        match decided {
            Decided::Route(route) => break route,
            Decided::CatchUp => {
                let resource = GroupResource::new(path.group.as_str(), path.resource.as_str());
                reach = catch_up(chain, Some(&resource), forwards(chain)).await;
            }
            Decided::Failed(status) => return Err(status),
        }
    };
    if matches!(route, Route::Here(None)) && !asked.is_forwarded && forwards(chain) {
        if let Some(servers) = readers(chain, path, &asked.need) {
            return Ok(Route::There(servers));
        }
        // A write that must wait here may pass elsewhere.
        return Ok(elsewhere(chain, request, &asked).unwrap_or(route));
    }
    Ok(route)
}

/// Members that can read what this server could not decode, after it answered with `code`. It may have heard of such a value only while it read: the
/// read waits for the newest revision, the route does not.
pub(crate) fn after_failure(
    chain: &Chain,
    request: &Authorized<'_>,
    code: u16,
) -> Option<Vec<Vec<Candidate>>> {
    let path = request.resource()?;
    let is_read = matches!(request.verb(), "get" | "list" | "watch");
    if code != 500 || !is_read || !forwards(chain) || is_forwarded(chain, request.envelope()) {
        return None;
    }
    readers(chain, path, &need(request, path))
}

fn need<'a>(request: &'a Authorized<'_>, path: &'a ResourcePath) -> Need<'a> {
    Need {
        group: &path.group,
        version: &path.version,
        resource: &path.resource,
        subresource: &path.subresource,
        verb: request.verb(),
    }
}

/// The same for what is outside of resources. Documents speak for all servers and all definitions; everything else is
/// this server's own.
async fn document(chain: &Chain, request: &Authorized<'_>) -> Result<Route, Status> {
    let exchange = request.envelope();
    let segments: Vec<&str> = request.path().split('/').filter(|it| !it.is_empty()).collect();
    if !matches!(segments.first(), Some(&("api" | "apis" | "openapi"))) {
        return Ok(Route::Here(None));
    }
    let is_alone = Wanted::of(exchange.header("accept")).profile == Profile::NoPeer;
    let forwards = forwards(chain) && !is_alone;
    let elsewhere = match segments.as_slice() {
        ["openapi", "v3", "apis", group, version] => Some((*group, *version)),
        ["openapi", "v3", "api", version] => Some(("", *version)),
        _ => None,
    };
    let is_forwarded = is_forwarded(chain, exchange);
    let mut reach = Reach::Unchecked;
    loop {
        let here = match chain.dispatch.has_document(request, &segments) {
            true if exchange.method == http::Method::GET => Here::Offered,
            true => Here::Misplaced,
            false => Here::Unknown,
        };
        let decided =
            with_known(chain, here, reach, forwards, |known| route::document(elsewhere, is_forwarded, known));
        match decided {
            Decided::Route(route) => return Ok(route),
            Decided::CatchUp => reach = catch_up(chain, None, forwards).await,
            Decided::Failed(status) => return Err(status),
        }
    }
}

enum Decided {
    Route(Route),
    CatchUp,
    Failed(Status),
}

/// Decides by what this server knows now.
fn with_known(
    chain: &Chain,
    here: Here,
    reach: Reach,
    forwards: bool,
    decide: impl for<'a> FnOnce(&Known<'a>) -> route::Route<'a>,
) -> Decided {
    let station = chain.dispatch.registry.station();
    let (members, is_complete) = station.members();
    let known = Known {
        me: station.identity(),
        emulated: station.config().emulated,
        here,
        members: &members,
        is_complete,
        reach,
        forwards,
    };
    match decide(&known) {
        route::Route::Here => Decided::Route(Route::Here(None)),
        route::Route::Absent(absence) => Decided::Route(Route::Here(Some(absence))),
        route::Route::Forward(lists) => Decided::Route(Route::There(candidates(lists))),
        route::Route::CatchUp => Decided::CatchUp,
        route::Route::Unsure => Decided::Failed(denial::unsure()),
        route::Route::Misdirected => Decided::Failed(misdirected()),
    }
}

fn candidates(lists: Vec<Vec<&MemberRecord>>) -> Vec<Vec<Candidate>> {
    let candidate =
        |it: &MemberRecord| Candidate { identity: it.identity.clone(), address: it.peer_address.clone() };
    lists.into_iter().map(|it| it.into_iter().map(candidate).collect()).collect()
}

/// What this server has of what is asked for.
fn here(chain: &Chain, request: &Authorized<'_>, path: &ResourcePath) -> Here {
    let Some((kind, served)) = chain.dispatch.find(path) else { return Here::Unknown };
    let verb = request.verb();
    match denial::check(&served, request.info(), path, &request.envelope().method) {
        // Nothing is created any more while a definition goes; it may have been made anew since.
        Ok(Verb::Create) if kind.custom.as_ref().is_some_and(|it| it.is_terminating()) => Here::Known,
        Ok(_) => Here::Offered,
        Err(_) => {
            let subresource = Some(path.subresource.as_str()).filter(|it| !it.is_empty());
            let is_offered = Verb::parse(verb).is_some_and(|it| served.offers(subresource, it));
            if is_offered { Here::Misplaced } else { Here::Known }
        }
    }
}

/// Members that can decode what is stored of what is asked for, where this server cannot.
fn readers(chain: &Chain, path: &ResourcePath, need: &Need<'_>) -> Option<Vec<Vec<Candidate>>> {
    let (kind, _) = chain.dispatch.find(path)?;
    let registry = &chain.dispatch.registry;
    let versions = registry.unknown_versions(&kind, path.home(), &path.name);
    if versions.is_empty() || need.verb == "create" {
        return None;
    }
    let (record, station) = (&kind.definition.record, registry.station());
    let (members, _) = station.members();
    let decodes = |it: &&MemberRecord| versions.iter().all(|version| it.decodes(record, version));
    let capable: Vec<&MemberRecord> = members
        .iter()
        .filter(|it| it.identity != *station.identity() && it.persisted.contains_key(record))
        .filter(|it| it.offer.covers(need))
        .filter(decodes)
        .collect();
    (!capable.is_empty()).then(|| candidates(vec![capable]))
}

/// Members that may write now what this server must not write yet.
fn elsewhere(chain: &Chain, request: &Authorized<'_>, asked: &Asked<'_>) -> Option<Route> {
    let record = storage_gate::closed(chain, request)?;
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

/// Knows everything that was stored when this was called: the members, and the definition that is asked for, or all.
async fn catch_up(chain: &Chain, resource: Option<&GroupResource>, with_members: bool) -> Reach {
    let registry = &chain.dispatch.registry;
    let members =
        async { if with_members { registry.station().catch_up().await.map(Some) } else { Ok(None) } };
    let definitions = async {
        let caught_up = match resource {
            Some(resource) => registry.catch_up_definition(resource).await,
            None => registry.catch_up_definitions().await,
        };
        caught_up.map_err(|it| it.to_string())
    };
    match tokio::try_join!(members, definitions) {
        Ok((members, definitions)) => Reach::AsOf(members.map_or(definitions, |it| it.min(definitions))),
        Err(why) => {
            tracing::warn!(why, "whether another server has what is asked for cannot be told");
            Reach::Failed
        }
    }
}

fn forwards(chain: &Chain) -> bool {
    chain.dispatch.catalog.gates().enabled(catalog::Gate::UnknownVersionInteroperabilityProxy)
}

/// Whether a server of this cluster has handed the request on already: only they are believed.
pub(crate) fn is_forwarded(chain: &Chain, exchange: &Envelope) -> bool {
    exchange.header(MARK) == "true" && chain.authenticator.is_peer(exchange)
}

/// The release that the client was made for, if it says so.
fn compatibility(exchange: &Envelope) -> Result<Option<Release>, Status> {
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

fn misdirected() -> Status {
    Status::unavailable(
        "the request was proxied to this apiserver by a peer, and the resource is not served here",
        RetryAfter::not_begun(1),
    )
}
