//! What one client can take from others, and what it can keep from being known.

mod audit;
mod busy;
mod computing;
mod early;
mod unread;
