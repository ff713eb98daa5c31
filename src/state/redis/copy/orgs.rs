//! Organizations: their records first, side by side, and then their names and places in the list, in order.

use futures_util::{StreamExt as _, TryStreamExt as _, stream};

use super::report::{Finding, Problem, Progress, Record, Report};
use super::{BATCH, CopyError, Found};
use crate::state::redis::Redis;
use crate::state::redis::changes::orgs::{fields, written};
use crate::state::redis::changes::{Obstacle, version};
use crate::state::redis::layout;
use crate::state::{Org, OrgHoldings};

/// What an organization lacks.
pub(super) struct Lack {
    record: bool,
    listing: bool,
}

impl Redis {
    /// Copies the organizations themselves; gives those whose users and keys can be copied.
    pub(super) async fn copy_orgs<'a>(
        &self,
        orgs: &'a [OrgHoldings],
        report: &mut Report,
        progress: &Progress,
    ) -> Result<Vec<&'a OrgHoldings>, CopyError> {
        let mut usable = Vec::with_capacity(orgs.len());
        for batch in orgs.chunks(BATCH) {
            let look = async || self.look_at_orgs(batch).await;
            let write = async |found: &[Found<Lack>]| self.write_orgs(batch, found).await;
            let completed = self.complete(look, write).await?;
            for ((org, first), problem) in batch.iter().zip(completed.first).zip(completed.problems) {
                match &problem {
                    None => report.orgs.one(matches!(first, Found::Same)),
                    Some(Problem::Differs(_)) => {}
                    Some(_) => {
                        report.left_out.users += org.users.len() as u64;
                        report.left_out.keys += org.keys.len() as u64;
                    }
                }
                if matches!(problem, None | Some(Problem::Differs(_))) {
                    usable.push(org);
                }
                let finding = problem.map(|problem| Finding { record: Record::Org(org.org.id), problem });
                report.in_the_way.extend(finding);
            }
            progress.advance(batch.len());
        }
        Ok(usable)
    }

    pub(super) async fn look_at_orgs(&self, orgs: &[OrgHoldings]) -> Result<Vec<Found<Lack>>, Obstacle> {
        stream::iter(orgs.iter().map(|org| self.look_at_org(&org.org))).buffered(BATCH).try_collect().await
    }

    async fn look_at_org(&self, org: &Org) -> Result<Found<Lack>, Obstacle> {
        let stored = self.stored_org(org.tag).await?;
        if let Some(other) = stored.as_ref().filter(|stored| stored.id != org.id) {
            return Ok(Found::InTheWay(Problem::TagTaken(other.id)));
        }
        let listed = self.tag(org.id).await?;
        if let Some(tag) = listed.filter(|tag| *tag != org.tag) {
            return Ok(Found::InTheWay(Problem::OtherTag(tag)));
        }
        let name = self.field(layout::orgs_slot(), &self.shared.layout.names(), &org.name).await?;
        if let Some(by) = name.filter(|by| *by != org.id.to_string()) {
            return Ok(Found::InTheWay(Problem::NameTaken { name: org.name.clone(), by }));
        }
        let differences = stored.as_ref().map(|stored| differences(org, stored)).unwrap_or_default();
        if !differences.is_empty() {
            return Ok(Found::InTheWay(Problem::Differs(differences)));
        }
        let (record, listing) = (stored.is_none(), listed.is_none());
        Ok(if record || listing { Found::Lacking(Lack { record, listing }) } else { Found::Same })
    }

    async fn write_orgs(&self, orgs: &[OrgHoldings], found: &[Found<Lack>]) -> Result<(), Obstacle> {
        let lacking = || {
            orgs.iter().zip(found).filter_map(|(org, found)| match found {
                Found::Lacking(lack) => Some((&org.org, lack)),
                _ => None,
            })
        };
        let records = lacking().filter(|(_, lack)| lack.record).map(|(org, _)| Ok(org));
        stream::iter(records).try_for_each_concurrent(BATCH, async |org| self.write_org(org).await).await?;
        let names = [self.shared.layout.names(), self.shared.layout.tags(), self.shared.layout.orgs()];
        let mut draft = self.draft();
        let [names, tags, list] = names.map(|name| draft.record(name));
        for (org, _) in lacking().filter(|(_, lack)| lack.listing) {
            let id = org.id.to_string();
            draft.check(("none", names, &org.name));
            draft.check(("none", tags, &id));
            draft.write(("set", names, &org.name, &id));
            draft.write(("set", tags, &id, org.tag.as_str()));
            draft.write(("append", list, &id));
        }
        written(self.commit_at_once(layout::orgs_slot(), &draft).await?).map(drop)
    }

    async fn write_org(&self, org: &Org) -> Result<(), Obstacle> {
        let mut draft = self.draft();
        let record = draft.record(self.shared.layout.org(org.tag));
        draft.check(("absent", record));
        draft.write(("slots", record, version()?));
        draft.set(record, &fields(org));
        written(self.commit_at_once(layout::slot(org.tag.as_str()), &draft).await?).map(drop)
    }
}

fn differences(org: &Org, stored: &Org) -> Vec<&'static str> {
    let same = [
        ("name", org.name == stored.name),
        ("created", org.created == stored.created),
        ("suspended", org.suspended == stored.suspended),
        ("concurrent", org.concurrent == stored.concurrent),
    ];
    same.into_iter().filter(|(_, same)| !same).map(|(name, _)| name).collect()
}
