//! A change to the records of one slot, as `commit.lua` takes it.

use redis::{Cmd, Value};
use serde::Serialize;
use serde_json::json;

use crate::state::redis::Redis;
use crate::state::redis::client::CommandError;
use crate::state::redis::client::script::Script;

/// Letters of versions.
const BASE62: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// What must be so, and what is to be written then; all of it or nothing.
#[derive(Default)]
pub(in crate::state::redis) struct Transaction {
    records: Vec<String>,
    checks: Vec<serde_json::Value>,
    writes: Vec<serde_json::Value>,
    now: u64,
}

/// What became of a transaction.
pub(in crate::state::redis) enum CommitResult {
    /// It is written, and this many replicas have it, as far as anybody waited for them.
    Written(u32),
    /// This check, counted from 1 in the order in which they were added, failed; nothing was written.
    Failed(u64),
}

impl Transaction {
    /// An empty transaction for a time that its writes take for now; 0 for the server's.
    pub(in crate::state::redis) fn new(now: u64) -> Self {
        Self { now, ..Self::default() }
    }

    /// Names a record; the number stands for it in checks and writes.
    pub(in crate::state::redis) fn record(&mut self, name: String) -> usize {
        self.records.push(name);
        self.records.len()
    }

    pub(in crate::state::redis) fn check(&mut self, check: impl Serialize) {
        self.checks.push(json!(check));
    }

    pub(in crate::state::redis) fn write(&mut self, write: impl Serialize) {
        self.writes.push(json!(write));
    }

    /// Sets fields of a record.
    pub(in crate::state::redis) fn set(&mut self, record: usize, fields: &[(&str, String)]) {
        let mut write = vec![json!("set"), json!(record)];
        for (name, value) in fields {
            write.extend([json!(name), json!(value)]);
        }
        self.writes.push(serde_json::Value::Array(write));
    }

    /// Gives a record another version, so that nobody decides from the old one.
    pub(in crate::state::redis) fn stamp(&mut self, record: usize) -> Result<(), getrandom::Error> {
        let version = version()?;
        self.write(("stamp", record, version));
        Ok(())
    }

    /// Whether it would neither check nor write anything.
    pub(in crate::state::redis) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    fn json(&self) -> String {
        json!({ "checks": self.checks, "writes": self.writes, "now": self.now }).to_string()
    }

    pub(in crate::state::redis) fn by_digest(&self, commit: &Script) -> Cmd {
        let (keys, json) = (self.keys(), self.json());
        commit.by_digest(&keys, &[json.as_bytes()])
    }

    fn keys(&self) -> Vec<&[u8]> {
        self.records.iter().map(|name| name.as_bytes()).collect()
    }
}

impl Redis {
    /// Checks and writes a transaction, and waits for no replica.
    pub(in crate::state::redis) async fn commit_at_once(
        &self,
        slot: u16,
        transaction: &Transaction,
    ) -> Result<CommitResult, CommandError> {
        let (commit, json) = (&self.shared.scripts.commit, transaction.json());
        commit_result(self.servers.run(slot, commit, &transaction.keys(), &[json.as_bytes()]).await?, 0)
    }

    /// Checks and writes a transaction, and waits for as many replicas as are configured.
    pub(in crate::state::redis) async fn commit(
        &self,
        slot: u16,
        transaction: &Transaction,
    ) -> Result<CommitResult, CommandError> {
        let (commit, json) = (&self.shared.scripts.commit, transaction.json());
        let (answer, replicas) = self.run_durably(slot, commit, &transaction.keys(), &[json.as_bytes()]).await?;
        commit_result(answer, replicas)
    }

    /// Runs a script that writes, waits for as many replicas as are configured, and says how many have it.
    pub(in crate::state::redis) async fn run_durably(
        &self,
        slot: u16,
        script: &Script,
        keys: &[&[u8]],
        arguments: &[&[u8]],
    ) -> Result<(Value, u32), CommandError> {
        let durability = self.shared.settings.durability;
        // Who waits for replicas has the connection to themselves.
        let _alone = if durability.replicas > 0 { Some(self.shared.committing.lock().await) } else { None };
        self.commits.run_durably(slot, script, keys, arguments, durability).await
    }
}

fn commit_result(answer: Value, replicas: u32) -> Result<CommitResult, CommandError> {
    match answer {
        Value::Int(0) => Ok(CommitResult::Written(replicas)),
        Value::Int(number) => Ok(CommitResult::Failed(u64::try_from(number).unwrap_or_default())),
        _ => Err(CommandError::UnexpectedReply),
    }
}

/// A version that no record had before: 47 bits at random.
pub(in crate::state::redis) fn version() -> Result<String, getrandom::Error> {
    let mut random = getrandom::u64()?;
    let mut letter = || {
        let letter = BASE62[usize::try_from(random % 62).unwrap_or_default()];
        random /= 62;
        char::from(letter)
    };
    Ok((0..8).map(|_| letter()).collect())
}
