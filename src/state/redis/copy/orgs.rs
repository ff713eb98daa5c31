//! Organizations: their records first, side by side, and then their names and places in the list, in order.

use futures_util::{StreamExt as _, TryStreamExt as _, stream};

use super::report::{Finding, Problem, Progress, Record, Report};
use super::{BATCH, CopyError, Found};
use crate::state::redis::Redis;
use crate::state::redis::directory::changes::orgs::{fields, written};
use crate::state::redis::directory::changes::{CommitError, version};
use crate::state::redis::record_names;
use crate::state::{Org, OrgExport};

/// What an organization lacks.
pub(super) struct Lack {
    record: bool,
    listing: bool,
}

impl Redis {
    /// Copies the organizations themselves; gives those whose users and keys can be copied.
    pub(super) async fn copy_orgs<'a>(
        &self,
        orgs: &'a [OrgExport],
        report: &mut Report,
        progress: &Progress,
    ) -> Result<Vec<&'a OrgExport>, CopyError> {
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

    pub(super) async fn look_at_orgs(&self, orgs: &[OrgExport]) -> Result<Vec<Found<Lack>>, CommitError> {
        stream::iter(orgs.iter().map(|org| self.look_at_org(&org.org))).buffered(BATCH).try_collect().await
    }

    async fn look_at_org(&self, org: &Org) -> Result<Found<Lack>, CommitError> {
        let stored = self.read_org(org.tag).await?;
        if let Some(other) = stored.as_ref().filter(|stored| stored.id != org.id) {
            return Ok(Found::InTheWay(Problem::TagTaken(other.id)));
        }
        let listed = self.find_tag(org.id).await?;
        if let Some(tag) = listed.filter(|tag| *tag != org.tag) {
            return Ok(Found::InTheWay(Problem::OtherTag(tag)));
        }
        let name = self.read_field(record_names::orgs_slot(), &self.shared.record_names.names(), &org.name).await?;
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

    async fn write_orgs(&self, orgs: &[OrgExport], found: &[Found<Lack>]) -> Result<(), CommitError> {
        let lacking = || {
            orgs.iter().zip(found).filter_map(|(org, found)| match found {
                Found::Lacking(lack) => Some((&org.org, lack)),
                _ => None,
            })
        };
        let records = lacking().filter(|(_, lack)| lack.record).map(|(org, _)| Ok(org));
        stream::iter(records).try_for_each_concurrent(BATCH, async |org| self.write_org(org).await).await?;
        let names =
            [self.shared.record_names.names(), self.shared.record_names.tags(), self.shared.record_names.orgs()];
        let mut transaction = self.transaction();
        let [names, tags, list] = names.map(|name| transaction.record(name));
        for (org, _) in lacking().filter(|(_, lack)| lack.listing) {
            let id = org.id.to_string();
            transaction.check(("none", names, &org.name));
            transaction.check(("none", tags, &id));
            transaction.write(("set", names, &org.name, &id));
            transaction.write(("set", tags, &id, org.tag.as_str()));
            transaction.write(("append", list, &id));
        }
        written(self.commit_at_once(record_names::orgs_slot(), &transaction).await?).map(drop)
    }

    async fn write_org(&self, org: &Org) -> Result<(), CommitError> {
        let mut transaction = self.transaction();
        let record = transaction.record(self.shared.record_names.org(org.tag));
        transaction.check(("absent", record));
        transaction.write(("slots", record, version()?));
        transaction.set(record, &fields(org));
        written(self.commit_at_once(record_names::hash_slot(org.tag.as_str()), &transaction).await?).map(drop)
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
