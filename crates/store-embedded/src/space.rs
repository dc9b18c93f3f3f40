//! How full the store and its disk are, and what may still be written then. Sizes come in, decisions go out; only
//! [`look`] touches the disk.
//!
//! # Flow
//! Before every commit the writer says how much is stored and how much of the disk is free ([`Space::look`]). Whoever
//! would go beyond the quota, or write to a disk that is nearly full, raises an alarm, as etcd's `NOSPACE`: from then on
//! only what frees space, keeps it or must not wait is written ([`Space::admit`]). The alarm ends by itself.
//!
//! # Guarantees
//! - Removals are always admitted. A file as large as [`Limits::reserve`] lies beside the store and is given up for them
//!   when the disk is full, whoever filled it.

use store::{Change, Key, Txn};

use crate::{record, volume::Volume};

/// By how many bytes a value may grow and still count as kept: the mark of a deletion is no more.
const SLACK: usize = 256;

/// How much there may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// How many bytes may be stored; no limit if not given.
    pub(crate) quota: Option<u64>,
    /// How much of the disk is kept for removals; nothing is looked after if zero.
    pub(crate) reserve: u64,
    /// Transactions that write below these prefixes never wait: a server cannot do without them.
    pub(crate) essential: Vec<String>,
}

/// Why little is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Alarm {
    /// As much is stored as may be.
    Quota { used: u64, quota: u64 },
    /// The disk is nearly full.
    Disk { free: u64 },
}

/// What becomes of the reserve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// It stays as it is.
    Stay,
    /// It is given up: removals need it.
    Release,
    /// It is made, there is space again.
    Keep,
}

/// What a transaction does to the space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Demand {
    /// It only removes.
    Frees,
    /// A server cannot do without it.
    Essential,
    /// It replaces values by others that are hardly larger.
    Keeps,
    /// It adds something.
    Grows,
}

/// How full it is, as far as it was looked at.
#[derive(Debug)]
pub(crate) struct Space {
    limits: Limits,
    quota_alarm: Option<Alarm>,
    disk_alarm: Option<Alarm>,
    has_reserve: bool,
}

impl Space {
    pub(crate) fn new(limits: Limits, has_reserve: bool) -> Self {
        Self { limits, quota_alarm: None, disk_alarm: None, has_reserve }
    }

    /// Takes in how much is stored and, if that is known, free. Says what becomes of the reserve.
    pub(crate) fn look(&mut self, used: u64, free: Option<u64>) -> Step {
        if let Some(quota) = self.limits.quota {
            self.quota_alarm = self
                .quota_alarm
                // Well below, so that it does not come and go.
                .filter(|_| used > quota - quota / 20)
                .map(|_| Alarm::Quota { used, quota });
        }
        let reserve = self.limits.reserve;
        let Some(free) = free.filter(|_| reserve > 0) else { return Step::Stay };
        let is_kept = self.has_reserve || free >= 2 * reserve;
        if free < reserve || !is_kept {
            self.disk_alarm = Some(Alarm::Disk { free });
        } else if self.has_reserve && free >= 2 * reserve {
            self.disk_alarm = None;
        }
        match self.has_reserve {
            true if free < reserve / 4 => Step::Release,
            false if is_kept => Step::Keep,
            _ => Step::Stay,
        }
    }

    /// The reserve was made, or given up.
    pub(crate) fn reserve_changed(&mut self, has_reserve: bool) {
        self.has_reserve = has_reserve;
        if !has_reserve && self.limits.reserve > 0 && self.disk_alarm.is_none() {
            self.disk_alarm = Some(Alarm::Disk { free: 0 });
        }
    }

    pub(crate) fn alarm(&self) -> Option<Alarm> {
        self.disk_alarm.or(self.quota_alarm)
    }

    /// Whether a transaction that costs so much may be written on top of what is stored.
    pub(crate) fn admit(&mut self, demand: Demand, cost: u64, used: u64) -> Result<(), Alarm> {
        if matches!(demand, Demand::Frees | Demand::Essential) {
            return Ok(());
        }
        if let Some(quota) = self.limits.quota
            && used.saturating_add(cost) > quota
            && (demand == Demand::Grows || self.quota_alarm.is_some())
        {
            self.quota_alarm = Some(Alarm::Quota { used, quota });
        }
        // The last of the space is for what frees some: old versions of what is replaced stay for a while.
        let is_last = match (self.disk_alarm, self.quota_alarm) {
            (Some(_), _) if !self.has_reserve => true,
            (_, Some(Alarm::Quota { quota, .. })) => used >= quota.saturating_add(quota / 20),
            _ => false,
        };
        match self.alarm() {
            Some(alarm) if demand == Demand::Grows || is_last => Err(alarm),
            _ => Ok(()),
        }
    }

    /// What a transaction does to the space, and what it costs. `length` tells how long the record of a key is.
    pub(crate) fn demand(&self, txn: &Txn, length: impl Fn(&Key) -> Option<usize>) -> (Demand, u64) {
        let (mut demand, mut cost) = (Demand::Frees, 0_u64);
        for change in &txn.changes {
            let (key, new) = match change {
                Change::Delete(key) => {
                    cost = cost.saturating_add(record::cost(record::length(key.as_str(), 0)));
                    continue;
                }
                Change::Put(key, value, _) => (key, record::length(key.as_str(), value.len())),
            };
            cost = cost.saturating_add(record::cost(new));
            let of_put = if self.limits.essential.iter().any(|it| key.as_str().starts_with(it)) {
                Demand::Essential
            } else if length(key).is_some_and(|old| new <= old + SLACK) {
                Demand::Keeps
            } else {
                Demand::Grows
            };
            demand = match (demand, of_put) {
                (Demand::Essential, _) | (_, Demand::Essential) => Demand::Essential,
                (Demand::Grows, _) | (_, Demand::Grows) => Demand::Grows,
                _ => Demand::Keeps,
            };
        }
        (demand, cost)
    }
}

impl std::fmt::Display for Alarm {
    /// Begins as etcd's error does: clients know it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("mvcc: database space exceeded: ")?;
        match self {
            Self::Quota { used, quota } => {
                write!(f, "{used} of {quota} bytes (--quota-backend-bytes) are stored")
            }
            Self::Disk { free } => write!(f, "the disk of the data directory has {free} bytes left"),
        }
    }
}

/// Looks at the disk and does what that asks for. The reserve is made only if `may_keep`; says whether there was no way to.
pub(crate) fn look(space: &mut Space, volume: &Volume, reserve: u64, used: u64, may_keep: bool) -> bool {
    let before = space.alarm();
    let mut has_failed = false;
    match space.look(used, volume.free()) {
        Step::Release => {
            volume.release();
            space.reserve_changed(false);
        }
        Step::Keep if may_keep => match volume.keep(reserve) {
            Ok(()) => {
                space.reserve_changed(true);
                space.look(used, volume.free());
            }
            Err(error) => {
                tracing::warn!(%error, "no space could be kept for removals");
                has_failed = true;
            }
        },
        Step::Keep | Step::Stay => {}
    }
    match (before, space.alarm()) {
        (None, Some(alarm)) => tracing::error!("{alarm}; only removals are written until there is space"),
        (Some(_), None) => tracing::info!("there is space again, everything is written"),
        _ => {}
    }
    has_failed
}

/// Whether most of a file is unused, and it is large enough for that to matter.
pub(crate) fn is_mostly_empty(size: u64, used: u64, worthwhile: u64) -> bool {
    size >= worthwhile && size / 4 > used
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn space(quota: Option<u64>) -> Space {
        let limits = Limits { quota, reserve: 16 * MIB, essential: vec!["/convoy/".into()] };
        Space::new(limits, true)
    }

    #[test]
    fn beyond_the_quota_only_what_frees_keeps_or_must_not_wait_is_written() {
        let mut space = space(Some(1000));
        assert_eq!(space.admit(Demand::Grows, 400, 500), Ok(()));
        let alarm = Alarm::Quota { used: 900, quota: 1000 };
        assert_eq!(space.admit(Demand::Grows, 101, 900), Err(alarm));
        assert_eq!(space.admit(Demand::Grows, 1, 900), Err(alarm), "the alarm stays");
        for demand in [Demand::Frees, Demand::Essential, Demand::Keeps] {
            assert_eq!(space.admit(demand, 101, 990), Ok(()), "{demand:?}");
        }
        assert!(space.admit(Demand::Keeps, 10, 1050).is_err(), "what is replaced costs, too");
        assert_eq!(space.admit(Demand::Frees, 10, 2000), Ok(()));
        assert_eq!(space.look(960, None), Step::Stay);
        assert!(space.alarm().is_some());
        space.look(940, None);
        assert_eq!(space.alarm(), None);
        assert_eq!(space.admit(Demand::Grows, 10, 940), Ok(()));
    }

    #[test]
    fn a_disk_that_fills_up_takes_removals_until_there_is_space_again() {
        let mut space = space(None);
        assert_eq!(space.look(0, Some(100 * MIB)), Step::Stay);
        assert_eq!(space.admit(Demand::Grows, MIB, 0), Ok(()));
        assert_eq!(space.look(0, Some(10 * MIB)), Step::Stay);
        assert_eq!(space.admit(Demand::Grows, 1, 0), Err(Alarm::Disk { free: 10 * MIB }));
        assert_eq!(space.admit(Demand::Keeps, 1, 0), Ok(()));
        assert_eq!(space.look(0, Some(MIB)), Step::Release);
        space.reserve_changed(false);
        assert_eq!(space.look(0, Some(17 * MIB)), Step::Stay);
        assert!(space.admit(Demand::Keeps, 1, 0).is_err(), "the reserve is for removals");
        assert_eq!(space.admit(Demand::Frees, 1, 0), Ok(()));
        assert_eq!(space.look(0, Some(48 * MIB)), Step::Keep);
        space.reserve_changed(true);
        assert!(space.alarm().is_some());
        space.look(0, Some(32 * MIB));
        assert_eq!(space.alarm(), None);
    }

    #[test]
    fn a_transaction_is_as_demanding_as_its_most_demanding_change() {
        let space = space(None);
        let known = |key: &Key| (key.as_str() == "/old").then_some(record::length("/old", 10));
        let put = |txn: Txn, key: &str, n: usize| txn.put(&Key::new(key), vec![0; n].into());
        let demand = |txn: Txn| space.demand(&txn, known).0;
        let removal = || Txn::new().delete(&Key::new("/any"));
        assert_eq!(demand(removal()), Demand::Frees);
        assert_eq!(demand(put(removal(), "/old", 10 + SLACK)), Demand::Keeps);
        assert_eq!(demand(put(removal(), "/old", 11 + SLACK)), Demand::Grows);
        assert_eq!(demand(put(put(removal(), "/old", 1), "/new", 0)), Demand::Grows);
        assert_eq!(demand(put(put(removal(), "/new", 1), "/convoy/members/a", 9)), Demand::Essential);
        assert!(space.demand(&put(Txn::new(), "/new", 5000), known).1 >= 8192, "pages are powers of two");
    }
}
