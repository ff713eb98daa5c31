//! Result of a run: a table for people, and JSON for programs.

use std::fmt;

use serde_json::json;

use super::checks::{Violation, Worst};
use super::options::Options;
use super::trace::Entry;
use super::world::World;

/// Events of an offender to print.
const LAST_EVENTS: usize = 40;

/// Result of a run.
pub struct Outcome {
    options: Options,
    rows: Vec<(&'static str, &'static str, Worst)>,
    pub violation: Option<Violation>,
    /// The last events that concern the offender.
    events: Vec<Entry>,
    pub digest: u64,
    counts: String,
}

impl Outcome {
    pub fn new(world: &World) -> Self {
        let rows =
            world.checks.rows().into_iter().map(|(name, promise, worst)| (name, promise, worst.clone())).collect();
        let violation = world.checks.violation.clone();
        let events =
            violation.as_ref().map_or_else(Vec::new, |violation| world.trace.last(violation.offender, LAST_EVENTS));
        let lost = world.checks.audit.lost.len();
        let lost_with_power = world.checks.audit.lost_with_power;
        let left_in_progress = world.checks.audit.left_in_progress;
        let oldest = world.checks.audit.oldest;
        let counts = format!(
            "{:?}; rows {}, repeated deliveries {}, overtaken {}, uses lost with machines {lost}, the oldest {:.2} s \
             old; with power {lost_with_power}, and {left_in_progress} left in progress",
            world.counts,
            world.sinks.rows.len(),
            world.sinks.repeated,
            world.sinks.overtaken,
            oldest as f64 / 1e6
        );
        Self { options: world.options.clone(), rows, violation, events, digest: world.trace.digest(), counts }
    }

    pub fn is_broken(&self) -> bool {
        self.violation.is_some()
    }

    pub fn json(&self) -> String {
        let bounds: Vec<_> = self
            .rows
            .iter()
            .map(|(name, promise, worst)| {
                json!({"bound": name, "promised": promise, "part": worst.part,
                "worst": worst.text,
                "at": worst.time as f64 / 1e6})
            })
            .collect();
        let violation = self.violation.as_ref().map(|violation| {
            let events: Vec<String> = self.events.iter().map(ToString::to_string).collect();
            json!({"bound": violation.bound, "text": violation.text, "at": violation.time as f64 / 1e6,
                "events": events})
        });
        let Options { gateways, shards, orgs, keys, seconds, seed, .. } = &self.options;
        json!({
            "gateways": gateways, "shards": shards, "orgs": orgs, "keys": keys, "seconds": seconds, "seed": seed,
            "digest": format!("{:016x}", self.digest), "counts": self.counts, "bounds": bounds, "broken": violation,
        })
        .to_string()
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Options { gateways, shards, orgs, keys, seconds, seed, .. } = &self.options;
        writeln!(
            f,
            "{gateways} gateways, {shards} shards, {orgs} organizations, {keys} keys, {seconds} s, seed {seed}"
        )?;
        writeln!(f, "{}", self.counts)?;
        writeln!(f, "{:<11} {:<60} {:>8}  {:<4} worst seen", "bound", "promised", "used", "")?;
        for (name, promise, worst) in &self.rows {
            let broken = self.violation.as_ref().is_some_and(|violation| violation.bound == *name);
            let state = if broken && worst.part > 1.0 { "NO" } else { "ok" };
            let seen = if worst.text.is_empty() {
                "none".to_owned()
            } else {
                format!("{} at {:.3} s", worst.text, worst.time as f64 / 1e6)
            };
            writeln!(f, "{name:<11} {promise:<60} {:>7.1}%  {state:<4} {seen}", worst.part * 100.0)?;
        }
        writeln!(f, "digest of the events {:016x}", self.digest)?;
        if let Some(violation) = &self.violation {
            writeln!(f, "broken: {} at {:.6} s: {}", violation.bound, violation.time as f64 / 1e6, violation.text)?;
            for event in &self.events {
                writeln!(f, "{event}")?;
            }
        }
        writeln!(f)
    }
}
