//! The script of a decision by itself, under `redis-benchmark`: what no gateway can exceed.

use std::process::{Command, Stdio};

use domain::key::KeyId;

use crate::deciding::{CONCURRENT, Directory, PLENTY};
use crate::support::redis::Redis;

/// The script as the gateway puts it together, but for the line that has the question in it: `redis-benchmark` cannot
/// send one with zero bytes.
const SCRIPT: &str = concat!(
    include_str!("../../crates/state/src/redis/scripts/bucket.lua"),
    include_str!("../../crates/state/src/redis/scripts/slot_leases.lua"),
    include_str!("../../crates/state/src/redis/scripts/decide.lua"),
);

/// The experiment: several decisions of one organization in one call.
const SEVERAL: &str = concat!(
    include_str!("../../crates/state/src/redis/scripts/bucket.lua"),
    include_str!("../../crates/state/src/redis/scripts/slot_leases.lua"),
    include_str!("several.lua"),
);

/// A call that can be repeated: each of its decisions takes a token and a slot, and gives back the slot that an earlier
/// one took.
pub(crate) struct Bare {
    port: u16,
    digest: String,
    keys: Vec<String>,
    /// Decisions of one call.
    decisions: usize,
}

impl Bare {
    /// A call of the script for one decision.
    pub(crate) fn new(server: &Redis, directory: &Directory) -> Self {
        let (org, [key, user], question) = question(server, directory.keys(1)[0]);
        Self::load(server, SCRIPT, vec![key, org, user], &[escaped(&question)])
    }

    /// A call of the experiment for so many decisions.
    pub(crate) fn several(server: &Redis, directory: &Directory, decisions: usize) -> Self {
        let (mut keys, mut questions) = (Vec::new(), Vec::new());
        for id in directory.keys(decisions) {
            let (org, records, question) = question(server, id);
            if keys.is_empty() {
                keys.push(org);
            }
            keys.extend(records);
            questions.push(escaped(&question));
        }
        Self::load(server, SEVERAL, keys, &questions)
    }

    fn load(server: &Redis, script: &str, keys: Vec<String>, questions: &[String]) -> Self {
        let arguments: String = questions.iter().map(|question| format!(", '{question}'")).collect();
        let script = format!("#!lua\nlocal ARGV = {{ ARGV[1]{arguments} }}\n{script}");
        let digest = server.cli(&["SCRIPT", "LOAD", &script]);
        Self { port: server.port(), digest, keys, decisions: questions.len() }
    }

    /// Decisions of one call.
    pub(crate) fn decisions(&self) -> usize {
        self.decisions
    }

    /// So many decisions by so many clients, with so many commands in a pipeline; how many are made per second.
    pub(crate) fn run(&self, clients: usize, pipeline: usize, decisions: usize) -> f64 {
        let calls = decisions.div_ceil(self.decisions);
        let [port, clients, pipeline, calls, keys] =
            [usize::from(self.port), clients, pipeline, calls, self.keys.len()].map(|number| number.to_string());
        let output = Command::new("redis-benchmark")
            .args(["-p", &port, "-c", &clients, "-P", &pipeline, "-n", &calls, "--csv"])
            .args(["EVALSHA", &self.digest, &keys])
            .args(&self.keys)
            .arg("h:benchmark")
            .stdin(Stdio::null())
            .output()
            .expect("redis-benchmark is there (package redis-tools)");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let last = text.lines().last().unwrap_or_default();
        let rate = last.rsplit("\",\"").nth(6).and_then(|rate| rate.parse().ok());
        let rate: f64 = rate.unwrap_or_else(|| panic!("redis-benchmark says: {text}"));
        #[allow(clippy::cast_precision_loss, reason = "a small count")]
        let decisions = self.decisions as f64;
        rate * decisions
    }
}

/// The organization's record, those of a key and of its user, and the request about it.
pub(crate) fn question(server: &Redis, id: KeyId) -> (String, [String; 2], Vec<u8>) {
    let tag = id.tag();
    let tag = tag.as_str();
    let (key, org) = (format!("keygate:{{{tag}}}:key:{}", id.as_str()), format!("keygate:{{{tag}}}:org"));
    let user: String = server.cli(&["HGET", &key, "user"]);
    let user = format!("keygate:{{{tag}}}:user:{user}");
    let mut question = Vec::new();
    for (record, field) in [(&key, "live"), (&org, "live"), (&user, "version")] {
        let version: Vec<u8> = server.cli(&["HGET", record, field]);
        question.extend_from_slice(&version[..8]);
    }
    let per = f64::from(u32::try_from(PLENTY.per.as_micros()).unwrap());
    let (requests, capacity) = (f64::from(PLENTY.requests), f64::from(PLENTY.burst) * per);
    let (forever, lease) = (9e15, 1e7);
    let numbers = [0.0, forever, requests, per, capacity, f64::from(CONCURRENT), 0.0, 1.0, lease, 1.0, 1.0, 0.0, 0.0];
    numbers.iter().for_each(|number: &f64| question.extend_from_slice(&number.to_le_bytes()));
    (org, [key, user], question)
}

/// Bytes as a text of Lua.
fn escaped(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("\\{byte:03}")).collect()
}
