//! Organizations, users, keys, sessions and tickets, and their changes.

pub(super) mod read;
pub(super) mod live_sessions;
pub(super) mod changes;
pub(super) mod revocations;
