//! Keys: the digests of a batch are claimed first, then its keys are written, each with its bucket and its place in the
//! list. A key follows its user as that is here.

use std::collections::HashMap;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use redis::{FromRedisValue as _, cmd};

use super::report::{Finding, Problem, Progress, Record, Report};
use super::{BATCH, CopyError, Found};
use crate::clock::{self, Micros};
use crate::identity::UserId;
use crate::key::{KeyDigest, KeyId, OrgTag};
use crate::state::redis::Redis;
use crate::state::redis::client::CommandError;
use crate::state::redis::directory::changes::keys::fields;
use crate::state::redis::directory::changes::orgs::written;
use crate::state::redis::directory::changes::{CLAIM, CommitError, Transaction, joined, version};
use crate::state::redis::record_codec::{StoredKey, Version};
use crate::state::redis::record_names;
use crate::state::{KeyExport, OrgExport, User};

/// Users of keys, as they are here.
type Users = HashMap<UserId, User>;

/// What a key lacks.
pub(super) struct Lack {
    part: Part,
    claims: Vec<Claim>,
}

/// What a key's record lacks.
enum Part {
    Nothing,
    Everything,
    /// Uses; when it was last used here.
    Uses(Version, Option<Micros>),
}

/// A digest that is to be claimed.
#[derive(Clone)]
struct Claim {
    digest: KeyDigest,
    key: KeyId,
    /// The key that claimed it long ago and was never written.
    abandoned_by: Option<KeyId>,
}

/// Who has a digest.
pub(super) enum Holder {
    Nobody,
    /// The key that is asked about.
    Itself,
    /// A key that claimed it long ago and was never written.
    Abandoned(KeyId),
    Other(KeyId),
}

impl Redis {
    pub(super) async fn copy_keys(
        &self,
        org: &OrgExport,
        report: &mut Report,
        progress: &Progress,
    ) -> Result<(), CopyError> {
        let tag = org.org.tag;
        for batch in org.keys.chunks(BATCH) {
            let look = async || self.look_at_keys(batch).await;
            let write = async |found: &[Found<Lack>]| self.write_keys(tag, batch, found).await;
            let completed = self.complete(look, write).await?;
            for ((key, first), problem) in batch.iter().zip(completed.first).zip(completed.problems) {
                match problem {
                    None => count(report, key, &first),
                    Some(problem) => report.in_the_way.push(Finding { record: Record::Key(key.key.id), problem }),
                }
            }
            progress.advance(batch.len());
        }
        Ok(())
    }

    async fn look_at_keys(&self, keys: &[KeyExport]) -> Result<Vec<Found<Lack>>, CommitError> {
        let users = &self.users_of(keys).await?;
        stream::iter(keys.iter().map(|key| self.look_at_key(key, users))).buffered(BATCH).try_collect().await
    }

    /// The users of keys, as far as they are here.
    pub(super) async fn users_of(&self, keys: &[KeyExport]) -> Result<Users, CommandError> {
        let ids: HashMap<UserId, &KeyExport> = keys.iter().map(|key| (key.key.user, key)).collect();
        let read = ids.into_values().map(async |key| {
            let user = self.read_user(key.key.id.tag(), key.key.user).await?;
            Ok(user.filter(|user| user.org == key.key.org).map(|user| (user.id, user)))
        });
        let users: Vec<Option<(UserId, User)>> = stream::iter(read).buffer_unordered(BATCH).try_collect().await?;
        Ok(users.into_iter().flatten().collect())
    }

    async fn look_at_key(&self, key: &KeyExport, users: &Users) -> Result<Found<Lack>, CommitError> {
        if !users.contains_key(&key.key.user) {
            return Ok(Found::LeftOut);
        }
        let part = match self.read_key(key.key.id).await? {
            None => Part::Everything,
            Some(stored) => {
                let differences = differences(key, &stored);
                if !differences.is_empty() {
                    return Ok(Found::InTheWay(Problem::Differs(differences)));
                }
                let behind = stored.key.uses < key.key.uses;
                if behind { Part::Uses(stored.live.version, stored.key.last_used) } else { Part::Nothing }
            }
        };
        let mut claims = Vec::new();
        for digest in key.digests() {
            let claim = |abandoned_by| Claim { digest: *digest, key: key.key.id, abandoned_by };
            match self.holder(digest, key.key.id).await? {
                Holder::Itself => {}
                Holder::Nobody => claims.push(claim(None)),
                Holder::Abandoned(by) => claims.push(claim(Some(by))),
                Holder::Other(by) => return Ok(Found::InTheWay(Problem::DigestTaken(by))),
            }
        }
        let same = claims.is_empty() && matches!(part, Part::Nothing);
        Ok(if same { Found::Same } else { Found::Lacking(Lack { part, claims }) })
    }

    /// Who has a digest; what was claimed a moment ago has whoever claimed it.
    pub(super) async fn holder(&self, digest: &KeyDigest, key: KeyId) -> Result<Holder, CommandError> {
        let name = self.shared.record_names.digest(digest);
        let mut get = cmd("HMGET");
        get.arg(&name).arg("key").arg("at");
        let claim = self.servers.send(record_names::hash_slot(&name), &get).await?;
        let claim =
            <(Option<String>, Option<u64>)>::from_redis_value(claim).map_err(|_| CommandError::UnexpectedReply)?;
        let (Some(by), at) = claim else { return Ok(Holder::Nobody) };
        let by: KeyId = by.parse().map_err(|_| CommandError::UnexpectedReply)?;
        if by == key {
            return Ok(Holder::Itself);
        }
        let fresh = Micros(at.unwrap_or_default()).after(CLAIM) > clock::now();
        let held = fresh || self.read_key(by).await?.is_some();
        Ok(if held { Holder::Other(by) } else { Holder::Abandoned(by) })
    }

    async fn write_keys(&self, tag: OrgTag, keys: &[KeyExport], found: &[Found<Lack>]) -> Result<(), CommitError> {
        let lacking: Vec<_> = keys.iter().zip(found).filter_map(lacking).collect();
        let claims = lacking.iter().flat_map(|(_, lack)| &lack.claims).cloned().map(Ok);
        stream::iter(claims).try_for_each_concurrent(BATCH, async |claim| self.claim_again(claim).await).await?;
        // Read anew: a key is written with what its user may do now, and its user must not have changed since.
        let users = self.users_of(keys).await?;
        let mut transaction = self.transaction();
        self.check_users(&mut transaction, &lacking, &users);
        for (key, lack) in &lacking {
            match &lack.part {
                Part::Nothing => {}
                Part::Everything => {
                    let user = users.get(&key.key.user).ok_or(CommitError::Conflict)?;
                    self.add_key(&mut transaction, key, user)?;
                }
                Part::Uses(version, last_used) => self.catch_up(&mut transaction, key, version, *last_used)?,
            }
        }
        if transaction.is_empty() {
            return Ok(());
        }
        written(self.commit_at_once(record_names::hash_slot(tag.as_str()), &transaction).await?).map(drop)
    }

    /// Claims a digest that nobody had when it was looked at.
    async fn claim_again(&self, claim: Claim) -> Result<(), CommitError> {
        let name = self.shared.record_names.digest(&claim.digest);
        let slot = record_names::hash_slot(&name);
        let mut transaction = self.transaction();
        let record = transaction.record(name);
        match claim.abandoned_by {
            None => transaction.check(("absent", record)),
            Some(by) => transaction.check(("equal", record, "key", by.as_str())),
        }
        // As of now, so that nobody takes it for abandoned before the key is written.
        transaction.write(("set", record, "key", claim.key.as_str(), "at", clock::now().0.to_string()));
        written(self.commit_at_once(slot, &transaction).await?).map(drop)
    }

    fn check_users(&self, transaction: &mut Transaction, lacking: &[(&KeyExport, &Lack)], users: &Users) {
        let new = lacking.iter().filter(|(_, lack)| matches!(lack.part, Part::Everything));
        let owners: HashMap<UserId, KeyId> = new.map(|(key, _)| (key.key.user, key.key.id)).collect();
        for (id, key) in owners {
            let Some(user) = users.get(&id) else { continue };
            let record = transaction.record(self.shared.record_names.user(key.tag(), id));
            transaction.check(("equal", record, "permissions", joined(&user.permissions)));
            match user.removed {
                None => transaction.check(("none", record, "removed")),
                Some(at) => transaction.check(("equal", record, "removed", at.0.to_string())),
            }
        }
    }

    fn add_key(&self, transaction: &mut Transaction, export: &KeyExport, user: &User) -> Result<(), CommitError> {
        let KeyExport { key, digest, previous, bucket, per_us, .. } = export;
        let (record_names, tag, id) = (&self.shared.record_names, key.id.tag(), key.id.as_str());
        let names = [record_names.key(key.id), record_names.keys(tag), record_names.keys_of(tag, user.id)];
        let [record, list, keys_of] = names.map(|name| transaction.record(name));
        let used = key.last_used.unwrap_or_default().0;
        let mut fields = fields(key, digest, &user.permissions);
        fields.extend(previous.map(|previous| ("previous", record_names::hex(previous.as_bytes()))));
        fields.extend(user.removed.map(|at| ("removed", at.0.to_string())));
        transaction.check(("absent", record));
        transaction.write(("bucket", record, version()?, bucket.level, bucket.at.0, per_us, key.uses, used));
        transaction.set(record, &fields);
        transaction.write(("append", list, id));
        transaction.write(("add", keys_of, id));
        Ok(())
    }

    /// Gives a key the uses that it has there, and the bucket that they left.
    fn catch_up(
        &self,
        transaction: &mut Transaction,
        export: &KeyExport,
        known: &Version,
        last_used: Option<Micros>,
    ) -> Result<(), CommitError> {
        let KeyExport { key, bucket, per_us, .. } = export;
        let record = transaction.record(self.shared.record_names.key(key.id));
        let used = key.last_used.max(last_used).unwrap_or_default().0;
        transaction.check(("version", record, String::from_utf8_lossy(known)));
        transaction.check(("behind", record, key.uses));
        transaction.write(("bucket", record, version()?, bucket.level, bucket.at.0, per_us, key.uses, used));
        Ok(())
    }
}

fn lacking<'a>((key, found): (&'a KeyExport, &'a Found<Lack>)) -> Option<(&'a KeyExport, &'a Lack)> {
    match found {
        Found::Lacking(lack) => Some((key, lack)),
        _ => None,
    }
}

fn count(report: &mut Report, key: &KeyExport, first: &Found<Lack>) {
    let (was_there, claimed) = match first {
        Found::LeftOut => {
            report.left_out.keys += 1;
            return;
        }
        Found::Same => (true, 0),
        Found::Lacking(lack) => (!matches!(lack.part, Part::Everything), lack.claims.len() as u64),
        Found::InTheWay(_) => (false, 0),
    };
    report.keys.one(was_there);
    report.digests.copied += claimed;
    report.digests.already_there += key.digests().count() as u64 - claimed;
    let caught_up = matches!(first, Found::Lacking(Lack { part: Part::Uses(..), .. }));
    report.caught_up += u64::from(caught_up);
}

/// What differs between a key and one with its id, but for what uses change.
pub(super) fn differences(export: &KeyExport, stored: &StoredKey) -> Vec<&'static str> {
    let (key, other) = (&export.key, &stored.key);
    let same = [
        ("org", key.org == other.org),
        ("user", key.user == other.user),
        ("name", key.name == other.name),
        ("imported", key.imported == other.imported),
        ("session quota key", key.session_quota_key == other.session_quota_key),
        ("created", key.created == other.created),
        ("rotated", key.rotated == other.rotated),
        ("previous_until", key.previous_until == other.previous_until),
        ("revoked", key.revoked == other.revoked),
        ("quota", key.quota == other.quota),
        ("digest", export.digest == stored.digest),
        // Without an overlap it does not matter what was before.
        ("previous digest", export.previous.is_none() || export.previous == stored.previous),
    ];
    same.into_iter().filter(|(_, same)| !same).map(|(name, _)| name).collect()
}
