//! Users: a batch of an organization at a time, each with its address and its place in the list.

use futures_util::{StreamExt as _, TryStreamExt as _, stream};

use super::report::{Finding, Problem, Progress, Record, Report};
use super::{BATCH, CopyError, Found};
use crate::key::OrgTag;
use crate::state::redis::Redis;
use crate::state::redis::directory::changes::CommitError;
use crate::state::redis::directory::changes::orgs::written;
use crate::state::redis::directory::changes::users::fields;
use crate::state::redis::record_names;
use crate::state::{OrgExport, User};

impl Redis {
    pub(super) async fn copy_users(
        &self,
        org: &OrgExport,
        report: &mut Report,
        progress: &Progress,
    ) -> Result<(), CopyError> {
        let tag = org.org.tag;
        for batch in org.users.chunks(BATCH) {
            let look = async || self.look_at_users(tag, batch).await;
            let write = async |found: &[Found<()>]| self.write_users(tag, batch, found).await;
            let completed = self.complete(look, write).await?;
            for ((user, first), problem) in batch.iter().zip(completed.first).zip(completed.problems) {
                match problem {
                    None => report.users.one(matches!(first, Found::Same)),
                    Some(problem) => report.in_the_way.push(Finding { record: Record::User(user.id), problem }),
                }
            }
            progress.advance(batch.len());
        }
        Ok(())
    }

    pub(super) async fn look_at_users(&self, tag: OrgTag, users: &[User]) -> Result<Vec<Found<()>>, CommitError> {
        stream::iter(users.iter().map(|user| self.look_at_user(tag, user))).buffered(BATCH).try_collect().await
    }

    async fn look_at_user(&self, tag: OrgTag, user: &User) -> Result<Found<()>, CommitError> {
        if let Some(stored) = self.read_user(tag, user.id).await? {
            let differences = differences(user, &stored);
            let same = differences.is_empty();
            return Ok(if same { Found::Same } else { Found::InTheWay(Problem::Differs(differences)) });
        }
        if user.removed.is_some() {
            return Ok(Found::Lacking(()));
        }
        let emails = self.shared.record_names.emails(tag);
        Ok(match self.read_field(record_names::hash_slot(tag.as_str()), &emails, &user.email).await? {
            Some(by) => Found::InTheWay(Problem::EmailTaken { email: user.email.clone(), by }),
            None => Found::Lacking(()),
        })
    }

    async fn write_users(&self, tag: OrgTag, users: &[User], found: &[Found<()>]) -> Result<(), CommitError> {
        let record_names = &self.shared.record_names;
        let names = [record_names.org(tag), record_names.emails(tag), record_names.users(tag)];
        let mut transaction = self.transaction();
        let [org, emails, list] = names.map(|name| transaction.record(name));
        transaction.check(("present", org));
        for (user, _) in users.iter().zip(found).filter(|(_, found)| found.is_lacking()) {
            let (id, record) = (user.id.to_string(), transaction.record(record_names.user(tag, user.id)));
            transaction.check(("absent", record));
            if user.removed.is_none() {
                transaction.check(("none", emails, &user.email));
                transaction.write(("set", emails, &user.email, &id));
            }
            transaction.set(record, &fields(user));
            transaction.write(("append", list, &id));
        }
        written(self.commit_at_once(record_names::hash_slot(tag.as_str()), &transaction).await?).map(drop)
    }
}

fn differences(user: &User, stored: &User) -> Vec<&'static str> {
    let same = [
        ("org", user.org == stored.org),
        ("email", user.email == stored.email),
        ("permissions", user.permissions == stored.permissions),
        ("created", user.created == stored.created),
        ("removed", user.removed == stored.removed),
    ];
    same.into_iter().filter(|(_, same)| !same).map(|(name, _)| name).collect()
}
