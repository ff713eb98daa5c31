//! The directory: organizations, users, keys, sessions and tickets.
//!
//! - A change is optimistic: it reads, then commits a [`Transaction`] that checks what was read and writes everything,
//!   or nothing, by one script in one hash slot. When a check fails, another writer was faster, and the change begins
//!   anew.
//! - Names of organizations and digests of keys are unique over all hash slots. They are claimed before the record is
//!   written, and given back if it is not; a claim without a record that is older than a minute may be taken over.
//! - Every change can be repeated without harm, so one whose reply was lost is tried again, for a while.
//! - A change is acknowledged once the primary has it, and as many replicas as `durability` says.
//!
//! Read `change` first, then one of `orgs`, `users`, `keys`, `sessions`. Each object is in one file, and uses those
//! before it:
//!
//! ```text
//! change > plans, token_grants > management_tokens; keys > key_list, federation, key_actors, digest_claims,
//!        > users > user_index > orgs > origin > read_records > idempotency > transactions > transaction;
//!        sessions > session_index; tickets; spendings; revocation_log
//! ```

mod change;
mod change_steps;
mod orgs;
mod user_index;
mod users;
mod creation_token;
mod digest_claims;
mod key_list;
mod federation;
mod key_actors;
mod read_records;
mod plans;
mod origin;
mod idempotency;
mod keys;
mod session_index;
mod sessions;
mod management_tokens;
mod token_grants;
mod tickets;
mod spendings;
mod revocation_log;
mod transactions;
mod check;
mod transaction;
mod record_fields;
mod commit_error;

pub(crate) use change::Changes;
pub use change_steps::{ChangeSteps, ChangeWrite};
pub(super) use check::{Check, Record};
pub use commit_error::CommitError;
pub(crate) use digest_claims::DigestClaims;
pub(crate) use key_actors::{KeyActorIndex, add_all as add_key_actors};
pub(crate) use key_list::KeyList;
pub(crate) use keys::Keys;
pub(crate) use management_tokens::{ManagementTokens, token_json};
pub(crate) use orgs::Orgs;
pub use record_fields::{key_fields, org_fields, user_fields};
pub(super) use revocation_log::{decode as decode_revocation, keep as keep_revocation};
pub(crate) use sessions::Sessions;
pub(crate) use spendings::Spendings;
pub(crate) use tickets::Tickets;
pub(super) use transaction::{CommitResult, Transaction};
pub(super) use transactions::{DirectoryShared, Transactions, parse_id};
pub(crate) use user_index::UserIndex;
pub(crate) use users::Users;
