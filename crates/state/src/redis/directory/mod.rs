//! The directory: organizations, users, keys, sessions and tickets.
//!
//! - A change is optimistic: it reads, then commits a [`Transaction`] that checks what was read and writes everything,
//!   or nothing, by one script in one hash slot. When a check fails, another writer was faster, and the change begins
//!   anew.
//! - Names of organizations and digests of keys are unique over all hash slots. They are claimed before the record is
//!   written, and given back if it is not; a claim without a record that is older than [`CLAIM_LIFETIME`] may be taken
//!   over.
//! - Every change can be repeated without harm, so one whose reply was lost is tried again, for a while.
//! - A change is acknowledged once the primary has it, and as many replicas as `durability` says.
//!
//! Read `change` first, then one of `orgs`, `users`, `keys`, `sessions`.

mod change;
mod orgs;
mod users;
mod keys;
mod key_list;
mod digest_claim;
mod key_index;
mod pages;
mod email_index;
mod look_index;
mod session_index;
mod sessions;
mod session_lookup;
mod tickets;
mod records;
mod record_fields;
mod revocation_log;
mod commit_error;
mod transaction;

pub(super) use commit_error::CommitError;
pub(super) use digest_claim::CLAIM_LIFETIME;
pub(super) use record_fields::{key_fields, org_fields, user_fields};
pub(super) use records::{Directory, DirectoryShared};
pub(super) use revocation_log::{decode as decode_revocation, decode_final as decode_final_refusal};
pub(super) use transaction::{Check, CommitResult, Transaction};
