//! What can be done to organizations, users, keys and sessions: one function each, checked and audited.
//!
//! An [`Operation`] goes in, a [`Reply`] or a [`ManagementError`] comes out, whether it came over the admin socket, from
//! the command line with no gateway running, or from a person on the dashboard, who may do less ([`Actor`]).
//!
//! - No change without a record: its audit entry is begun before the change and closed with what became of it.
//! - A change that was acknowledged is durable, and holds in the very next request.
//! - A plain key leaves once, in the reply to its making; `Debug` never shows it.

use std::path::PathBuf;
use std::sync::Arc;

use prometheus::Histogram;
use tokio::sync::Semaphore;

use crate::audit::{self, Journal};
use crate::clock::Micros;
use crate::metrics::StateMetrics;
use crate::state::State;

mod operation;
mod reply;
mod error;
mod actor;
mod checks;
mod orgs;
mod users;
mod keys;
mod explain;
mod sessions;
mod links;
mod sign_in;
mod uses;
mod recording;

pub use actor::{ADMIN, Actor, ClientInfo, SignedInUser};
pub use error::{ErrorKind, ManagementError};
pub use links::LinkPreview;
pub use operation::{LimitUpdate, Operation};
pub use reply::{ApiKey, Explanation, Key, KeyLimits, KeyStatus, LimitStatus, Link, Org, Reply, Session, User};
pub use sessions::SessionSettings;
pub use sign_in::{Entitlements, ProviderSignIn};
pub use uses::{Activity, Hour, LastUse, UseQuery};

use actor::AuditActor;

/// The one who makes changes; shared by all connections of the admin socket.
#[derive(Debug)]
pub struct Management {
    state: Arc<State>,
    journal: Journal,
    /// Where the journal is read.
    journal_directory: PathBuf,
    /// Permits to read it, one for each reading.
    readings: Arc<Semaphore>,
    /// The name of this gateway, whose journal it is.
    gateway: String,
    /// How web sessions are; none: there are none.
    sessions: Option<SessionSettings>,
    /// Seconds that a change takes until it is durable.
    duration: Histogram,
}

impl Management {
    /// Management of a state, recorded in a journal that is set up like this.
    pub fn new(state: Arc<State>, journal: Journal, settings: &audit::Settings, metrics: &StateMetrics) -> Self {
        Self {
            state,
            journal,
            journal_directory: settings.path.clone(),
            readings: Arc::new(Semaphore::new(uses::READINGS)),
            gateway: settings.gateway.clone(),
            sessions: None,
            duration: metrics.change.clone(),
        }
    }

    /// The same, where people have web sessions.
    #[must_use]
    pub fn with_sessions(self, sessions: Option<SessionSettings>) -> Self {
        Self { sessions, ..self }
    }

    /// Performs one operation for the operator, all of it or nothing.
    ///
    /// Run it to its end: when the future is dropped on the way, the change may have been made, and its record says
    /// `aborted`.
    ///
    /// # Errors
    /// [`ManagementError`] says what was wrong and what to do; nothing was changed then, unless it says so.
    pub async fn perform(&self, operation: Operation, now: Micros) -> Result<Reply, ManagementError> {
        self.perform_as(&Actor::Operator, operation, now).await
    }

    /// Performs one operation for somebody, if they may have it done, all of it or nothing.
    ///
    /// # Errors
    /// As [`Management::perform`]; what somebody may not see is not there for them.
    pub async fn perform_as(&self, actor: &Actor, operation: Operation, now: Micros) -> Result<Reply, ManagementError> {
        self.allow(actor, &operation).await?;
        let by = AuditActor { actor, now };
        match operation {
            Operation::CreateOrg { name } => self.create_org(&name, by).await,
            Operation::ListOrgs {} => self.list_orgs(by).await,
            Operation::ShowOrg { org } => self.show_org(&org).await,
            Operation::SuspendOrg { org } => self.suspend_org(&org, true, by).await,
            Operation::ResumeOrg { org } => self.suspend_org(&org, false, by).await,
            Operation::LimitOrg { org, concurrent } => self.limit_org(&org, concurrent, by).await,
            Operation::CreateUser { org, email, permissions } => self.create_user(&org, &email, permissions, by).await,
            Operation::ListUsers { org } => self.list_users(&org).await,
            Operation::PermitUser { org, user, permissions } => self.permit_user(&org, &user, permissions, by).await,
            Operation::RemoveUser { org, user } => self.remove_user(&org, &user, by).await,
            Operation::CreateKey { org, user, name } => self.create_key(&org, &user, &name, by).await,
            Operation::ListKeys { org } => self.list_keys(&org, by).await,
            Operation::ShowKey { key } => self.show_key(key).await,
            Operation::RevokeKey { key } => self.revoke_key(key, by).await,
            Operation::RotateKey { key, overlap } => self.rotate_key(key, overlap, by).await,
            Operation::LimitKey { key, limits } => self.limit_key(key, limits, by).await,
            Operation::ImportKey { org, user, sha256, name } => self.import_key(&org, &user, &sha256, &name, by).await,
            Operation::Explain { key } => self.explain(key, now).await,
            Operation::ListUses { key, uses } => self.list_uses(key, uses).await,
            Operation::Activity { org, keys } => self.activity(&org, keys, now).await,
            Operation::LinkSession { org, user } => self.link_session(&org, &user, by).await,
            Operation::ListSessions { org } => self.list_sessions(org.as_deref(), by).await,
            Operation::EndSession { session } => self.end_session(session, by).await,
            Operation::EndSessions { org, user } => self.end_sessions(&org, &user, by).await,
        }
    }
}
