//! Users of an organization.
//!
//! - A user's permissions and removal are in the user's record only. A change replaces the record's version, which
//!   every decision about one of the user's keys checks: so a change takes the same time for one key as for 20,000.

use redis::cmd;

use super::check::Check;
use super::commit_error::CommitError;
use super::orgs::Orgs;
use super::origin::Origin;
use super::record_fields::user_fields;
use super::transaction::{CommitResult, Record, Transaction};
use super::transactions::{Transactions, parse_id, read_each};
use super::user_index::UserIndex;
use super::user_writes::{write_permitted, write_suspension};
use crate::bucket::Bucket;
use crate::redis::packed::{unpack_signed, unsigned};
use crate::redis::record_codec::{StoredUser, new_version};
use crate::redis::revocations::Revocation;
use crate::{ChangeError, CreationBucket, Org, User, UserPatch};
use domain::clock::Micros;
use domain::identity::{OrgId, UserId};
use domain::key::OrgTag;
use domain::key::policy::Field;
use domain::page::Page;
use redis_client::CommandError;

/// Check of a new user.
enum NewUserCheck {
    NotRecorded,
    OrgExists,
    EmailFree,
    IdFree,
    /// The responsible person of a service exists.
    PersonExists(UserId),
}

/// Users, over the transactions of one thread.
#[derive(Clone, Copy)]
pub(crate) struct Users<'a>(pub(crate) &'a Transactions);

impl Users<'_> {
    pub(super) async fn create(self, user: &User, origin: Origin<'_>) -> Result<u32, CommitError> {
        let tag = Orgs(self.0).require_tag(user.org).await?;
        self.require_responsible(tag, user).await?;
        // Before the record, so that there is no user whom a sign-in does not find.
        UserIndex(self.0).add(user).await?;
        let names = &self.0.shared.names;
        let id = user.id.to_string();
        let records = [names.org(tag), names.emails(tag), names.user(tag, user.id), names.users(tag)];
        let mut transaction = self.0.transaction();
        origin.write_record(&mut transaction, names, || NewUserCheck::NotRecorded);
        let [org, emails, record, users] = transaction.records(records);
        transaction.check(Check::Present(org), NewUserCheck::OrgExists);
        transaction.check(Check::NoField(emails, &user.email), NewUserCheck::EmailFree);
        transaction.check(Check::Absent(record), NewUserCheck::IdFree);
        if let Some(person) = user.responsible {
            let record = transaction.record(names.user(tag, person));
            transaction.check(Check::NoField(record, "removed"), NewUserCheck::PersonExists(person));
        }
        transaction.hset(record, &user_fields(user));
        transaction.hset_field(record, "version", &new_version()?);
        if user.removed.is_none() {
            transaction.hset_field(emails, &user.email, &id);
        }
        transaction.rpush(users, &id);
        match self.0.commit(transaction).await? {
            CommitResult::Written(replicas) => Ok(replicas),
            CommitResult::Failed(NewUserCheck::NotRecorded) => Err(CommitError::Conflict),
            CommitResult::Failed(NewUserCheck::OrgExists) => Err(ChangeError::NoOrg(user.org).into()),
            CommitResult::Failed(NewUserCheck::EmailFree) => {
                if self.0.read_field(&names.emails(tag), &user.email).await?.as_ref() != Some(&id) {
                    return Err(ChangeError::Taken("email").into());
                }
                // Created by an earlier attempt whose reply was lost; this write is for replicas to confirm.
                self.change(&self.require(tag, user.org, user.id).await?, Origin::default(), |_, _| ()).await
            }
            CommitResult::Failed(NewUserCheck::IdFree) => Err(ChangeError::Taken("id").into()),
            CommitResult::Failed(NewUserCheck::PersonExists(person)) => Err(ChangeError::NoUser(person).into()),
        }
    }

    /// Changes a user that is not removed. What is a service and what a person never changes, so that the checks hold
    /// for the write; it requires that the responsible person is not removed.
    pub(super) async fn update(
        self,
        org: OrgId,
        user: UserId,
        patch: &UserPatch,
        origin: Origin<'_>,
    ) -> Result<u32, CommitError> {
        let UserPatch { permitted, suspended, by_operator, responsible } = patch;
        let tag = Orgs(self.0).require_tag(org).await?;
        let stored = self.require(tag, org, user).await?;
        if *suspended == Field::Clear && stored.user.suspended_by_operator && !by_operator {
            return Err(ChangeError::SuspendedByOperator(user).into());
        }
        if let Some(responsible) = *responsible {
            if !stored.user.is_service() {
                return Err(ChangeError::NotService(user).into());
            }
            self.require_person(tag, org, responsible).await?;
        }
        let voucher = permitted.as_ref().and_then(|permitted| permitted.vouched_by.as_ref());
        // The entry of the same voucher is there, and its addition would be refused while the memory is full.
        if let Some(voucher) = voucher.filter(|voucher| stored.user.vouched_by.as_ref() != Some(voucher)) {
            UserIndex(self.0).add_person(org, user, voucher).await?;
        }
        let write = |transaction: &mut Transaction<CommitError>, record| {
            transaction.allow_oom();
            if let Some(permitted) = permitted {
                write_permitted(transaction, record, permitted);
            }
            write_suspension(transaction, record, patch, &stored);
            if let Some(responsible) = responsible {
                let person = transaction.record(self.0.shared.names.user(tag, *responsible));
                transaction.check(Check::NoField(person, "removed"), ChangeError::NoUser(*responsible).into());
                transaction.hset_field(record, "responsible", &responsible.to_string());
            }
        };
        self.change(&stored, origin, write).await
    }

    pub(super) async fn withdraw(
        self,
        org: OrgId,
        user: UserId,
        at: Micros,
        origin: Origin<'_>,
    ) -> Result<u32, CommitError> {
        let tag = Orgs(self.0).require_tag(org).await?;
        let stored = self.require(tag, org, user).await?;
        // The first withdrawal stands; the write is repeated all the same, for replicas to confirm.
        let at = stored.user.withdrawn.unwrap_or(at);
        let write = |transaction: &mut Transaction<_>, record| {
            transaction.allow_oom();
            transaction.hset_field(record, "withdrawn", &at.0.to_string());
        };
        self.change(&stored, origin, write).await
    }

    /// Requires that the responsible person of a service, if it is one, may be so.
    async fn require_responsible(self, tag: OrgTag, user: &User) -> Result<(), CommitError> {
        let Some(person) = user.responsible else { return Ok(()) };
        self.require_person(tag, user.org, person).await
    }

    /// Requires a person of the organization who is not removed.
    async fn require_person(self, tag: OrgTag, org: OrgId, user: UserId) -> Result<(), CommitError> {
        let stored = self.require(tag, org, user).await?;
        if stored.user.is_service() { Err(ChangeError::NotPerson(user).into()) } else { Ok(()) }
    }

    /// Requires a user of the organization who is not removed.
    async fn require(self, tag: OrgTag, org: OrgId, user: UserId) -> Result<StoredUser, CommitError> {
        let stored = self.find_stored(tag, org, user).await?.filter(|stored| stored.user.removed.is_none());
        Ok(stored.ok_or(ChangeError::NoUser(user))?)
    }

    /// A user of the organization, also one that was removed.
    pub(super) async fn find_stored(
        self,
        tag: OrgTag,
        org: OrgId,
        user: UserId,
    ) -> Result<Option<StoredUser>, CommandError> {
        let fields = self.0.read_fields(&self.0.shared.names.user(tag, user)).await?;
        let stored = fields.map(|fields| fields.user()).transpose()?;
        Ok(stored.filter(|stored| stored.user.org == org))
    }

    pub(super) async fn remove(
        self,
        (org, user): (OrgId, UserId),
        at: Micros,
        origin: Origin<'_>,
        is_retry: bool,
    ) -> Result<u32, CommitError> {
        let tag = Orgs(self.0).require_tag(org).await?;
        let stored = self.find_stored(tag, org, user).await?.ok_or(ChangeError::NoUser(user))?;
        // Removing a removed user is an error, unless an earlier attempt of this change has removed it.
        let replicas = match stored.user.removed {
            Some(removed) if is_retry && removed == at => self.confirm_removal(tag, user, at).await?,
            Some(_) => return Err(ChangeError::NoUser(user).into()),
            None => {
                let write = |transaction: &mut Transaction<_>, record| {
                    let emails = transaction.record(self.0.shared.names.emails(tag));
                    transaction.allow_oom();
                    transaction.hset_field(record, "removed", &at.0.to_string());
                    transaction.hdel(emails, &[&stored.user.email]);
                };
                self.change(&stored, origin, write).await?
            }
        };
        self.0.shared.revocations.add(Revocation::User { tag, user, email: Some(stored.user.email), at });
        Ok(replicas)
    }

    /// Confirms the removal that an earlier attempt made, by a write for replicas to confirm.
    async fn confirm_removal(self, tag: OrgTag, user: UserId, at: Micros) -> Result<u32, CommitError> {
        let (mut transaction, record) = self.0.transaction_on(self.0.shared.names.user(tag, user));
        transaction.allow_oom();
        transaction.check(Check::Equal(record, "removed", &at.0.to_string()), CommitError::Conflict);
        transaction.hset_field(record, "id", &user.to_string());
        self.0.commit(transaction).await?.into_replicas()
    }

    /// Changes a user that is not removed, and replaces the version of the record.
    async fn change(
        self,
        stored: &StoredUser,
        origin: Origin<'_>,
        write: impl FnOnce(&mut Transaction<CommitError>, Record),
    ) -> Result<u32, CommitError> {
        let StoredUser { user, version, .. } = stored;
        origin.check_etag(|| user.etag(), version)?;
        let tag = Orgs(self.0).require_tag(user.org).await?;
        let names = &self.0.shared.names;
        let mut transaction = self.0.transaction();
        origin.write_record(&mut transaction, names, || CommitError::Conflict);
        let record = transaction.record(names.user(tag, user.id));
        transaction.check(Check::Present(record), CommitError::Conflict);
        transaction.check(Check::NoField(record, "removed"), CommitError::Conflict);
        if origin.etag.is_some() {
            let version = String::from_utf8_lossy(version);
            transaction.check(Check::Equal(record, "version", &version), CommitError::Conflict);
        }
        transaction.hset(record, &[("id", user.id.to_string()), ("version", origin.next_version()?)]);
        write(&mut transaction, record);
        self.0.commit(transaction).await?.into_replicas()
    }

    /// All users of an organization, removed ones too, in the order of their creation.
    pub(crate) async fn list(self, org: OrgId) -> Result<Vec<User>, CommandError> {
        let Some(tag) = Orgs(self.0).find_tag(org).await? else { return Ok(Vec::new()) };
        let ids: Vec<UserId> = self.0.read_list(&self.0.shared.names.users(tag)).await?;
        read_each(ids.into_iter().map(async |id| self.0.read_user(tag, id).await)).await
    }

    /// Some users of an organization. See [`crate::State::page_of_users`].
    pub(crate) async fn page(self, org: OrgId, from: u64, limit: usize) -> Result<Page<User, u64>, CommandError> {
        let Some(tag) = Orgs(self.0).find_tag(org).await? else { return Ok(Page { items: Vec::new(), next: None }) };
        let Page { items, next } = self.0.read_page(&self.0.shared.names.users(tag), from, limit).await?;
        let users = read_each(items.into_iter().map(async |id| self.0.read_user(tag, id).await)).await?;
        Ok(Page { items: users, next })
    }

    /// The user of an organization with an email address, unless removed.
    pub(crate) async fn find_by_email(self, org: OrgId, email: &str) -> Result<Option<User>, CommandError> {
        let Some(tag) = Orgs(self.0).find_tag(org).await? else { return Ok(None) };
        let id = self.0.read_field(&self.0.shared.names.emails(tag), email).await?;
        let Some(id) = id else { return Ok(None) };
        let user = self.0.read_user(tag, parse_id(id)?).await?;
        Ok(user.filter(|user| user.removed.is_none()))
    }

    /// An organization and one of its users.
    pub(crate) async fn find_member(self, org: OrgId, user: UserId) -> Result<Option<(Org, User)>, CommandError> {
        let Some(tag) = Orgs(self.0).find_tag(org).await? else { return Ok(None) };
        let org = self.0.read_org(tag).await?;
        let user = self.0.read_user(tag, user).await?;
        Ok(org.zip(user))
    }

    /// The bucket of the keys that a user creates; none before the first.
    pub(crate) async fn read_creation_bucket(
        self,
        tag: OrgTag,
        user: UserId,
    ) -> Result<Option<CreationBucket>, CommandError> {
        let record = self.0.shared.names.user(tag, user);
        let packed: Option<Vec<u8>> = self.0.client.query(cmd("HGET").arg(record).arg("creation")).await?;
        let Some(packed) = packed else { return Ok(None) };
        let [level, at, per_us] = unpack_signed(&packed).ok_or(CommandError::UnexpectedReply)?;
        let bucket = Bucket { level, at: Micros(unsigned(at)) };
        Ok(Some(CreationBucket { bucket, per_us: unsigned(per_us) }))
    }
}
