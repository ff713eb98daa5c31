//! Users of an organization.
//!
//! - A user's permissions and removal are in the user's record only. A change replaces the record's version, which
//!   every decision about one of the user's keys checks: so a change takes the same time for one key as for 20,000.

use redis::cmd;

use super::check::Check;
use super::commit_error::CommitError;
use super::orgs::Orgs;
use super::origin::Origin;
use super::read_records::ReadRecords;
use super::record_fields::user_fields;
use super::transaction::CommitResult;
use super::transactions::{Transactions, parse_id, read_each};
use super::user_index::UserIndex;
use crate::bucket::Bucket;
use crate::redis::packed::{unpack_signed, unsigned};
use crate::redis::record_codec::{StoredUser, new_version};
use crate::redis::revocations::Revocation;
use crate::{Change, ChangeError, CreationBucket, Org, User, UserPatch};
use domain::clock::Micros;
use domain::identity::{OrgId, UserId};
use domain::key::OrgTag;
use domain::key::policy::Field;
use domain::page::Page;
use redis_client::CommandError;

/// Check of a new user.
enum NewUserCheck {
    /// The records are as they were read, and the request of the change is not recorded.
    AsPlanned,
    EmailFree,
    IdFree,
}

/// Users, over the transactions of one thread.
#[derive(Clone, Copy)]
pub(crate) struct Users<'a>(pub(crate) &'a Transactions);

impl Users<'_> {
    /// Creates a user, as it was planned.
    pub(super) async fn create(
        self,
        user: &User,
        records: &ReadRecords,
        origin: Origin<'_>,
    ) -> Result<u32, CommitError> {
        let tag = records.tag_of(user.org)?;
        // Before the record, so that there is no user whom a sign-in does not find.
        UserIndex(self.0).add(user).await?;
        let names = &self.0.shared.names;
        let id = user.id.to_string();
        let mut transaction = self.0.transaction();
        origin.write_record(&mut transaction, names, || NewUserCheck::AsPlanned);
        records.require(&mut transaction, names, None, || NewUserCheck::AsPlanned);
        let [emails, record, users] =
            transaction.records([names.emails(tag), names.user(tag, user.id), names.users(tag)]);
        transaction.check(Check::NoField(emails, &user.email), NewUserCheck::EmailFree);
        transaction.check(Check::Absent(record), NewUserCheck::IdFree);
        transaction.hset(record, &user_fields(user));
        transaction.hset_field(record, "version", &new_version()?);
        if user.removed.is_none() {
            transaction.hset_field(emails, &user.email, &id);
        }
        transaction.rpush(users, &id);
        match self.0.commit(transaction).await? {
            CommitResult::Written(replicas) => Ok(replicas),
            CommitResult::Failed(NewUserCheck::AsPlanned) => Err(CommitError::Conflict),
            CommitResult::Failed(NewUserCheck::EmailFree) => {
                if self.0.read_field(&names.emails(tag), &user.email).await?.as_ref() != Some(&id) {
                    return Err(ChangeError::Taken("email").into());
                }
                // Created by an earlier attempt whose reply was lost.
                self.confirm(tag, user.id, None).await
            }
            CommitResult::Failed(NewUserCheck::IdFree) => Err(ChangeError::Taken("id").into()),
        }
    }

    /// Changes a user, as it was planned. Withdrawals are among the changes, and all of them rewrite a few fields: they
    /// are made also while the memory is full.
    pub(super) async fn update(
        self,
        next: &User,
        change: &Change,
        records: &ReadRecords,
        origin: Origin<'_>,
    ) -> Result<u32, CommitError> {
        let (tag, StoredUser { user, version, suspensions }) = records.stored_user(next.org, next.id)?;
        origin.check_etag(|| user.etag(), version)?;
        // The entry of the same voucher is there, and its addition would be refused while the memory is full.
        if let Some(voucher) = next.vouched_by.as_ref().filter(|_| next.vouched_by != user.vouched_by) {
            UserIndex(self.0).add_person(next.org, next.id, voucher).await?;
        }
        let names = &self.0.shared.names;
        let mut transaction = self.0.transaction();
        transaction.allow_oom();
        origin.write_record(&mut transaction, names, || CommitError::Conflict);
        records.require(&mut transaction, names, Some(next.id), || CommitError::Conflict);
        let record = transaction.record(names.user(tag, next.id));
        transaction.hset_field(record, "version", &origin.next_version()?);
        transaction.replace_fields(record, &user_fields(user), &user_fields(next));
        if let Change::UpdateUser { patch: UserPatch { suspended: Field::Set(_), .. }, .. } = change {
            transaction.hset_field(record, "suspensions", &(suspensions + 1).to_string());
        }
        if next.removed.is_some() {
            let emails = transaction.record(names.emails(tag));
            transaction.hdel(emails, &[&next.email]);
        }
        let replicas = self.0.commit(transaction).await?.into_replicas()?;
        self.keep_removal(tag, next);
        Ok(replicas)
    }

    /// Confirms the removal that an earlier attempt made; none when it made none.
    pub(super) async fn confirm_removal(
        self,
        (org, user): (OrgId, UserId),
        at: Micros,
        records: &ReadRecords,
    ) -> Result<Option<u32>, CommitError> {
        let Ok((tag, stored)) = records.stored_user(org, user) else { return Ok(None) };
        if stored.user.removed != Some(at) {
            return Ok(None);
        }
        let replicas = self.confirm(tag, user, Some(at)).await?;
        self.keep_removal(tag, &stored.user);
        Ok(Some(replicas))
    }

    /// Has this gateway keep the removal of a user.
    fn keep_removal(self, tag: OrgTag, user: &User) {
        if let Some(at) = user.removed {
            let email = Some(user.email.clone());
            self.0.shared.revocations.add(Revocation::User { tag, user: user.id, email, at });
        }
    }

    /// Confirms what an earlier attempt wrote whose reply was lost, by a write for replicas to confirm.
    async fn confirm(self, tag: OrgTag, user: UserId, removed: Option<Micros>) -> Result<u32, CommitError> {
        let (mut transaction, record) = self.0.transaction_on(self.0.shared.names.user(tag, user));
        transaction.allow_oom();
        let removed = removed.map(|at| at.0.to_string());
        let check = match &removed {
            Some(at) => Check::Equal(record, "removed", at),
            None => Check::Present(record),
        };
        transaction.check(check, CommitError::Conflict);
        transaction.hset_field(record, "id", &user.to_string());
        self.0.commit(transaction).await?.into_replicas()
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
