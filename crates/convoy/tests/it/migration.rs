//! Stored objects are migrated: by themselves when what servers store has changed, and when people ask for it.
//!
//! Every story runs on the embedded store and on etcd, with servers in this process; what is stored is read from the
//! store. Those in `through_api` run once more beside a server that migrates nothing by itself, by requests to it.
//! Long forms: `cargo xtask soak migration-crash` and `migration-many`; `CONVOY_SOAK` for a webhook that is dead for 90 seconds.
//!
//! T, A, B and LAB are the numbers of the requirements, and stand above each story. Where to find them:
//!
//! | file | requirements |
//! |---|---|
//! | `flips` | T1, T3, T5; A1, A8 to A11, A13, A20; B1, B6, B7, B17 |
//! | `objects` | T2, T6; A11, A13 |
//! | `freeze` | T4, T8, T19; A2, A6 to A8, A10 to A13, A17 |
//! | `trouble` | T2, T4, T20; A11, A13 |
//! | `agreement` | T7, T15, T17; B1, B14, B16, B20, B23, B24, B26, B27 |
//! | `crash`, `processes` | T1, T3, T9; A1, A20; B1 |
//! | `progress`, `many` | T10; `cargo xtask soak migration-many` for 100,000 objects |
//! | `lists` | T11, T14, T15; A18; B13, B21, B22 |
//! | `webhook` | T1, T4, T6, T12 |
//! | `sleeper` | T8, T15; A10, A17 |
//! | `wishes` | T1, T16; A13 |
//! | `verdict` | T17, T20; B5, B20 (and `convoy::check::states` for clusters that are not ours) |
//! | `rights` | T18; A3 to A7, A14 to A16, A19, A21: what replaces the proposal's webhook (decision 0030) |
//! | `states` | B2 to B4, B6 to B12, B14 to B19 |
//!
//! Encryption (T13) is not here, as there is none.

mod history;
pub mod widgets;

mod agreement;
mod crash;
mod flips;
mod freeze;
mod lists;
mod many;
mod objects;
mod processes;
mod progress;
mod rights;
mod sleeper;
mod states;
mod trouble;
mod verdict;
mod webhook;
mod wishes;
