//! Bounds that hold for every kind.

/// How often a write is tried again when somebody else was faster.
pub const MAX_ATTEMPTS: usize = 32;

/// The largest stored object. etcd's default request limit is 1.5 MiB; the same bound on every store keeps data portable.
pub const MAX_OBJECT_BYTES: usize = 1_536 * 1024;

/// How often a generated name is tried.
pub const MAX_NAME_ATTEMPTS: usize = 8;

/// How many objects a `deletecollection` removes at the same time.
pub const DELETE_WORKERS: usize = 8;
