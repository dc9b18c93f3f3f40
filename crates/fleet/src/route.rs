//! Which server answers a request: this one, another one, or nobody.
//!
//! One pure decision, in the order in which it is written in [`route`]. Facts come in; where the request goes comes out.
//! Deliberately not here: how a request is sent on ([`server`](../../server/index.html)'s part), which of several equal
//! servers is taken, and waiting for news: whoever gets [`Route::Nobody`] catches up with the store and asks once more.

use meta::Release;

use crate::{Identity, MemberRecord, Members, offer::Need};

/// The gate under which a server hands requests on.
pub const FEATURE: &str = "UnknownVersionInteroperabilityProxy";

/// A request, as far as its way depends on it.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// What it needs.
    pub need: Need<'a>,
    /// The release that the client was made for, if it says so.
    pub compatibility: Option<Release>,
    /// Another server has handed it on already.
    pub is_forwarded: bool,
}

/// What this server has of what is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Here {
    /// All of it.
    Offered,
    /// The resource, but not the subresource or the verb.
    Known,
    /// Nothing.
    Unknown,
}

/// What this server knows.
#[derive(Clone, Copy, Debug)]
pub struct Known<'a> {
    /// This server.
    pub me: &'a Identity,
    /// What it behaves as.
    pub emulated: Release,
    /// What it has itself, custom resources included.
    pub here: Here,
    /// The live members, this server included if it is one.
    pub members: &'a Members,
    /// Whether nothing can be missing: the records were read, and each of them could be.
    pub is_complete: bool,
    /// Whether this server hands requests on at all.
    pub forwards: bool,
}

/// Where a request goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route<'a> {
    /// This server answers it, if only to say why not.
    Here,
    /// One of these answers it. Lists of equals, best first.
    Forward(Vec<Vec<&'a MemberRecord>>),
    /// No member has it, as far as is known: 404. Says whether there are other members.
    Nobody {
        /// Whether this server is the only one.
        is_alone: bool,
    },
    /// Somebody may have it whom this server does not know: 503.
    Unsure,
    /// Another server believed that this one has it: 503, and never a second hop.
    Misdirected,
}

/// Decides. The order of the steps is the order of precedence.
pub fn route<'a>(asked: &Asked<'_>, known: &Known<'a>) -> Route<'a> {
    let Known { here, emulated, .. } = *known;
    if asked.is_forwarded {
        // What is known here but not offered is answered as a lone server would: 404 or 405 of that very object.
        return if here == Here::Unknown { Route::Misdirected } else { Route::Here };
    }
    if !known.forwards {
        return if here == Here::Unknown { Route::Nobody { is_alone: true } } else { Route::Here };
    }
    let is_other = |it: &&MemberRecord| it.identity != *known.me;
    let others = || known.members.iter().filter(is_other);
    let capable: Vec<&MemberRecord> = others().filter(|it| it.offer.covers(&asked.need)).collect();
    if let Some(client) = asked.compatibility {
        return by_version(client, here, emulated, capable)
            .unwrap_or_else(|| nobody(known, others().count()));
    }
    if here == Here::Offered {
        return Route::Here;
    }
    if !capable.is_empty() {
        return Route::Forward(vec![capable]);
    }
    nobody(known, others().count())
}

/// Equal first, then greater, then this server, then the newest of the older ones.
fn by_version<'a>(
    client: Release,
    here: Here,
    emulated: Release,
    capable: Vec<&'a MemberRecord>,
) -> Option<Route<'a>> {
    let is_here = here == Here::Offered;
    if is_here && emulated == client {
        return Some(Route::Here);
    }
    let (equal, rest): (Vec<_>, Vec<_>) = capable.into_iter().partition(|it| it.emulated == client);
    let (greater, older): (Vec<_>, Vec<_>) = rest.into_iter().partition(|it| it.emulated > client);
    let newer = [equal, greater].into_iter().filter(|it| !it.is_empty()).collect::<Vec<_>>();
    let best_is_equal = newer.first().is_some_and(|it| it[0].emulated == client);
    if is_here && emulated > client && !best_is_equal {
        return Some(Route::Here);
    }
    if !newer.is_empty() {
        return Some(Route::Forward(newer));
    }
    if is_here {
        return Some(Route::Here);
    }
    let newest = older.iter().map(|it| it.emulated).max()?;
    let (newest, older): (Vec<_>, Vec<_>) = older.into_iter().partition(|it| it.emulated == newest);
    Some(Route::Forward([newest, older].into_iter().filter(|it| !it.is_empty()).collect()))
}

fn nobody<'a>(known: &Known<'a>, n_others: usize) -> Route<'a> {
    match known.here {
        // This server says best what is wrong with it.
        Here::Offered | Here::Known => Route::Here,
        Here::Unknown if !known.is_complete => Route::Unsure,
        Here::Unknown => Route::Nobody { is_alone: n_others == 0 },
    }
}

#[cfg(test)]
mod tests;
