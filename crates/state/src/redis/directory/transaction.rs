//! An optimistic transaction on records of one hash slot, as `commit.lua` executes it: everything is checked, then
//! everything is written, or nothing.

use std::time::Duration;

use redis::Value;
use serde::Serialize;
use serde_json::json;

use super::check::{Check, Record};
use super::record_fields::quota_numbers;
use crate::CreationBucket;
use crate::bucket::Bucket;
use crate::redis::record_codec::new_version;
use crate::redis::scripts::Scripts;
use domain::clock::Micros;
use domain::quota::Quota;
use redis_client::{CommandError, Script, hash_slot};

/// Checks and writes. A write that is one command of Redis has its name, here and in `commit.lua`. Each check carries
/// the failure `F` that the caller gets when it does not hold.
///
/// - All records are of one hash slot: that of the first.
/// - There are as many failures as checks.
pub(crate) struct Transaction<F> {
    /// Names of the records, which checks and writes refer to.
    records: Vec<String>,
    checks: Vec<serde_json::Value>,
    /// The failure of each check.
    failures: Vec<F>,
    writes: Vec<serde_json::Value>,
    /// The time for the writes, in microseconds; 0 for the server's.
    now: u64,
    /// True when it runs also while the server's memory is full.
    allows_oom: bool,
}

/// Result of a transaction.
pub(crate) enum CommitResult<F> {
    /// Everything is written, and so many replicas have confirmed it (0 when none was waited for).
    Written(u32),
    /// This is the failure of the first check that did not hold; nothing was written.
    Failed(F),
}

impl<F> Transaction<F> {
    /// An empty transaction. `now` is the time for its writes, in microseconds; 0 for the server's.
    pub(crate) fn new(now: u64) -> Self {
        Self {
            records: Vec::new(),
            checks: Vec::new(),
            failures: Vec::new(),
            writes: Vec::new(),
            now,
            allows_oom: false,
        }
    }

    /// Has it run also while the server's memory is full. For changes that withdraw something, with their grant and the
    /// record of their request: they write no more than a few fields.
    pub(crate) fn allow_oom(&mut self) {
        self.allows_oom = true;
    }

    /// Adds a record.
    pub(crate) fn record(&mut self, name: String) -> Record {
        self.records.push(name);
        let last = self.records.last().map(|name| hash_slot(name));
        debug_assert_eq!(last, Some(self.hash_slot()), "records of one hash slot");
        Record(self.records.len())
    }

    /// Adds several records.
    pub(crate) fn records<const N: usize>(&mut self, names: [String; N]) -> [Record; N] {
        names.map(|name| self.record(name))
    }

    /// Adds a check, with the failure to return when it does not hold.
    pub(crate) fn check(&mut self, check: Check<'_>, failure: F) {
        self.checks.push(check.json());
        self.failures.push(failure);
        debug_assert_eq!(self.checks.len(), self.failures.len(), "each check has its failure");
    }

    /// Sets fields of a hash.
    pub(crate) fn hset(&mut self, record: Record, fields: &[(&str, String)]) {
        let mut write = vec![json!("hset"), json!(record)];
        for (name, value) in fields {
            write.extend([json!(name), json!(value)]);
        }
        self.writes.push(serde_json::Value::Array(write));
    }

    /// Sets one field of a hash.
    pub(crate) fn hset_field(&mut self, record: Record, field: &str, value: &str) {
        self.write(("hset", record, field, value));
    }

    /// Removes fields of a hash.
    pub(crate) fn hdel(&mut self, record: Record, fields: &[&str]) {
        let mut write = vec![json!("hdel"), json!(record)];
        write.extend(fields.iter().map(|field| json!(field)));
        self.writes.push(serde_json::Value::Array(write));
    }

    /// Sets the fields of a hash that differ from those of before, and removes those that are gone.
    pub(crate) fn replace_fields(&mut self, record: Record, before: &[(&str, String)], after: &[(&str, String)]) {
        let changed: Vec<_> = after.iter().filter(|field| !before.contains(field)).cloned().collect();
        if !changed.is_empty() {
            self.hset(record, &changed);
        }
        let is_gone = |name: &&str| after.iter().all(|(other, _)| other != name);
        let gone: Vec<&str> = before.iter().map(|(name, _)| *name).filter(is_gone).collect();
        if !gone.is_empty() {
            self.hdel(record, &gone);
        }
    }

    /// Appends a value to a list.
    pub(crate) fn rpush(&mut self, record: Record, value: &str) {
        self.write(("rpush", record, value));
    }

    /// Adds a member to a set.
    pub(crate) fn sadd(&mut self, record: Record, member: &str) {
        self.write(("sadd", record, member));
    }

    /// Removes a member of a set.
    pub(crate) fn srem(&mut self, record: Record, member: &str) {
        self.write(("srem", record, member));
    }

    /// Takes a token from the bucket of the keys that a user creates.
    pub(crate) fn take_token(&mut self, record: Record, quota: &serde_json::Value) {
        self.write(("take_token", record, quota));
    }

    /// Sets the bucket of the keys that a new user creates.
    pub(crate) fn set_tokens(&mut self, record: Record, creation: &CreationBucket) {
        self.write(("set_tokens", record, creation.bucket.level, creation.bucket.at, creation.per_us));
    }

    /// Replaces what the subject of a budget has spent, where that began before `start`.
    pub(crate) fn set_spent(&mut self, record: Record, start: Micros, units: u64) {
        self.write(("set_spent", record, start, units));
    }

    /// Deletes a record.
    pub(crate) fn del(&mut self, record: Record) {
        self.write(("del", record));
    }

    /// Makes a record expire at a time, in milliseconds since the Unix epoch.
    pub(crate) fn pexpireat(&mut self, record: Record, at: u64) {
        self.write(("pexpireat", record, at));
    }

    /// Makes a record expire after this time, by the server's clock.
    pub(crate) fn pexpire(&mut self, record: Record, time: Duration) {
        self.write(("pexpire", record, time.as_millis() as u64));
    }

    /// Adds a member to a sorted set, by a score.
    pub(crate) fn zadd(&mut self, record: Record, score: u64, member: &str) {
        self.write(("zadd", record, score, member));
    }

    /// Removes a member of a sorted set.
    pub(crate) fn zrem(&mut self, record: Record, member: &str) {
        self.write(("zrem", record, member));
    }

    /// Removes at most `count` members of a sorted set whose score is in the past, and the fields of these names from
    /// the hash `index`.
    pub(crate) fn sweep(&mut self, ends: Record, index: Record, count: usize) {
        self.write(("sweep", ends, index, count));
    }

    /// Appends an entry to a log, which keeps its last `capacity` entries.
    pub(crate) fn append_to_log(&mut self, log: Record, capacity: u64, entry: &str) {
        self.write(("append_to_log", log, capacity, entry));
    }

    /// Counts a change by management, at this time.
    pub(crate) fn count_change(&mut self, record: Record) {
        self.write(("count_change", record));
    }

    /// Removes at most `count` members of a sorted set whose score is in the past.
    pub(crate) fn prune(&mut self, record: Record, count: usize) {
        self.write(("prune", record, count));
    }

    /// Writes the live part of a new key: a version, the bucket with the quota that it is measured in, uses, and the
    /// time of the last use.
    pub(crate) fn init_key(
        &mut self,
        record: Record,
        (bucket, quota): (Bucket, Quota),
        uses: u64,
        used: Micros,
    ) -> Result<(), getrandom::Error> {
        let Bucket { level, at } = bucket;
        self.write(("init_key", record, new_version()?, level, at, uses, used, quota_numbers(quota)));
        Ok(())
    }

    /// Writes the live part of a new organization: a version, and no slots taken.
    pub(crate) fn init_org(&mut self, record: Record) -> Result<(), getrandom::Error> {
        self.write(("init_org", record, new_version()?));
        Ok(())
    }

    /// Replaces the version of a record, so that no decision is made from the old one any more, by one that no other
    /// content of the record ever had.
    pub(crate) fn replace_version(&mut self, record: Record, version: &str) {
        self.write(("replace_version", record, version));
    }

    /// Converts a key's bucket from one quota, in force for `age` microseconds, to another. The tokens that it has at
    /// this moment stay.
    pub(crate) fn convert_quota(&mut self, record: Record, from: Quota, to: Quota, age: u64) {
        self.write(("convert_quota", record, quota_numbers(from), quota_numbers(to), age));
    }

    /// Returns whether it would neither check nor write anything.
    pub(crate) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    fn write(&mut self, write: impl Serialize) {
        self.writes.push(json!(write));
    }

    /// The hash slot of all records.
    pub(super) fn hash_slot(&self) -> u16 {
        let Some(first) = self.records.first() else { unreachable!("a transaction has a record") };
        hash_slot(first)
    }

    /// The names of the records, as the keys of the script.
    pub(super) fn keys(&self) -> Vec<&[u8]> {
        self.records.iter().map(|name| name.as_bytes()).collect()
    }

    /// The script that executes it.
    pub(super) fn script<'a>(&self, scripts: &'a Scripts) -> &'a Script {
        if self.allows_oom { &scripts.withdraw } else { &scripts.commit }
    }

    /// The argument of the script.
    pub(super) fn json(&self) -> String {
        json!({ "checks": self.checks, "writes": self.writes, "now": self.now }).to_string()
    }

    /// Decodes the reply of the script: 0, or the number of the first check that failed, from 1.
    pub(super) fn into_result(mut self, reply: &Value, replicas: u32) -> Result<CommitResult<F>, CommandError> {
        match reply {
            Value::Int(0) => Ok(CommitResult::Written(replicas)),
            Value::Int(number) => {
                let index = usize::try_from(*number).ok().and_then(|number| number.checked_sub(1));
                let index = index.filter(|index| *index < self.failures.len()).ok_or(CommandError::UnexpectedReply)?;
                Ok(CommitResult::Failed(self.failures.swap_remove(index)))
            }
            _ => Err(CommandError::UnexpectedReply),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_check_returns_its_own_failure() {
        let failed = |number| {
            let mut transaction = Transaction::new(0);
            let record = transaction.record("r".into());
            transaction.check(Check::Present(record), "missing");
            transaction.check(Check::NoField(record, "f"), "taken");
            transaction.into_result(&Value::Int(number), 2)
        };
        assert!(matches!(failed(0), Ok(CommitResult::Written(2))));
        assert!(matches!(failed(1), Ok(CommitResult::Failed("missing"))));
        assert!(matches!(failed(2), Ok(CommitResult::Failed("taken"))));
        assert!(failed(3).is_err());
        assert!(failed(-1).is_err());
    }

    #[test]
    #[should_panic(expected = "records of one hash slot")]
    fn transaction_refuses_a_record_of_another_hash_slot() {
        Transaction::<()>::new(0).records(["{t}o".into(), "{u}k".into()]);
    }

    #[test]
    fn transaction_has_the_wire_format_of_the_script() {
        let mut transaction = Transaction::new(7);
        let [org, keys] = transaction.records(["{t}o".into(), "{t}k".into()]);
        transaction.check(Check::Equal(org, "id", "x"), ());
        transaction.check(Check::Version(org, b"abcdefgh"), ());
        transaction.hset(org, &[("name", "n".into())]);
        transaction.hdel(org, &["a", "b"]);
        transaction.rpush(keys, "key");
        transaction.pexpireat(keys, 5);
        let json: serde_json::Value = serde_json::from_str(&transaction.json()).unwrap();
        let checks = json!([["equal", 1, "id", "x"], ["version", 1, "abcdefgh"]]);
        let writes = json!([["hset", 1, "name", "n"], ["hdel", 1, "a", "b"], ["rpush", 2, "key"], ["pexpireat", 2, 5]]);
        assert_eq!(json, json!({ "checks": checks, "writes": writes, "now": 7 }));
    }
}
