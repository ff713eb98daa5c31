//! Importer: an import's reads and writes, in the memory and the file of an embedded state, or on Redis.

use futures_util::{StreamExt as _, TryStreamExt as _, stream};

use super::{DigestOwner, Import, ImportError};
use crate::redis::IdentityRecord;
use crate::redis::directory::{DigestClaims, ManagementTokens, Orgs, Spendings, UserIndex};
use crate::redis::import::{Confirmation, Writer};
use crate::spending::Spending;
use crate::{Change, ChangeError, FederationRule, KeyExport, Org, State, StorageError, Unavailable, User};
use domain::budget::BudgetSubject;
use domain::identity::{OrgId, UserId};
use domain::key::{KeyDigest, KeyId, OrgTag};
use domain::management_token::ManagementToken;

/// Records that are written side by side.
const CONCURRENT_WRITES: usize = 64;

/// Reads and writes single records of a state.
#[derive(Clone, Copy)]
pub struct Importer<'a>(pub(crate) &'a State);

/// Looks up in the memory of the embedded state, or reads from Redis by its [`crate::redis`] objects.
macro_rules! either {
    ($self:ident, $state:ident => $embedded:expr, $redis:ident => $remote:expr) => {
        match $self.0 {
            State::Embedded($state) => Ok($embedded),
            State::Redis(state) => {
                let $redis = &state.transactions;
                Ok($remote)
            }
        }
    };
}

impl Importer<'_> {
    /// The organization with a tag.
    pub async fn org(self, tag: OrgTag) -> Result<Option<Org>, ImportError> {
        either!(self, state => state.tree().org_by_tag(tag), redis => redis.read_org(tag).await?)
    }

    /// The tag of an organization in the list of all.
    pub async fn tag_of(self, org: OrgId) -> Result<Option<OrgTag>, ImportError> {
        either!(self, state => state.tree().org(org).map(|org| org.tag), redis => Orgs(redis).find_tag(org).await?)
    }

    /// The id, as text, of the organization with a name.
    pub async fn org_id_by_name(self, name: &str) -> Result<Option<String>, ImportError> {
        either!(
            self,
            state => state.tree().org_by_name(name).map(|org| org.id.to_string()),
            redis => redis.read_field(&redis.shared.names.names(), name).await?
        )
    }

    /// A user of the organization with a tag.
    pub async fn user(self, tag: OrgTag, user: UserId) -> Result<Option<User>, ImportError> {
        either!(self, state => state.tree().users.find(user), redis => redis.read_user(tag, user).await?)
    }

    /// The user with this id in another organization than this one; on Redis, whose users have no index by id, as far
    /// as it has this email address, or a session quota key.
    pub async fn user_elsewhere(
        self,
        org: OrgId,
        id: UserId,
        email: Option<&str>,
    ) -> Result<Option<User>, ImportError> {
        either!(
            self,
            state => state.tree().users.find(id).filter(|found| found.org != org),
            redis => UserIndex(redis).find_elsewhere(org, id, email).await?
        )
    }

    /// The id, as text, of the user of an organization with an email address.
    pub async fn user_id_by_email(self, tag: OrgTag, email: &str) -> Result<Option<String>, ImportError> {
        either!(
            self,
            state => state.user_id_by_email(tag, email).map(|user| user.to_string()),
            redis => redis.read_field(&redis.shared.names.emails(tag), email).await?
        )
    }

    /// The federation rule of an organization with a name.
    pub async fn rule(self, org: OrgId, name: &str) -> Result<Option<FederationRule>, ImportError> {
        either!(
            self,
            state => state.federation_rules().find(org, name),
            redis => redis.federation_rules().find(org, name).await?
        )
    }

    /// All management tokens, live or not.
    pub async fn tokens(self) -> Result<Vec<ManagementToken>, ImportError> {
        either!(self, state => state.management_tokens(), redis => ManagementTokens(redis).list().await?)
    }

    /// One key; on Redis without the digests that its last two replaced.
    pub async fn key(self, id: KeyId) -> Result<Option<KeyExport>, ImportError> {
        either!(
            self,
            state => state.imported_key(id).await,
            redis => redis.read_key(id).await?.map(|stored| stored.export(Vec::new()))
        )
    }

    /// The owner of a digest, as seen from `key`. A claim of the last minute stands, although its key may never be
    /// written.
    pub async fn digest_owner(self, digest: &KeyDigest, key: KeyId) -> Result<DigestOwner, ImportError> {
        let owner = |owner: Option<KeyId>| match owner {
            None => DigestOwner::None,
            Some(owner) if owner == key => DigestOwner::Itself,
            Some(other) => DigestOwner::Other(other),
        };
        either!(
            self,
            state => owner(state.key_of(digest)),
            redis => DigestClaims(redis).find_owner(digest, key).await?
        )
    }

    /// Spending of a subject of the organization with a tag.
    pub async fn spending(self, tag: OrgTag, subject: BudgetSubject) -> Result<Spending, ImportError> {
        either!(self, state => state.spending_of(subject), redis => Spendings(redis).read(tag, subject).await?)
    }

    /// Writes records together, in this order; on Redis they are of one hash slot, and written all or none.
    pub async fn write(self, imports: Vec<Import>) -> Result<(), ImportError> {
        match self.0 {
            State::Embedded(state) => state.import(imports).await,
            State::Redis(state) => Writer(&state.transactions).write(&imports).await,
        }
    }

    /// Writes records of any hash slots: each by itself on Redis, side by side; together, and in this order, in the
    /// embedded state, whose list of organizations is in the order of their creation.
    pub async fn write_each(self, imports: Vec<Import>) -> Result<(), ImportError> {
        match self.0 {
            State::Embedded(state) => state.import(imports).await,
            State::Redis(state) => {
                let write = async |import| Writer(&state.transactions).write(&[import]).await;
                stream::iter(imports).map(Ok).try_for_each_concurrent(CONCURRENT_WRITES, write).await
            }
        }
    }

    /// Adds organizations to the list of all, in this order, and claims their names.
    pub async fn list_orgs(self, orgs: impl Iterator<Item = &Org>) -> Result<(), ImportError> {
        match self.0 {
            // The list is the table that the records are in.
            State::Embedded(_) => Ok(()),
            State::Redis(state) => Writer(&state.transactions).list_orgs(orgs).await,
        }
    }

    /// Returns true when records of several writes are committed together, by one writer.
    pub fn has_group_commit(self) -> bool {
        matches!(self.0, State::Embedded(_))
    }

    /// Returns true when the digests of a new key are written with its record, and not claimed before.
    pub fn writes_digests_with_keys(self) -> bool {
        matches!(self.0, State::Embedded(_))
    }

    /// Makes a change that withdraws something: it takes the way of every other change, through the log of revocations.
    pub async fn withdraw(self, change: Change) -> Result<(), ImportError> {
        self.0.change(change).await.map_err(withdrawal_error)
    }

    /// Returns the writes after which replicas have all records of these organizations, these keys, and these tokens;
    /// none when no replica is waited for.
    pub fn confirmations(
        self,
        orgs: &[(OrgId, OrgTag)],
        keys: &[&KeyExport],
        tokens: &[&ManagementToken],
    ) -> Vec<Confirmation> {
        match self.0 {
            State::Embedded(_) => Vec::new(),
            State::Redis(state) => Writer(&state.transactions).confirmations(orgs, keys, tokens),
        }
    }

    /// Counts an import as a change by management. The embedded state has counted its writes.
    pub async fn count(self) -> Result<(), ImportError> {
        match self.0 {
            State::Embedded(_) => Ok(()),
            State::Redis(state) => IdentityRecord(&state.transactions).count_import().await,
        }
    }

    /// Writes a field once more and waits for the configured replicas.
    ///
    /// # Errors
    /// [`ImportError::NotReplicated`] when too few replicas confirmed it in time.
    pub async fn confirm(self, confirmation: &Confirmation) -> Result<(), ImportError> {
        match self.0 {
            State::Embedded(_) => unreachable!("the embedded state has no replicas to wait for"),
            State::Redis(state) => Writer(&state.transactions).confirm(confirmation).await,
        }
    }
}

/// The error of a withdrawal that was not made, or not acknowledged.
fn withdrawal_error(error: ChangeError) -> ImportError {
    match error {
        ChangeError::NotReplicated { .. } => ImportError::NotReplicated(error),
        // Another writer was faster, and may have removed the record: what is left to withdraw is looked up again.
        ChangeError::Revoked(_)
        | ChangeError::NoToken(_)
        | ChangeError::NoKey(_)
        | ChangeError::NoUser(_)
        | ChangeError::NoOrg(_) => ImportError::Conflict,
        // It may have been made. A state that was lost stays so until it is accepted.
        ChangeError::Unavailable(StorageError::Redis(reason)) if reason != Unavailable::Lost => {
            ImportError::Unavailable { reason, failure: Box::new(reason) }
        }
        error => ImportError::Refused(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::identity::UserId;

    #[test]
    fn withdrawal_is_looked_up_again_unless_the_state_would_refuse_it_again() {
        let (org, user) = (OrgId::generate(), UserId::generate());
        for error in
            [ChangeError::NoUser(user), ChangeError::NoOrg(org), ChangeError::NoKey("abcDEF123".parse().unwrap())]
        {
            assert!(matches!(withdrawal_error(error), ImportError::Conflict));
        }
        let of_redis = |reason| withdrawal_error(ChangeError::Unavailable(StorageError::Redis(reason)));
        for reason in
            [Unavailable::TimedOut, Unavailable::Unreachable, Unavailable::ErrorReply, Unavailable::Overloaded]
        {
            assert!(matches!(of_redis(reason), ImportError::Unavailable { reason: same, .. } if same == reason));
        }
        assert!(matches!(of_redis(Unavailable::Lost), ImportError::Refused(_)));
        let lacking = ChangeError::NotReplicated { wanted: 1, reached: 0 };
        assert!(matches!(withdrawal_error(lacking), ImportError::NotReplicated(_)));
        for error in [ChangeError::HandedOver, ChangeError::Closed, ChangeError::SuspendedByOperator(user)] {
            assert!(matches!(withdrawal_error(error), ImportError::Refused(_)));
        }
    }
}
