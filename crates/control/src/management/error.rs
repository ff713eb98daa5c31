//! Errors of operations: what was wrong, and what to do about it.

use std::error::Error;

use super::FederationError;
use domain::clock::Micros;
use domain::counted::counted;
use domain::identity::Permission;
use domain::key::policy::InvalidKeyPolicy;
use domain::key::{InvalidDigest, KeyId, OrgTag};
use domain::management_token::{TokenId, TokenScope};
use domain::names::{InvalidEmail, InvalidName};
use domain::page::{InvalidCursor, InvalidPageLimit};
use domain::problem::sentence;
use domain::quota::QuotaError;
use journal::audit;
use state::migration::MigrationError;
use state::{self, ChangeError, IdempotencyRecord, InvalidPolicy, StorageError};

/// Reason why an operation was not performed. Nothing was changed, except by [`ManagementError::Unconfirmed`], and
/// perhaps by [`ManagementError::NotAcknowledged`].
#[derive(Debug, thiserror::Error)]
pub enum ManagementError {
    /// The name is empty, too long, has characters that do not show, or could be taken for an id.
    #[error(transparent)]
    InvalidName(#[from] InvalidName),
    /// The text is not an email address.
    #[error(transparent)]
    InvalidEmail(#[from] InvalidEmail),
    /// The limit of requests in flight is out of range.
    #[error("concurrent must be 1 to 1000000; to refuse all requests of an organization, suspend it")]
    InvalidConcurrent,
    /// The quota is out of range.
    #[error(transparent)]
    InvalidQuota(#[from] QuotaError),
    /// The policy of an organization is not valid.
    #[error(transparent)]
    InvalidPolicy(#[from] InvalidPolicy),
    /// The overlap of two secrets is longer than 366 days.
    #[error("overlap must be at most 366d; rotate again when it is over")]
    OverlapTooLong,
    /// A management token is not valid.
    #[error("{0}")]
    InvalidToken(&'static str),
    /// There are as many tokens as there may be.
    #[error("there are {} already; revoke those that are not needed, and wait until they expire", counted(.0, "token"))]
    TooManyTokens(u32),
    /// The text is not a SHA-256 in hexadecimal.
    #[error("sha256 is not the SHA-256 of a key")]
    InvalidDigest(#[from] InvalidDigest),
    /// The SHA-256 is one of the documentation.
    #[error(
        "sha256 is an example of the documentation; give the digest of your key, as `keygate key digest` prints it"
    )]
    DocumentedDigest,
    /// The SHA-256 is the digest of a session quota key.
    #[error("sha256 is not the SHA-256 of a key")]
    SessionQuotaDigest,
    /// One of an id and a digest that only mean something together.
    #[error("give `id` and `sha256` together, as `keygate key generate` prints them")]
    IncompleteSecret,
    /// The page size is out of range.
    #[error(transparent)]
    PageLimit(#[from] InvalidPageLimit),
    /// The list of keys is longer than is read at once.
    #[error("keys must be at most 200 in one request; request the others separately")]
    TooManyKeyIds,
    /// The text is not a cursor of this list with these filters.
    #[error(transparent)]
    Cursor(#[from] InvalidCursor),

    /// No such organization.
    #[error("there is no organization `{0}`; see `keygate org list`")]
    NoOrg(String),
    /// No such user, or removed.
    #[error("there is no user `{0}` in this organization; see `keygate user list --org ORG`")]
    NoUser(String),
    /// The account of a service, where a person is needed.
    #[error("`{0}` is the account of a service, which never signs in and is responsible for no other; name a person")]
    NotPerson(String),
    /// A person, where the account of a service is needed.
    #[error("`{0}` is a person; only the account of a service has a responsible person")]
    NotService(String),
    /// No such key.
    #[error("there is no key {0}; see `keygate key list --org ORG`, and give the nine characters after `sk_live_`")]
    NoKey(KeyId),
    /// No such session, or it has ended.
    #[error("there is no session `{0}`; see `keygate session list`")]
    NoSession(String),

    /// No such token.
    #[error("there is no token {0}; see `keygate token list`, and give the ten characters after `kgm_`")]
    NoToken(TokenId),

    /// The actor lacks the permission.
    #[error("you may not do this; ask an administrator of your organization")]
    NotAllowed,
    /// The token lacks the scope of the operation.
    #[error("this token does not have the scope `{0}`; create one with it, or ask the operator of this service")]
    MissingScope(TokenScope),
    /// The token is for one organization, and the operation is across organizations.
    #[error("this token is for one organization; this needs one of all organizations")]
    OneOrg,
    /// The token of the program was revoked during its call. Nothing was changed.
    #[error("the token was revoked meanwhile; nothing was changed")]
    TokenEnded,
    /// A token would exceed the one that creates it, or the rights of the administrator who does.
    #[error("a token may not exceed its creator: {0}")]
    TokenExceeds(&'static str),
    /// The sign-in link was used, has expired, or never existed.
    #[error("this link was used already, or has expired; ask for another")]
    InvalidLink,
    /// The user who signs in belongs to no organization.
    #[error("{0} belongs to no organization here; ask an administrator to add them with `keygate user create`")]
    NoMembership(String),

    /// The key is revoked.
    #[error("key {0} is revoked, for good; create another")]
    Revoked(KeyId),
    /// The key was rotated since the actor looked at it.
    #[error("key {key} was rotated meanwhile{}; nothing was changed", rotation_text(.by.as_deref(), *.at))]
    Rotated {
        /// The key.
        key: KeyId,
        /// Actor of that rotation, if it is known.
        by: Option<String>,
        /// Time of its last rotation.
        at: Option<Micros>,
    },
    /// The record does not have the entity tag that the change depends on.
    #[error("this was changed meanwhile; read it again, and decide anew")]
    Stale,
    /// The change of a call with this idempotency key was made before.
    #[error("a call with this idempotency key was made before")]
    Repeated(Box<IdempotencyRecord>),
    /// The token has as many live idempotency keys as one may have.
    #[error("this token has used {} within a day; send calls without one, or wait", counted(.0, "idempotency key"))]
    TooManyIdempotencyKeys(u32),
    /// The policy that a key would have is not valid.
    #[error("{0}")]
    InvalidKeyPolicy(InvalidKeyPolicy),
    /// The expiry is later than the organization's policy allows.
    #[error(transparent)]
    TooLate(#[from] state::TooLate),
    /// The policy names a permission that the key's user does not have.
    #[error("the user of the key does not have the permission `{0}`; give it to the user first, or leave it out")]
    BeyondOwner(Permission),
    /// A change of one's own key that would widen its policy.
    #[error("you may narrow key {0} and not widen it; ask an administrator of your organization")]
    Widened(KeyId),
    /// The key was used, created or enabled too shortly ago to be disabled for being unused.
    #[error("key {0} is in use")]
    InUse(KeyId),
    /// The operator disabled the key.
    #[error("key {0} was disabled by the operator of this service, who alone can enable it")]
    DisabledByOperator(KeyId),
    /// The operator suspended the user.
    #[error("this user was suspended by the operator of this service, who alone can resume it")]
    SuspendedByOperator,
    /// The organization of a session or a token is suspended.
    #[error("this organization is suspended, so that nothing is created in it; ask the operator of this service")]
    OrgSuspended,
    /// No other administrator of the organization may act.
    #[error("this is the last administrator of the organization; make another one first")]
    LastAdmin,
    /// Another record has this name, email, tag, id or digest; the text says which.
    #[error("this {0} is in use already; choose another")]
    Taken(&'static str),
    /// A key with this digest exists already.
    #[error("a key with this SHA-256 was imported or made already, as key {0}")]
    AlreadyImported(KeyId),
    /// The id of a new key does not begin with the tag of its organization.
    #[error(
        "the key id {id} does not begin with `{tag}`, the tag of this organization; make the key with \
         `keygate key generate --tag {tag}`"
    )]
    KeyIdOfAnotherOrg {
        /// The id.
        id: KeyId,
        /// The organization's tag.
        tag: OrgTag,
    },
    /// The id of a new key is that of another one.
    #[error("the key id {0} is taken; make another key with `keygate key generate`")]
    KeyIdTaken(KeyId),
    /// The SHA-256 of a new secret is that of another one; with its key, when that is of the same organization.
    #[error("a key{} has or had this SHA-256; make another with `keygate key generate`", key_text(.0))]
    DigestTaken(Option<KeyId>),
    /// The SHA-256 is that of a secret which a rotation has replaced.
    #[error("key {0} had this SHA-256 before it was rotated, so that the secret is refused; rotate it to a new one")]
    DigestReplaced(KeyId),
    /// Another request is creating a key with the same SHA-256, or was broken off on its way.
    #[error("another request is creating a key with this SHA-256; try again")]
    CreationInProgress,
    /// The user has as many keys as signed-in users may create.
    #[error("this user already has {}, without the revoked ones; revoke one, or ask the operator of this \
             service", counted(.0,
        "key"))]
    TooManyKeys(u32),
    /// The person has created and rotated as many keys as a person may for now; with the seconds to wait.
    #[error("you have created or rotated too many keys in a short time; wait {}, then try again", counted(.0,
        "second"))]
    KeyCreationLimited(u64),
    /// The person's oldest web sessions could not be ended to make room for a new one.
    #[error("this person has {} already; end one, or try again", counted(.0, "web session"))]
    TooManySessions(u32),
    /// Web sessions are not configured.
    #[error(
        "the dashboard is off; add this line to the configuration, with the address that browsers open, and restart: \
         session: {{ origin: \"http://127.0.0.1:8080\" }}"
    )]
    NoSessions,
    /// Sign-in links are disabled.
    #[error("sign-in links are switched off by `session.links`; sign in by an identity provider")]
    LinksDisabled,

    /// A federation rule is not valid or does not exist, or a token is not exchanged by it.
    #[error(transparent)]
    Federation(#[from] FederationError),

    /// Too many reads of the journal by the same person wait already.
    #[error(
        "too many of your requests read the audit journal at the same time; wait for their responses, then try again"
    )]
    TooManyReads,
    /// Too many reads of the journal wait already.
    #[error("too many requests read the audit journal at the same time; try again")]
    JournalBusy,
    /// The audit journal could not be read.
    #[error("the audit journal cannot be read; look at the audit directory")]
    JournalUnreadable(#[source] std::io::Error),
    /// The change could not be recorded, so it was not made.
    #[error("the change cannot be recorded, so it was not made; look at the audit directory and its disk")]
    Audit(#[from] audit::Unavailable),
    /// The change was made, but too few replicas confirmed it in time.
    #[error("{0}; when the replicas are back, repeat it: nothing is made twice")]
    Unconfirmed(ChangeError),
    /// The state did not acknowledge the change.
    #[error("the change was not acknowledged by the state; look at the state's disk or servers, then try again")]
    NotAcknowledged(#[source] ChangeError),
    /// Another process has taken over from this one.
    #[error(
        "the change was not made: another process takes the place of this one; send it again over a new connection"
    )]
    HandedOver,
    /// The state is not the one that was served.
    #[error("this is not the state that was served; restore it, or run `keygate state accept` if this one is right")]
    StateLost,
    /// The state did not answer a lookup.
    #[error("the state is unavailable; look at the state's disk or servers, then try again")]
    StateUnavailable(#[source] state::Unavailable),
    /// The state could not be read whole.
    #[error("the export is incomplete: the state cannot be read; try again")]
    ExportFailed(#[source] StorageError),
    /// Some records were not imported.
    #[error("the import stopped on its way; look at the state's disk or servers, then import the same file again")]
    ImportFailed(#[source] MigrationError),
    /// The operating system gave no randomness.
    #[error("the operating system gave no randomness; try again")]
    Randomness(#[from] getrandom::Error),
}

impl ManagementError {
    /// Returns whether the change was made, and awaits the confirmation of replicas alone.
    pub(super) fn is_unconfirmed(&self) -> bool {
        matches!(self, Self::Unconfirmed(_) | Self::ImportFailed(MigrationError::NotReplicated(_)))
    }

    /// Returns whether the change may have been made all the same, or in part.
    pub(super) fn is_in_doubt(&self) -> bool {
        use ChangeError::Unavailable;
        match self {
            // Nothing was sent.
            Self::NotAcknowledged(Unavailable(StorageError::Redis(state::Unavailable::Overloaded))) => false,
            Self::NotAcknowledged(Unavailable(StorageError::Redis(_))) | Self::ImportFailed(_) => true,
            _ => false,
        }
    }

    /// The error as sentences for a signed-in person: without commands of the operator and the inside of the gateway.
    pub fn for_people(&self) -> String {
        match self {
            Self::StateUnavailable(_) | Self::NotAcknowledged(_) | Self::StateLost => {
                "Organizations and keys cannot be read or changed at the moment.".to_owned()
            }
            Self::Audit(_) => {
                "Changes are made only when they can be recorded, and the audit journal cannot be written \
                               at the moment."
                    .to_owned()
            }
            Self::JournalUnreadable(_) => {
                "The audit journal cannot be read at the moment, or is still being indexed.".to_owned()
            }
            Self::InvalidLink => "It was used already, or is older than five minutes.".to_owned(),
            Self::NoMembership(email) => format!(
                "The identity provider signed you in as {email}, but no organization here has a user with this address."
            ),
            error => {
                let text = error.to_string();
                sentence(text.split("; see `keygate").next().unwrap_or(&text))
            }
        }
    }

    /// The error and its causes, on one line.
    pub fn in_full(&self) -> String {
        let causes = std::iter::successors(Error::source(self), |cause| (*cause).source());
        causes.fold(self.to_string(), |text, cause| format!("{text}: {cause}"))
    }
}

/// ` by ada@example.com at 2026-11-20T21:08:00.000000Z`, or what of it is known.
fn rotation_text(by: Option<&str>, at: Option<Micros>) -> String {
    let by = by.map(|by| format!(" by {by}")).unwrap_or_default();
    let at = at.map(|at| format!(" at {at}")).unwrap_or_default();
    format!("{by}{at}")
}

/// ` abcDEF123`; empty for a key that is not named.
fn key_text(key: &Option<KeyId>) -> String {
    key.map(|key| format!(" {key}")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::ErrorKind;
    use super::*;

    #[test]
    fn state_that_does_not_acknowledge_is_unavailable() {
        let not_replicated = ChangeError::NotReplicated { wanted: 2, reached: 1 };
        let unavailable = ChangeError::Unavailable(state::StorageError::Redis(state::Unavailable::TimedOut));
        for error in [not_replicated.into(), unavailable.into(), ManagementError::from(state::Unavailable::Unreachable)]
        {
            assert_eq!((error.code(), error.kind()), ("state_unavailable", ErrorKind::Unavailable), "{error}");
        }
    }
}
