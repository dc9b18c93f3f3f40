//! Which server answers a request: this one, another one, or nobody.
//!
//! One pure decision, in the order in which it is written in [`route`], and a shorter one for documents in [`document`].
//! Facts come in; where the request goes comes out.
//!
//! # Guarantees
//! That nobody has what is asked for is said only with an [`Absence`], and only these functions make one, from knowledge
//! that reaches up to a revision read after the request came ([`Reach::AsOf`]). Whoever gets [`Route::CatchUp`] catches
//! up with the store and asks once more. Deliberately not here: how a request is sent on
//! ([`server`](../../server/index.html)'s part), and which of several equal servers is taken.

use meta::Release;
use store::Revision;

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
    /// The resource, subresource and verb, but not at this path: in a namespace though it has none, or with a name too
    /// many. No other server would say anything else.
    Misplaced,
    /// The resource, but not the subresource or the verb.
    Known,
    /// Nothing.
    Unknown,
}

/// How far knowledge of members and definitions reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// As far as news has come by itself, which may be behind the store.
    Unchecked,
    /// The store was asked after the request came, and everything up to this revision is known.
    AsOf(Revision),
    /// The store was asked, and it is not known what it holds.
    Failed,
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
    /// Whether the records of the members were read, and each of them could be.
    pub is_complete: bool,
    /// How far all this reaches.
    pub reach: Reach,
    /// Whether this server hands requests on at all.
    pub forwards: bool,
}

/// Where a request goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route<'a> {
    /// This server answers it.
    Here,
    /// One of these answers it. Lists of equals, best first.
    Forward(Vec<Vec<&'a MemberRecord>>),
    /// Nobody has it as far as is known, which may not be far enough: catch up with the store and decide again.
    CatchUp,
    /// Nobody has it: 404 or 405.
    Absent(Absence),
    /// Somebody may have it whom this server does not know: 503.
    Unsure,
    /// Another server believed that this one has it: 503, and never a second hop.
    Misdirected,
}

/// Proof that nobody has what a request asks for. Only [`route`] and [`document`] make it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Absence {
    as_of: Revision,
    here: Here,
    is_alone: bool,
}

impl Absence {
    /// The revision as of which nobody had it.
    pub fn as_of(&self) -> Revision {
        self.as_of
    }

    /// What this server has of it.
    pub fn here(&self) -> Here {
        self.here
    }

    /// Whether this server spoke for itself alone.
    pub fn is_alone(&self) -> bool {
        self.is_alone
    }
}

/// Decides. The order of the steps is the order of precedence.
pub fn route<'a>(asked: &Asked<'_>, known: &Known<'a>) -> Route<'a> {
    let Known { here, emulated, .. } = *known;
    if asked.is_forwarded {
        return forwarded(known);
    }
    if here == Here::Misplaced {
        return absent(known, 0);
    }
    if !known.forwards {
        return if here == Here::Offered { Route::Here } else { absent(known, 0) };
    }
    let others = || known.members.iter().filter(|it| it.identity != *known.me);
    let capable: Vec<&MemberRecord> = others().filter(|it| it.offer.covers(&asked.need)).collect();
    if let Some(client) = asked.compatibility {
        return by_version(client, here, emulated, capable)
            .unwrap_or_else(|| absent(known, others().count()));
    }
    if here == Here::Offered {
        return Route::Here;
    }
    if !capable.is_empty() {
        return Route::Forward(vec![capable]);
    }
    absent(known, others().count())
}

/// Decides who answers a request for a document of discovery or of OpenAPI. Its `here` says whether there is such a
/// document, with what is known of the other servers merged into it.
///
/// A document denies by leaving out, so it is made from what the store holds now. If that cannot be read, what is known
/// is still shown: clients find their way by these documents, and nothing is done on what they do not list.
/// `elsewhere` is the group and version of a document that is not merged and comes from a server that has them.
pub fn document<'a>(elsewhere: Option<(&str, &str)>, is_forwarded: bool, known: &Known<'a>) -> Route<'a> {
    if known.reach == Reach::Unchecked {
        return Route::CatchUp;
    }
    if known.here == Here::Offered && (known.is_complete || !known.forwards) {
        return Route::Here;
    }
    if is_forwarded {
        return forwarded(known);
    }
    let others = || known.members.iter().filter(|it| it.identity != *known.me && known.forwards);
    let has =
        |it: &&MemberRecord| elsewhere.is_some_and(|(group, version)| it.offer.has_version(group, version));
    let capable: Vec<&MemberRecord> = others().filter(has).collect();
    if known.here == Here::Unknown && !capable.is_empty() {
        return Route::Forward(vec![capable]);
    }
    absent(known, others().count())
}

/// What another server has handed on is never denied for not being here: that server knows somebody who has it, or will
/// know better in a moment.
fn forwarded<'a>(known: &Known<'a>) -> Route<'a> {
    match (known.here, known.reach) {
        (Here::Offered, _) => Route::Here,
        (Here::Misplaced, _) => absent(known, 0),
        (Here::Known | Here::Unknown, Reach::Unchecked) => Route::CatchUp,
        (Here::Known | Here::Unknown, Reach::AsOf(_) | Reach::Failed) => Route::Misdirected,
    }
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

/// Nobody has it, once that is known to be so.
fn absent<'a>(known: &Known<'a>, n_others: usize) -> Route<'a> {
    match known.reach {
        Reach::Unchecked => Route::CatchUp,
        Reach::Failed => Route::Unsure,
        Reach::AsOf(_) if known.forwards && !known.is_complete => Route::Unsure,
        Reach::AsOf(as_of) => Route::Absent(Absence { as_of, here: known.here, is_alone: n_others == 0 }),
    }
}

#[cfg(test)]
mod tests;
