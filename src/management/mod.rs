//! What can be done to organizations, users and keys: one function each, checked and audited.
//!
//! An [`Operation`] goes in, a [`Reply`] or a [`ManagementError`] comes out, whether it came over the admin socket or
//! from the command line with no gateway running.
//!
//! - No change without a record: its audit entry is begun before the change and closed with what became of it.
//! - A change that was acknowledged is durable, and holds in the very next request.
//! - A plain key leaves once, in the reply to its making; `Debug` never shows it.

use std::sync::Arc;

use prometheus::Histogram;

use crate::audit::Journal;
use crate::clock::Micros;
use crate::metrics::StateMetrics;
use crate::state::State;

mod operation;
mod reply;
mod error;
mod checks;
mod orgs;
mod users;
mod keys;
mod explain;
mod recording;

pub use error::{Kind, ManagementError};
pub use operation::{Limits, Operation};
pub use reply::{ApiKey, Explanation, Key, KeyStatus, Limit, Org, Reply, Standing, User};

/// The one who makes changes; shared by all connections of the admin socket.
#[derive(Debug)]
pub struct Management {
    state: Arc<State>,
    journal: Journal,
    /// Seconds that a change takes until it is durable.
    duration: Histogram,
}

impl Management {
    /// Management of a state, recorded in a journal.
    pub fn new(state: Arc<State>, journal: Journal, metrics: &StateMetrics) -> Self {
        Self { state, journal, duration: metrics.change.clone() }
    }

    /// Performs one operation, all of it or nothing.
    ///
    /// Run it to its end: when the future is dropped on the way, the change may have been made, and its record says
    /// `aborted`.
    ///
    /// # Errors
    /// [`ManagementError`] says what was wrong and what to do; nothing was changed then, unless it says so.
    pub async fn perform(&self, operation: Operation, now: Micros) -> Result<Reply, ManagementError> {
        match operation {
            Operation::CreateOrg { name } => self.create_org(&name, now).await,
            Operation::ListOrgs {} => self.list_orgs().await,
            Operation::ShowOrg { org } => self.show_org(&org).await,
            Operation::SuspendOrg { org } => self.suspend_org(&org, true, now).await,
            Operation::ResumeOrg { org } => self.suspend_org(&org, false, now).await,
            Operation::LimitOrg { org, concurrent } => self.limit_org(&org, concurrent, now).await,
            Operation::CreateUser { org, email, permissions } => self.create_user(&org, &email, permissions, now).await,
            Operation::ListUsers { org } => self.list_users(&org).await,
            Operation::PermitUser { org, user, permissions } => self.permit_user(&org, &user, permissions, now).await,
            Operation::RemoveUser { org, user } => self.remove_user(&org, &user, now).await,
            Operation::CreateKey { org, user, name } => self.create_key(&org, &user, &name, now).await,
            Operation::ListKeys { org } => self.list_keys(&org).await,
            Operation::ShowKey { key } => self.show_key(key).await,
            Operation::RevokeKey { key } => self.revoke_key(key, now).await,
            Operation::RotateKey { key, overlap } => self.rotate_key(key, overlap, now).await,
            Operation::LimitKey { key, limits } => self.limit_key(key, limits, now).await,
            Operation::ImportKey { org, user, sha256, name } => self.import_key(&org, &user, &sha256, &name, now).await,
            Operation::Explain { key } => self.explain(key, now).await,
        }
    }
}
