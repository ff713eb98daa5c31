//! One step of the plan of `keygate apply`: what becomes of a record, and the calls that do it.

use std::fmt;

use serde::Serialize;

use crate::cli::call::Call;

/// One step of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Step {
    pub(super) action: Action,
    /// `organization`, `user`, `rule` or `key`.
    pub(super) record: &'static str,
    pub(super) name: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) changes: Vec<FieldChange>,
    /// Reason of a conflict.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<String>,
    /// The calls that the step performs, in this order.
    #[serde(skip)]
    pub(super) calls: Vec<Call>,
}

/// Kind of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Action {
    Create,
    Change,
    /// Revokes a key, removes a user or a federation rule.
    Withdraw,
    /// Cannot be done; then nothing is.
    Conflict,
}

/// A field with its value before and after.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct FieldChange {
    pub(super) field: &'static str,
    pub(super) old: Option<String>,
    pub(super) new: String,
}

impl Step {
    pub(super) fn new(action: Action, record: &'static str, name: String) -> Self {
        let changes = Vec::new();
        Self { action, record, name, changes, reason: None, calls: Vec::new() }
    }

    pub(super) fn change(&mut self, field: &'static str, old: Option<String>, new: String, call: Call) {
        self.changes.push(FieldChange { field, old, new });
        self.calls.push(call);
    }

    /// Shows a field of a new record.
    pub(super) fn show(&mut self, field: &'static str, new: String) {
        self.changes.push(FieldChange { field, old: None, new });
    }

    pub(super) fn conflict(&mut self, reason: &str) {
        *self = Self::new(Action::Conflict, self.record, std::mem::take(&mut self.name));
        self.reason = Some(reason.to_owned());
    }

    /// Returns whether there is nothing to do.
    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty() && self.reason.is_none()
    }
}

/// `+ user acme/ada@example.com: permissions queries:read`.
impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = match self.action {
            Action::Create => '+',
            Action::Change => '~',
            Action::Withdraw => '-',
            Action::Conflict => '!',
        };
        write!(f, "{sign} {} {}", self.record, self.name)?;
        for (index, FieldChange { field, old, new }) in self.changes.iter().enumerate() {
            f.write_str(if index == 0 { ": " } else { "; " })?;
            match old {
                Some(old) => write!(f, "{field} {old} -> {new}")?,
                None => write!(f, "{field} {new}")?,
            }
        }
        self.reason.as_ref().map_or(Ok(()), |reason| write!(f, ": {reason}"))
    }
}
