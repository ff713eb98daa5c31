//! A key in memory.
//!
//! - `slots`: requests in flight of organizations and keys, and the slots that a request holds.
//! - `state`: the parts of a key's record, above all the one that its lock guards.
//! - `record`: the record of a key, which decides.
//! - `index`: records by id, by digest and by owner.

mod slots;
mod state;
mod record;
mod index;

pub(super) use index::{ByDigest, ById, OwnedKeys, by_owner};
pub(super) use record::{CachedPrincipals, DirtyKeys, KeyRecord};
pub(super) use slots::OrgRecord;
pub use slots::Permit;
pub(super) use state::{Secrets, StoredKey, Usage, UserEntitlements};
