//! One step of a plan: what becomes of a record, with its fields before and after.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Kind of a record, `organization`, `user`, `rule` or `key`, and its name.
pub(super) type Named = (&'static str, String);
/// Names and values of the fields of a record, in their order.
pub(super) type Fields = Vec<(&'static str, String)>;

/// One step of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanStep {
    /// Its kind.
    pub action: Action,
    /// `organization`, `user`, `rule` or `key`.
    pub record: String,
    /// Its name; of all but organizations, with that of the organization before it.
    pub name: String,
    /// The fields that change.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<FieldChange>,
    /// Reason of a conflict.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Kind of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Creates the record.
    Create,
    /// Changes fields of it.
    Change,
    /// Revokes a key, removes a user or a federation rule.
    Withdraw,
    /// Cannot be done; then nothing is.
    Conflict,
}

/// A field with its value before and after.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FieldChange {
    /// Name of the field.
    pub field: String,
    /// Its value before; none of a new record.
    pub old: Option<String>,
    /// Its value after.
    pub new: String,
}

impl PlanStep {
    pub(super) fn new(action: Action, (record, name): Named) -> Self {
        Self { action, record: record.to_owned(), name, changes: Vec::new(), reason: None }
    }

    /// The creation of a record with these fields; those that are as those of every new record are not shown.
    pub(super) fn create(of: Named, every: &[(&str, &str)], fields: Fields) -> Self {
        let shown = fields.into_iter().filter(|(name, new)| !every.contains(&(name, new)));
        let changes = shown.map(|(field, new)| FieldChange { field: field.to_owned(), old: None, new }).collect();
        Self { changes, ..Self::new(Action::Create, of) }
    }

    /// The change of a record from these fields to others; none when they are the same.
    pub(super) fn change(of: Named, before: Fields, after: Fields) -> Option<Self> {
        let changed = before.into_iter().zip(after).filter(|(old, new)| old != new);
        let change = |((field, old), (_, new)): ((&str, String), (_, String))| FieldChange {
            field: field.to_owned(),
            old: Some(old),
            new,
        };
        let changes: Vec<FieldChange> = changed.map(change).collect();
        (!changes.is_empty()).then(|| Self { changes, ..Self::new(Action::Change, of) })
    }

    pub(super) fn conflict(of: Named, reason: String) -> Self {
        Self { reason: Some(reason), ..Self::new(Action::Conflict, of) }
    }
}

/// `+ user acme/ada@example.com: permissions queries:read`.
impl fmt::Display for PlanStep {
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

/// A plan or a quota, as steps show it.
pub(super) fn plan_text(plan: Option<&impl ToString>) -> String {
    plan.map_or_else(|| "none".to_owned(), ToString::to_string)
}
