//! Whether a request that another server handed on comes from a server of this cluster.
//!
//! Certificates alone do not say so: a copy of a cluster has the same ones. What a sender says of itself is compared with
//! the record that it wrote into the store, which nobody but a member of this cluster could.
//! Deliberately not here: headers, certificates, and catching up with the store before somebody counts as unknown.

use crate::{ClusterId, Incarnation, MemberRecord};

/// What a sender says of itself beside its identity. Servers of 0.1.0 say nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Claim<'a> {
    /// The process.
    pub incarnation: Option<&'a str>,
    /// The cluster that it joined.
    pub cluster: Option<&'a str>,
}

/// What to make of a sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// A member of this cluster.
    Member,
    /// A server of another cluster, such as a copy of this one.
    OtherCluster,
    /// No member as far as is known; after catching up with the store: no member.
    Unknown,
}

/// Judges a sender. `own` is the id of this cluster, `member` the record under the identity that the sender names.
///
/// A member whose record names a cluster is of a release that also says so in requests: it must say the same, and be the
/// very process that is recorded. A member of 0.1.0 is believed by its identity alone, so that servers can be replaced one
/// by one; that ends when the last of them has been.
pub fn judge(claim: &Claim<'_>, own: Option<&ClusterId>, member: Option<&MemberRecord>) -> Verdict {
    if let (Some(claimed), Some(own)) = (claim.cluster, own)
        && claimed != own.as_str()
    {
        return Verdict::OtherCluster;
    }
    let Some(member) = member else { return Verdict::Unknown };
    let is_this_process = claim.incarnation == Some(member.incarnation.as_str());
    let is_this_cluster = own.is_some() && claim.cluster == own.map(ClusterId::as_str);
    let is_of_old = member.cluster.is_none() && *claim == Claim::default();
    if is_of_old || is_this_process && is_this_cluster { Verdict::Member } else { Verdict::Unknown }
}

impl<'a> Claim<'a> {
    /// What a member of a cluster says.
    pub fn of(incarnation: &'a Incarnation, cluster: Option<&'a ClusterId>) -> Self {
        Self { incarnation: Some(incarnation.as_str()), cluster: cluster.map(ClusterId::as_str) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{V1, member};

    fn judged(
        claim: (Option<&str>, Option<&str>),
        own: Option<&str>,
        recorded: Option<Option<&str>>,
    ) -> Verdict {
        let record = recorded.map(|cluster| MemberRecord {
            cluster: cluster.map(ClusterId::new),
            ..member("a", "1", V1, &[V1])
        });
        let claim = Claim { incarnation: claim.0, cluster: claim.1 };
        judge(&claim, own.map(ClusterId::new).as_ref(), record.as_ref())
    }

    #[test]
    fn only_the_recorded_process_of_this_cluster_is_believed() {
        let (one, two) = (Some("1"), Some("2"));
        let (ours, theirs) = (Some("ours"), Some("theirs"));
        for (claim, own, recorded, expected) in [
            ((one, ours), ours, Some(ours), Verdict::Member),
            // A copy of this cluster: another id, or, made without Convoy, another process.
            ((one, theirs), ours, Some(ours), Verdict::OtherCluster),
            ((one, theirs), ours, None, Verdict::OtherCluster),
            ((two, ours), ours, Some(ours), Verdict::Unknown),
            // Not a member, or not yet known to be one.
            ((one, ours), ours, None, Verdict::Unknown),
            ((one, ours), None, Some(ours), Verdict::Unknown),
            // Who is recorded with an id also sends it.
            ((None, None), ours, Some(ours), Verdict::Unknown),
            ((one, None), ours, Some(ours), Verdict::Unknown),
            ((None, ours), ours, Some(ours), Verdict::Unknown),
            // Servers of 0.1.0 record none and send none.
            ((None, None), ours, Some(None), Verdict::Member),
            ((None, None), ours, None, Verdict::Unknown),
            ((two, ours), ours, Some(None), Verdict::Unknown),
            ((None, theirs), ours, Some(None), Verdict::OtherCluster),
        ] {
            assert_eq!(judged(claim, own, recorded), expected, "{claim:?} {own:?} {recorded:?}");
        }
    }
}
