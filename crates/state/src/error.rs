//! Errors of the state.

use super::{IdempotencyRecord, InvalidPolicy, TooLate};
use domain::clock::Micros;
use domain::counted::counted;
use domain::identity::{OrgId, Permission, SessionId, UserId};
use domain::key::KeyId;
use domain::key::policy::InvalidKeyPolicy;
use domain::management_token::TokenId;

/// Reason why the shared state did not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unavailable {
    /// The deadline passed before an answer came.
    #[error("the shared state did not answer in time")]
    TimedOut,
    /// There is no connection, or it broke.
    #[error("the shared state cannot be reached")]
    Unreachable,
    /// The answer was an error.
    #[error("the shared state refused the command")]
    ErrorReply,
    /// The state is not the one that was served: its data was lost, or is older.
    #[error("this is not the state that was served; restore it, or run `keygate state accept` if it is right")]
    Lost,
    /// The command was not sent: too many commands wait for an answer already.
    #[error("too many decisions wait for the shared state")]
    Overloaded,
}

impl Unavailable {
    /// Label of this reason in metrics.
    pub fn kind(self) -> &'static str {
        match self {
            Self::TimedOut => "late",
            Self::Unreachable => "unreachable",
            Self::ErrorReply => "refused",
            Self::Lost => "lost",
            Self::Overloaded => "overloaded",
        }
    }
}

/// Text of [`ChangeError::Taken`] for the name of an organization that looks like that of another one.
pub const LOOK_TAKEN: &str = "name, or one that looks the same or differs from it in case only,";

/// Reason why a change was not made, or was made and not acknowledged.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// No organization has this id, or the signed-in person does not belong to it.
    #[error("there is no organization {0}")]
    NoOrg(OrgId),
    /// The organization has no such user, or the user was removed.
    #[error("there is no user {0} in this organization")]
    NoUser(UserId),
    /// The user is a service, where a person is needed.
    #[error("user {0} is a service")]
    NotPerson(UserId),
    /// The user is a person, where a service is needed.
    #[error("user {0} is a person")]
    NotService(UserId),
    /// No key has this id.
    #[error("there is no key {0}")]
    NoKey(KeyId),
    /// No session has this id, or it has ended.
    #[error("there is no session {0}")]
    NoSession(SessionId),
    /// The key is revoked.
    #[error("key {0} is revoked")]
    Revoked(KeyId),
    /// The policy that the change would make is not valid.
    #[error("the policy of key {key} would not be valid: {reason}")]
    InvalidPolicy {
        /// The key.
        key: KeyId,
        /// The reason.
        reason: InvalidKeyPolicy,
    },
    /// The policy would be wider than the one before it, and may only become narrower.
    #[error("the policy of key {0} may only be narrowed")]
    Widened(KeyId),
    /// The key was used, created or enabled meanwhile.
    #[error("key {0} is in use")]
    InUse(KeyId),
    /// The key was disabled by the operator, and the change would enable it.
    #[error("key {0} was disabled by the operator")]
    DisabledByOperator(KeyId),
    /// The user was suspended by the operator, and the change would resume it.
    #[error("user {0} was suspended by the operator")]
    SuspendedByOperator(UserId),
    /// The organization is suspended, and a session or a token of it would create something.
    #[error("organization {0} is suspended")]
    OrgSuspended(OrgId),
    /// The key's last rotation is not the one that the change depends on.
    #[error("key {key} was rotated meanwhile")]
    Rotated {
        /// The key.
        key: KeyId,
        /// Time of its last rotation.
        rotated: Option<Micros>,
    },
    /// The person by whose rights the change would be made may not make it, or the service of an exchange is suspended.
    #[error("user {0} may not make this change")]
    NotAllowed(UserId),
    /// The person by whose rights the change would be made does not have this permission, which it would give.
    #[error("the permission {0} would be given by a user who does not have it")]
    GrantExceeds(Permission),
    /// The change would leave the organization without an administrator who may act.
    #[error("user {0} is the last administrator of the organization")]
    LastAdmin(UserId),
    /// The expiry of the key would be later than the policy of its organization allows.
    #[error(transparent)]
    TooLate(#[from] TooLate),
    /// The policy that the organization would have is not valid.
    #[error(transparent)]
    InvalidOrgPolicy(#[from] InvalidPolicy),
    /// Another record has this name, email, tag, id or digest already; the text says which of them.
    #[error("{0} is already in use")]
    Taken(&'static str),
    /// The user has as many keys that are not revoked as people may create.
    #[error("the user has {} already", counted(.0, "key"))]
    TooManyKeys(u32),
    /// The person has created and rotated as many keys as a person may for now.
    #[error("too many keys were created or rotated")]
    KeyCreationLimited {
        /// Microseconds until one more may be created.
        wait_us: u64,
    },
    /// The person has as many web sessions as a person may have; the oldest has to end first.
    #[error("the person has {} already", counted(.0, "web session"))]
    TooManySessions(u32),
    /// No management token has this id.
    #[error("there is no token {0}")]
    NoToken(TokenId),
    /// The management token of the program that makes the change was revoked, or has expired.
    #[error("token {0} was revoked")]
    TokenEnded(TokenId),
    /// There are as many management tokens as there may be.
    #[error("there are {} already", counted(.0, "token"))]
    TooManyTokens(u32),
    /// The record does not have the entity tag that the change depends on: another change has come between.
    #[error("the record was changed meanwhile")]
    Stale,
    /// The change of a request with this idempotency key was made before.
    #[error("the request was made before")]
    Repeated(IdempotencyRecord),
    /// The management token has as many live idempotency records as one may have.
    #[error("the token has {} already", counted(.0, "live idempotency key"))]
    TooManyIdempotencyKeys(u32),
    /// The organization has no such federation rule, or the rule is another one than was read.
    #[error("there is no federation rule `{0}` in this organization, or it was changed meanwhile")]
    NoFederationRule(String),
    /// The token was exchanged under this rule already.
    #[error("the token was exchanged already")]
    TokenReplayed,
    /// As many tokens were exchanged under the rule as may be for now.
    #[error("too many tokens were exchanged by this rule")]
    ExchangeLimited {
        /// Microseconds until one more may be exchanged.
        wait_us: u64,
    },
    /// The state could not be written. Nothing was changed in SQLite; in Redis the change may have been made.
    #[error("the state could not be written")]
    Unavailable(#[source] StorageError),
    /// The change was made and holds, but too few replicas have it.
    #[error(
        "the change was made, but only {reached} of {} confirmed it in time: a failover may undo it",
        counted(.wanted, "replica")
    )]
    NotReplicated {
        /// Replicas that were to confirm it.
        wanted: u32,
        /// Replicas that did.
        reached: u32,
    },
    /// The state was closed.
    #[error("the state is closed")]
    Closed,
    /// Another process has the state now. The change was not made.
    #[error("another process has the state now")]
    HandedOver,
}

impl ChangeError {
    /// The clock by which the change was decided is not that of the server: nothing was changed, and it may be tried
    /// again.
    pub(crate) fn clock_differs() -> Self {
        Self::Unavailable(StorageError::Redis(Unavailable::TimedOut))
    }
}

impl ChangeError {
    /// The error of a change of a state that is not the one that was served.
    pub(crate) fn lost() -> Self {
        Self::Unavailable(StorageError::Redis(Unavailable::Lost))
    }
}

/// Failure of the storage under the state.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// SQLite failed.
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    /// Redis gave no answer, or a bad one.
    #[error(transparent)]
    Redis(Unavailable),
}
