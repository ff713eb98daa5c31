//! The script of a decision by itself, under `redis-benchmark`: what no gateway can exceed.

use std::process::{Command, Stdio};

use crate::deciding::{CONCURRENT, Directory, PLENTY};
use crate::support::redis::Redis;

/// The script as the gateway puts it together, but for the line that has the question in it: `redis-benchmark` cannot
/// send one with zero bytes.
const SCRIPT: &str = concat!(
    include_str!("../../src/state/redis/scripts/bucket.lua"),
    include_str!("../../src/state/redis/scripts/slot_leases.lua"),
    include_str!("../../src/state/redis/scripts/decide.lua"),
);

/// A decision that can be repeated: it takes a token and a slot, and gives back the slot that the last one took.
pub(crate) struct Bare {
    port: u16,
    digest: String,
    keys: [String; 3],
}

impl Bare {
    pub(crate) fn new(server: &Redis, directory: &Directory) -> Self {
        let (id, tag) = (directory.key().id, directory.key().id.tag());
        let tag = tag.as_str();
        let key = format!("keygate:{{{tag}}}:key:{}", id.as_str());
        let user: String = server.cli(&["HGET", &key, "user"]);
        let keys = [key, format!("keygate:{{{tag}}}:org"), format!("keygate:{{{tag}}}:user:{user}")];
        let mut question = Vec::new();
        for (record, field) in keys.iter().zip(["live", "live", "version"]) {
            let version: Vec<u8> = server.cli(&["HGET", record, field]);
            question.extend_from_slice(&version[..8]);
        }
        let per = f64::from(u32::try_from(PLENTY.per.as_micros()).unwrap());
        let (requests, capacity) = (f64::from(PLENTY.requests), f64::from(PLENTY.burst) * per);
        let (forever, lease) = (9e15, 1e7);
        let numbers =
            [0.0, forever, requests, per, capacity, f64::from(CONCURRENT), 0.0, 1.0, lease, 1.0, 1.0, 0.0, 0.0];
        numbers.iter().for_each(|number: &f64| question.extend_from_slice(&number.to_le_bytes()));
        let question: String = question.iter().map(|byte| format!("\\{byte:03}")).collect();
        let script = format!("#!lua\nlocal ARGV = {{ ARGV[1], '{question}' }}\n{SCRIPT}");
        Self { port: server.port(), digest: server.cli(&["SCRIPT", "LOAD", &script]), keys }
    }

    /// So many decisions by so many clients, with so many commands in a pipeline; how many are made per second.
    pub(crate) fn run(&self, clients: usize, pipeline: usize, decisions: usize) -> f64 {
        let [port, clients, pipeline, decisions] =
            [usize::from(self.port), clients, pipeline, decisions].map(|number| number.to_string());
        let output = Command::new("redis-benchmark")
            .args(["-p", &port, "-c", &clients, "-P", &pipeline, "-n", &decisions, "--csv"])
            .args(["EVALSHA", &self.digest, "3", &self.keys[0], &self.keys[1], &self.keys[2], "h:benchmark"])
            .stdin(Stdio::null())
            .output()
            .expect("redis-benchmark is there (package redis-tools)");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let last = text.lines().last().unwrap_or_default();
        let rate = last.rsplit("\",\"").nth(6).and_then(|rate| rate.parse().ok());
        rate.unwrap_or_else(|| panic!("redis-benchmark says: {text}"))
    }
}
