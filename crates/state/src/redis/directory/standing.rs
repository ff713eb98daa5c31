//! Standing of the person by whose rights a change is made, and the policy that bounds a key: read before the
//! transaction of the change, which requires that they are still as they were read.

use super::check::Check;
use super::commit_error::CommitError;
use super::orgs::Orgs;
use super::transaction::Transaction;
use super::transactions::Transactions;
use super::users::Users;
use crate::redis::record_codec::{StoredUser, Version};
use crate::redis::record_names::RecordNames;
use crate::standing::{Subject, check_person, check_service};
use crate::{Change, ChangeError, FederationRule, OrgPolicy};
use domain::identity::{OrgId, UserId};
use domain::key::OrgTag;
use redis_client::CommandError;

/// Users that are read at a time.
const USERS_AT_A_TIME: usize = 100;

/// Standing of a person or a service, as it was read.
pub(super) struct Standing {
    tag: OrgTag,
    /// The user, and of administrators who suspend their own account another one, with the versions of their records.
    users: Vec<(UserId, Version)>,
    /// True when the organization must not be suspended.
    is_open: bool,
}

/// The policy of an organization, as it was read.
pub(super) struct BoundingPolicy {
    tag: OrgTag,
    /// As the record has it; none of an empty one.
    json: Option<String>,
    pub(super) policy: OrgPolicy,
}

impl Standing {
    /// Reads the standing of a person for a change of a key or a user; none of a change of a key that is missing.
    ///
    /// # Errors
    /// [`ChangeError::NotAllowed`], [`ChangeError::LastAdmin`].
    pub(super) async fn of_person(
        transactions: &Transactions,
        person: UserId,
        change: &Change,
    ) -> Result<Option<Self>, CommitError> {
        let (tag, owner) = match (change.subject(), change.as_made()) {
            (Some(Subject::User(org, _)), _) => (Orgs(transactions).require_tag(org).await?, None),
            (Some(Subject::KeyOf(owner)), Change::CreateKey { key, .. }) => (key.id.tag(), Some(owner)),
            (Some(Subject::Key(key)), _) => match transactions.read_key(key).await? {
                Some(stored) => (key.tag(), Some(stored.key.user)),
                None => return Ok(None),
            },
            _ => return Ok(None),
        };
        let org = transactions.read_org(tag).await?.ok_or(ChangeError::NotAllowed(person))?;
        let stored = Users(transactions).find_stored(tag, org.id, person).await?;
        check_person(person, stored.as_ref().map(|stored| &stored.user), &org, owner, change)?;
        let stored = stored.ok_or(ChangeError::NotAllowed(person))?;
        let mut users = vec![(person, stored.version)];
        if change.suspends(person) && stored.user.is_active_admin() {
            let other =
                another_admin(transactions, tag, org.id, person).await?.ok_or(ChangeError::LastAdmin(person))?;
            users.push((other.user.id, other.version));
        }
        Ok(Some(Self { tag, users, is_open: !change.as_made().withdraws() }))
    }

    /// Reads the standing of the service of a rule for an exchange.
    ///
    /// # Errors
    /// [`ChangeError::NotAllowed`].
    pub(super) async fn of_service(transactions: &Transactions, rule: &FederationRule) -> Result<Self, CommitError> {
        let refused = || ChangeError::NotAllowed(rule.user);
        let tag = Orgs(transactions).require_tag(rule.org).await?;
        let org = transactions.read_org(tag).await?.ok_or_else(refused)?;
        let stored = Users(transactions).find_stored(tag, org.id, rule.user).await?;
        check_service(rule.user, stored.as_ref().map(|stored| &stored.user), &org)?;
        let stored = stored.ok_or_else(refused)?;
        Ok(Self { tag, users: vec![(rule.user, stored.version)], is_open: true })
    }

    /// Has a transaction require it as it was read.
    pub(super) fn require<F>(&self, transaction: &mut Transaction<F>, names: &RecordNames, failure: impl Fn() -> F) {
        for (user, version) in &self.users {
            let record = transaction.record(names.user(self.tag, *user));
            transaction.check(Check::Equal(record, "version", &String::from_utf8_lossy(version)), failure());
        }
        if self.is_open {
            let org = transaction.record(names.org(self.tag));
            transaction.check(Check::Equal(org, "suspended", "0"), failure());
        }
    }
}

impl BoundingPolicy {
    /// Reads the policy of an organization.
    pub(super) async fn read(transactions: &Transactions, tag: OrgTag) -> Result<Self, CommandError> {
        let json = transactions.read_field(&transactions.shared.names.org(tag), "policy").await?;
        let policy = OrgPolicy::from_record(json.as_deref()).map_err(|_| CommandError::UnexpectedReply)?;
        Ok(Self { tag, json, policy })
    }

    /// Has a transaction require it as it was read.
    pub(super) fn require<F>(&self, transaction: &mut Transaction<F>, names: &RecordNames, failure: F) {
        let org = transaction.record(names.org(self.tag));
        let check = match &self.json {
            Some(json) => Check::Equal(org, "policy", json),
            None => Check::NoField(org, "policy"),
        };
        transaction.check(check, failure);
    }
}

/// An active administrator of the organization other than this one.
async fn another_admin(
    transactions: &Transactions,
    tag: OrgTag,
    org: OrgId,
    person: UserId,
) -> Result<Option<StoredUser>, CommandError> {
    let mut from = Some(0);
    while let Some(position) = from {
        let page = Users(transactions).page(org, position, USERS_AT_A_TIME).await?;
        for other in page.items.iter().filter(|other| other.id != person && other.is_active_admin()) {
            // Read again with its version.
            let stored = Users(transactions).find_stored(tag, org, other.id).await?;
            if let Some(stored) = stored.filter(|stored| stored.user.is_active_admin()) {
                return Ok(Some(stored));
            }
        }
        from = page.next;
    }
    Ok(None)
}
