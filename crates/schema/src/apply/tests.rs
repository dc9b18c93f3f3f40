//! Server-side apply, tested: sets and their text, recorded answers and documented scenarios, laws, and random
//! histories against a model that knows nothing of trees.

mod fixture;
mod histories;
mod laws;
mod scenarios;
mod sets;
mod versions;
