//! Result of a replay: the decisions that changed, by cause and by key, and the limits of what records say.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io;

use serde_json::json;

use crate::cli::output;
use domain::clock::Micros;
use domain::counted::Counted;
use domain::refusal::Refusal;
use journal::audit::Outcome;
use state::embedded::UsedKey;

/// Keys that are shown.
const KEYS: usize = 10;
/// Word for a request that is not refused.
const ADMITTED: &str = "admitted";

/// Facts of a recorded request that the result needs.
#[derive(Clone, Copy)]
pub(super) struct Sample {
    /// The caller; none of an unknown key.
    pub(super) by: Option<UsedKey>,
    /// The refusal in the record; none of a request that was admitted.
    pub(super) recorded: Option<Refusal>,
    /// It is in the stretch that was asked for, and of the key.
    pub(super) is_counted: bool,
}

/// Counts of requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Report {
    requests: u64,
    /// Refused by the records.
    refused: u64,
    /// Refused by the replay.
    would_refuse: u64,
    /// Requests that are decided otherwise, by the words of the record and of the replay.
    pub(super) causes: BTreeMap<(&'static str, &'static str), u64>,
    pub(super) keys: BTreeMap<UsedKey, KeyChanges>,
    /// Requests of callers that the state does not know.
    pub(super) unknown: u64,
    /// Requests that are admitted within the margin of their times only.
    pub(super) near: u64,
    /// Refusals whose own times are not recorded.
    pub(super) folded: u64,
    /// Requests whose paths are not whole.
    pub(super) cut: u64,
    /// Requests that were admitted while Redis was away.
    pub(super) provisional: u64,
    /// Requests whose durations are not recorded.
    pub(super) unmeasured: u64,
    /// Changes by management.
    pub(super) changes: u64,
}

/// Requests of one caller that are decided otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct KeyChanges {
    /// Admitted, and would be refused.
    pub(super) refused: u64,
    /// Refused, and would be admitted.
    pub(super) admitted: u64,
    /// Refused for another cause.
    pub(super) other_cause: u64,
}

impl Report {
    /// Counts requests of a record, and the decision about them.
    pub(super) fn count(&mut self, sample: Sample, decided: Option<Refusal>, requests: u64) {
        let Sample { by, recorded, is_counted } = sample;
        if !is_counted {
            return;
        }
        self.requests += requests;
        self.refused += if recorded.is_some() { requests } else { 0 };
        self.would_refuse += if decided.is_some() { requests } else { 0 };
        let words = (word(recorded), word(decided));
        if words.0 == words.1 {
            return;
        }
        *self.causes.entry(words).or_default() += requests;
        let Some(by) = by else { return };
        let changes = self.keys.entry(by).or_default();
        match (recorded, decided) {
            (None, _) => changes.refused += requests,
            (_, None) => changes.admitted += requests,
            _ => changes.other_cause += requests,
        }
    }

    /// Requests that are decided otherwise.
    pub(super) fn changed(&self) -> u64 {
        self.causes.values().sum()
    }

    /// Requests, those that were refused, and those that would be.
    #[cfg(test)]
    pub(super) fn totals(&self) -> [u64; 3] {
        [self.requests, self.refused, self.would_refuse]
    }

    pub(super) fn json(&self, stretch: [Micros; 2], first: Option<Micros>, notes: &[String]) -> io::Result<()> {
        let [since, until] = stretch.map(|time| time.to_string());
        let causes = self.causes.iter().map(|((recorded, replayed), requests)| {
            json!({ "recorded": recorded, "replayed": replayed, "requests": requests })
        });
        let keys = self.most_affected().into_iter().map(|(by, changes)| {
            let (name, id) = match by {
                UsedKey::Key(key) => ("key_id", key.to_string()),
                UsedKey::SessionQuotaKey(user) => ("user_id", user.to_string()),
            };
            let KeyChanges { refused, admitted, other_cause } = changes;
            json!({ name: id, "refused": refused, "admitted": admitted, "other_cause": other_cause })
        });
        output::json(&json!({
            "since": since,
            "until": until,
            "first": first.map(|time| time.to_string()),
            "requests": self.requests,
            "refused": self.refused,
            "would_refuse": self.would_refuse,
            "changed": self.changed(),
            "causes": causes.collect::<Vec<_>>(),
            "keys": keys.collect::<Vec<_>>(),
            "notes": notes,
        }))
    }

    pub(super) fn show(&self, [since, until]: [Micros; 2], notes: &[String]) -> io::Result<()> {
        let refused = |count: u64| format!("{} of {}", count, Counted(self.requests, "request"));
        output::fields(&[
            ("stretch", format!("{} to {}", output::seconds(since), output::seconds(until))),
            ("refused", refused(self.refused)),
            ("would be refused", refused(self.would_refuse)),
            ("decided otherwise", self.changed().to_string()),
        ])?;
        if !self.causes.is_empty() {
            let row = |((recorded, replayed), requests): (&(&str, &str), &u64)| {
                [(*recorded).to_owned(), (*replayed).to_owned(), requests.to_string()]
            };
            output::line("")?;
            output::table(&["RECORDED", "REPLAYED", "REQUESTS"], &self.causes.iter().map(row).collect::<Vec<_>>(), "")?;
            let row = |(by, changes): (UsedKey, KeyChanges)| {
                let KeyChanges { refused, admitted, other_cause } = changes;
                let by = match by {
                    UsedKey::Key(key) => key.to_string(),
                    UsedKey::SessionQuotaKey(user) => format!("sessions of {user}"),
                };
                [by, refused.to_string(), admitted.to_string(), other_cause.to_string()]
            };
            let rows: Vec<_> = self.most_affected().into_iter().map(row).collect();
            output::line("")?;
            output::table(&["KEY", "REFUSED", "ADMITTED", "OTHER CAUSE"], &rows, "")?;
        }
        notes.iter().for_each(output::note);
        Ok(())
    }

    /// The callers of whose requests the most are decided otherwise.
    fn most_affected(&self) -> Vec<(UsedKey, KeyChanges)> {
        let mut keys: Vec<_> = self.keys.iter().map(|(by, changes)| (*by, *changes)).collect();
        keys.sort_by_key(|(_, changes)| Reverse(changes.refused + changes.admitted + changes.other_cause));
        keys.truncate(KEYS);
        keys
    }
}

/// The word of a decision: `admitted`, or the outcome of the refusal.
fn word(decided: Option<Refusal>) -> &'static str {
    match decided {
        None => ADMITTED,
        Some(refusal) => Outcome::of_refusal(refusal).map_or("refused", Outcome::name),
    }
}
