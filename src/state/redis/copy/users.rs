//! Users: a batch of an organization at a time, each with its address and its place in the list.

use futures_util::{StreamExt as _, TryStreamExt as _, stream};

use super::report::{Finding, Problem, Progress, Record, Report};
use super::{BATCH, CopyError, Found};
use crate::key::OrgTag;
use crate::state::redis::Redis;
use crate::state::redis::changes::Obstacle;
use crate::state::redis::changes::orgs::written;
use crate::state::redis::changes::users::fields;
use crate::state::redis::layout;
use crate::state::{OrgHoldings, User};

impl Redis {
    pub(super) async fn copy_users(
        &self,
        org: &OrgHoldings,
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

    pub(super) async fn look_at_users(&self, tag: OrgTag, users: &[User]) -> Result<Vec<Found<()>>, Obstacle> {
        stream::iter(users.iter().map(|user| self.look_at_user(tag, user))).buffered(BATCH).try_collect().await
    }

    async fn look_at_user(&self, tag: OrgTag, user: &User) -> Result<Found<()>, Obstacle> {
        if let Some(stored) = self.stored_user(tag, user.id).await? {
            let differences = differences(user, &stored);
            let same = differences.is_empty();
            return Ok(if same { Found::Same } else { Found::InTheWay(Problem::Differs(differences)) });
        }
        if user.removed.is_some() {
            return Ok(Found::Lacking(()));
        }
        let emails = self.shared.layout.emails(tag);
        Ok(match self.field(layout::slot(tag.as_str()), &emails, &user.email).await? {
            Some(by) => Found::InTheWay(Problem::EmailTaken { email: user.email.clone(), by }),
            None => Found::Lacking(()),
        })
    }

    async fn write_users(&self, tag: OrgTag, users: &[User], found: &[Found<()>]) -> Result<(), Obstacle> {
        let layout = &self.shared.layout;
        let names = [layout.org(tag), layout.emails(tag), layout.users(tag)];
        let mut draft = self.draft();
        let [org, emails, list] = names.map(|name| draft.record(name));
        draft.check(("present", org));
        for (user, _) in users.iter().zip(found).filter(|(_, found)| found.is_lacking()) {
            let (id, record) = (user.id.to_string(), draft.record(layout.user(tag, user.id)));
            draft.check(("absent", record));
            if user.removed.is_none() {
                draft.check(("none", emails, &user.email));
                draft.write(("set", emails, &user.email, &id));
            }
            draft.set(record, &fields(user));
            draft.write(("append", list, &id));
        }
        written(self.commit_at_once(layout::slot(tag.as_str()), &draft).await?).map(drop)
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
