//! The origin of a change: who makes it, within which bounds, and on which conditions.

use super::check::Check;
use super::idempotency::Once;
use super::read_records::ReadRecords;
use super::transaction::Transaction;
use crate::redis::record_codec::{Version, new_version};
use crate::redis::record_names::RecordNames;
use crate::{ActorName, Change, ChangeError, ETag, FederationExchange, IdempotencyPlace};
use domain::identity::UserId;
use domain::management_token::TokenId;

/// Field of the grant of a management token.
pub(super) const GRANT_FIELD: &str = "state";
/// Its value while the token is not revoked.
pub(super) const LIVE_GRANT: &str = "live";

/// The grant of the management token of a program, which its change requires. See `token_grants`.
#[derive(Clone, Copy)]
pub(super) struct Grant {
    pub(super) place: IdempotencyPlace,
    pub(super) token: TokenId,
}

/// The origin of a change.
#[derive(Clone, Copy, Default)]
pub(super) struct Origin<'a> {
    /// The person whose bounds hold; none of the operator.
    pub(super) person: Option<UserId>,
    /// The records of the person by whose rights it is made, or of the service of an exchange: the transaction requires
    /// them as they were read.
    pub(super) standing: Option<&'a ReadRecords>,
    /// The actor to record; none when it is not known.
    pub(super) actor: Option<&'a ActorName>,
    /// The exchange for which a key is created; none of others.
    pub(super) exchange: Option<&'a FederationExchange>,
    /// The entity tag that the record must have.
    pub(super) etag: Option<ETag>,
    /// The grant of the program's token, which the transaction requires.
    pub(super) grant: Option<Grant>,
    /// The request to record.
    pub(super) once: Option<Once<'a>>,
    /// Random text of a change with conditions, the same in all its attempts: by it an attempt recognizes what an
    /// earlier one wrote whose reply was lost. Empty without conditions.
    pub(super) mark: &'a str,
}

impl<'a> Origin<'a> {
    /// The origin of a change within this one.
    pub(super) fn within(self, change: &'a Change) -> Self {
        match change {
            Change::ByPerson { person, .. } => Self { person: Some(*person), ..self },
            Change::ByActor { actor, .. } => Self { actor: Some(actor), ..self },
            Change::ByFederation { exchange, .. } => Self { exchange: Some(exchange), ..self },
            Change::IfMatch { etag, .. } => Self { etag: Some(*etag), ..self },
            _ => self,
        }
    }
}

impl Origin<'_> {
    /// Checks the entity tag of the record to be changed, as it was read. The caller also has the transaction check the
    /// version. The version of this change is that of an earlier attempt.
    ///
    /// # Errors
    /// [`ChangeError::Stale`].
    pub(super) fn check_etag(self, current: impl FnOnce() -> ETag, version: &Version) -> Result<(), ChangeError> {
        match self.etag {
            Some(etag) if version != self.mark.as_bytes() && etag != current() => Err(ChangeError::Stale),
            _ => Ok(()),
        }
    }

    /// The version of the record after the change.
    ///
    /// # Errors
    /// The operating system provides no randomness.
    pub(super) fn next_version(self) -> Result<String, getrandom::Error> {
        if self.etag.is_some() { Ok(self.mark.to_owned()) } else { new_version() }
    }

    /// Has a transaction require the grant of the program's token and the standing of the person, and record the
    /// request, if the change is for one; that requires that this was not done before. To be called before any other
    /// check: a repeated request finds its own change, whatever else is refused by then.
    pub(super) fn write_record<F>(
        self,
        transaction: &mut Transaction<F>,
        names: &RecordNames,
        failure: impl Fn() -> F,
    ) {
        if let Some(once) = self.once {
            let record = transaction.record(names.idempotency(once.place, &once.request.id));
            transaction.check(Check::Absent(record), failure());
            transaction.hset(record, &once.fields(self.mark));
            transaction.pexpireat(record, once.expires().0 / 1000);
        }
        if let Some(grant) = self.grant {
            let record = transaction.record(names.token_grant(grant.place, grant.token));
            transaction.check(Check::Equal(record, GRANT_FIELD, LIVE_GRANT), failure());
        }
        if let Some(standing) = self.standing {
            standing.require_standing(transaction, names, failure);
        }
    }
}
