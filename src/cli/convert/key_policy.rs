//! Policy of a key of the file: what other gateways have of expiry, tags and disabled keys.

use super::consumer::{Key, Place};
use super::placeholder;
use super::report::Report;
use domain::clock::Micros;
use domain::key::policy::{Disabled, DisabledBy, KeyPolicy};

/// Expiries after this time, which `keygate apply` refuses, are none: in the year 2255.
const LATEST: Micros = Micros(1 << 53);

impl Key {
    /// The policy, which is empty at first.
    pub(super) fn policy_mut(&mut self) -> &mut KeyPolicy {
        self.policy.get_or_insert_default()
    }

    /// Lets the key expire.
    pub(super) fn expire(&mut self, at: Micros) {
        self.policy_mut().expires = Some(at).filter(|at| *at <= LATEST);
    }

    /// Disables the key.
    pub(super) fn disable(&mut self, now: Micros) {
        self.policy_mut().disabled = Some(Disabled { at: now, by: DisabledBy::Operator });
    }

    /// Adds a tag, or reports that keygate has no such one.
    pub(super) fn add_tag(&mut self, place: Place, name: &str, value: &str, report: &mut Report) {
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
