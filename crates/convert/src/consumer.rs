//! Model of what the dialects have in common: consumers with their keys, groups and limits, each with its place in the
//! file. No text of a key is in it, only digests.

use super::field::Named;
use super::placeholder;
use super::report::{Place, Report};
use domain::budget::OwnBudget;
use domain::clock::Micros;
use domain::key::KeyDigest;
use domain::key::policy::{Disabled, DisabledBy, KeyPolicy};
use domain::quota::Quota;

/// Expiries after this time, which `keygate apply` refuses, are none: in the year 2255.
const LATEST: Micros = Micros(1 << 53);

/// A consumer: a user of keygate, with keys.
#[derive(Debug)]
pub(crate) struct Consumer {
    pub(crate) place: Place,
    pub(crate) username: Option<Named>,
    pub(crate) custom_id: Option<Named>,
    /// Groups and roles.
    pub(crate) groups: Vec<Named>,
    /// Rate limits of the consumer as a whole.
    pub(crate) limits: Vec<Limit>,
    pub(crate) keys: Vec<Key>,
}

/// A key of a consumer.
#[derive(Debug)]
pub(crate) struct Key {
    pub(crate) place: Place,
    pub(crate) digest: KeyDigest,
    /// Its name; none: that of the consumer.
    pub(crate) name: Option<Named>,
    /// A rate limit of this key alone.
    pub(crate) limit: Option<Quota>,
    /// Requests that it may make in a day or a month.
    pub(crate) budget: Option<OwnBudget>,
    /// Its policy, disabled included; its permissions are all that it has of its own.
    pub(crate) policy: Option<Box<KeyPolicy>>,
}

/// A rate limit that keygate can express.
#[derive(Clone, Debug)]
pub(crate) struct Limit {
    pub(crate) place: Place,
    pub(crate) quota: Quota,
    pub(crate) scope: Scope,
}

/// Requests that a limit counts together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Those of all keys of the consumer.
    Consumer,
    /// Those of each key.
    Key,
}

impl Key {
    /// The policy, which is empty at first.
    pub(crate) fn policy_mut(&mut self) -> &mut KeyPolicy {
        self.policy.get_or_insert_default()
    }

    /// Lets the key expire.
    pub(crate) fn expire(&mut self, at: Micros) {
        self.policy_mut().expires = Some(at).filter(|at| *at <= LATEST);
    }

    /// Disables the key.
    pub(crate) fn disable(&mut self, now: Micros) {
        self.policy_mut().disabled = Some(Disabled { at: now, by: DisabledBy::Operator });
    }

    /// Adds a tag, or reports that keygate has no such one.
    pub(crate) fn add_tag(&mut self, place: Place, name: &str, value: &str, report: &mut Report) {
        if let Some(flaw) = placeholder::flaw(name).or_else(|| placeholder::flaw(value)) {
            return report.error(&place, flaw);
        }
        let before = self.policy.clone();
        self.policy_mut().tags.insert(name.to_owned(), value.to_owned());
        if let Err(error) = self.policy_mut().validate() {
            self.policy = before;
            report.leave(place, format!("the tag has no counterpart: {error}"));
        }
    }
}
