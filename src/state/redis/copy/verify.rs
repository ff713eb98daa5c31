//! Reading a copy back: every record is looked at once more, and the lists that it should be in.
//!
//! What uses have changed since is as it should be: gateways may serve from here.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use redis::{FromRedisValue as _, cmd};

use super::keys::{Holder, differences};
use super::report::{Finding, Problem, Progress, Record, Report};
use super::{BATCH, CopyError, Found, ORGS, Patience};
use crate::clock;
use crate::identity::UserId;
use crate::key::KeyId;
use crate::state::redis::Redis;
use crate::state::redis::client::CommandError;
use crate::state::redis::directory::changes::CommitError;
use crate::state::redis::record_codec::StoredKey;
use crate::state::redis::record_names;
use crate::state::{KeyExport, OrgExport, User};

impl Redis {
    /// What is not as it should be, each once, but for what is known to be in the way.
    pub(super) async fn verify(
        &self,
        orgs: &[OrgExport],
        usable: &[&OrgExport],
        report: &Report,
        progress: &Progress,
    ) -> Result<Vec<Finding>, CopyError> {
        let mut findings = patiently(async || self.verify_orgs(orgs).await).await?;
        progress.advance(orgs.len());
        let of_orgs = usable.iter().map(async |org| {
            let mut findings = patiently(async || self.verify_users(org).await).await?;
            progress.advance(org.users.len());
            for batch in org.keys.chunks(BATCH) {
                findings.extend(patiently(async || self.verify_keys(batch).await).await?);
                progress.advance(batch.len());
            }
            findings.extend(patiently(async || self.verify_lists(org).await).await?);
            Ok(findings)
        });
        let of_orgs: Vec<Vec<Finding>> = stream::iter(of_orgs).buffered(ORGS).try_collect().await?;
        findings.extend(of_orgs.into_iter().flatten());
        let mut known: HashSet<Record> = report.in_the_way.iter().map(|finding| finding.record).collect();
        findings.retain(|finding| known.insert(finding.record));
        Ok(findings)
    }

    async fn verify_orgs(&self, orgs: &[OrgExport]) -> Result<Vec<Finding>, CommitError> {
        let found = self.look_at_orgs(orgs).await?;
        let records = orgs.iter().map(|org| Record::Org(org.org.id));
        let mut findings = findings(records.zip(found.into_iter().map(difference)));
        let ids = self.read_ids(record_names::orgs_slot(), "LRANGE", &self.shared.record_names.orgs()).await?;
        findings.extend(unlisted(&ids, orgs.iter().map(|org| org.org.id), Record::Org));
        Ok(findings)
    }

    async fn verify_users(&self, org: &OrgExport) -> Result<Vec<Finding>, CommitError> {
        let found = self.look_at_users(org.org.tag, &org.users).await?;
        let records = org.users.iter().map(|user| Record::User(user.id));
        Ok(findings(records.zip(found.into_iter().map(difference))))
    }

    async fn verify_keys(&self, keys: &[KeyExport]) -> Result<Vec<Finding>, CommitError> {
        let users = &self.users_of(keys).await?;
        let read = keys.iter().map(async |key| match users.get(&key.key.user) {
            Some(user) => self.verify_key(key, user).await,
            None => Ok(None),
        });
        let problems: Vec<Option<Problem>> = stream::iter(read).buffered(BATCH).try_collect().await?;
        Ok(findings(keys.iter().map(|key| Record::Key(key.key.id)).zip(problems)))
    }

    async fn verify_key(&self, key: &KeyExport, user: &User) -> Result<Option<Problem>, CommandError> {
        let Some(stored) = self.read_key(key.key.id).await? else { return Ok(Some(Problem::Missing)) };
        let mut differences = differences(key, &stored);
        let follows = stored.permissions == user.permissions && stored.user_removed == user.removed.is_some();
        let quota = key.key.quota.unwrap_or(self.shared.settings.quota);
        differences.extend((!follows).then_some("what its user may do"));
        differences.extend(usage_difference(key, &stored, quota));
        if !differences.is_empty() {
            return Ok(Some(Problem::Differs(differences)));
        }
        if !self.is_of_user(key).await? {
            return Ok(Some(Problem::NotAmongUsers));
        }
        for digest in key.digests() {
            if !matches!(self.holder(digest, key.key.id).await?, Holder::Itself) {
                return Ok(Some(Problem::NotFound));
            }
        }
        Ok(None)
    }

    /// Whether a key is among those of its user, which a change of the user changes with it.
    async fn is_of_user(&self, key: &KeyExport) -> Result<bool, CommandError> {
        let (record_names, key) = (&self.shared.record_names, &key.key);
        let tag = key.id.tag();
        let mut ask = cmd("SISMEMBER");
        ask.arg(record_names.keys_of(tag, key.user)).arg(key.id.as_str());
        let answer = self.servers.send(record_names::hash_slot(tag.as_str()), &ask).await?;
        bool::from_redis_value(answer).map_err(|_| CommandError::UnexpectedReply)
    }

    /// Each user and each key must be once in the list of the organization.
    async fn verify_lists(&self, org: &OrgExport) -> Result<Vec<Finding>, CommitError> {
        let (record_names, tag) = (&self.shared.record_names, org.org.tag);
        let slot = record_names::hash_slot(tag.as_str());
        let users: Vec<UserId> = self.read_ids(slot, "LRANGE", &record_names.users(tag)).await?;
        let keys: Vec<KeyId> = self.read_ids(slot, "LRANGE", &record_names.keys(tag)).await?;
        // What was left out, with its user, is in no list.
        let there: HashSet<UserId> = users.iter().copied().collect();
        let ours = org.keys.iter().filter(|key| there.contains(&key.key.user)).map(|key| key.key.id);
        let mut findings = unlisted(&users, org.users.iter().map(|user| user.id), Record::User);
        findings.extend(unlisted(&keys, ours, Record::Key));
        Ok(findings)
    }
}

/// Reads until it succeeds.
async fn patiently<T>(read: impl AsyncFn() -> Result<T, CommitError>) -> Result<T, CopyError> {
    let mut patience = Patience::default();
    loop {
        match read().await {
            Ok(read) => return Ok(read),
            Err(obstacle) => patience.bear(obstacle).await?,
        }
    }
}

fn findings(problems: impl Iterator<Item = (Record, Option<Problem>)>) -> Vec<Finding> {
    problems.filter_map(|(record, problem)| Some(Finding { record, problem: problem? })).collect()
}

/// What is wrong with a record that should be the same.
fn difference<T>(found: Found<T>) -> Option<Problem> {
    match found {
        Found::Same => None,
        Found::InTheWay(problem) => Some(problem),
        Found::Lacking(_) | Found::LeftOut => Some(Problem::Missing),
    }
}

/// What differs of what uses change. Beyond the uses that were copied there is nothing to compare with.
fn usage_difference(key: &KeyExport, stored: &StoredKey, quota: crate::quota::Quota) -> Option<&'static str> {
    if stored.key.uses != key.key.uses {
        return (stored.key.uses < key.key.uses).then_some("uses");
    }
    let now = clock::now();
    let there = stored.live.bucket.converted(stored.live.per_us, quota).refilled(quota, now);
    let bucket = key.bucket.converted(key.per_us, quota).refilled(quota, now);
    let differs = (there != bucket).then_some("bucket");
    differs.or((stored.key.last_used != key.key.last_used).then_some("last used"))
}

/// Those that are not once in a list.
fn unlisted<T: Copy + Eq + Hash>(
    list: &[T],
    wanted: impl Iterator<Item = T>,
    record: impl Fn(T) -> Record,
) -> Vec<Finding> {
    let mut times: HashMap<T, usize> = HashMap::with_capacity(list.len());
    list.iter().for_each(|id| *times.entry(*id).or_default() += 1);
    let times = wanted.map(|id| (record(id), times.get(&id).copied().unwrap_or_default()));
    findings(times.map(|(record, times)| (record, (times != 1).then_some(Problem::Listed(times)))))
}
