//! `keygate state verify --journal`: names the withdrawals that the audit has and the state lacks, as after a restore
//! from a backup: revoked keys and tokens, removed and suspended users, suspended organizations, disabled keys, removed
//! rules.
//!
//! A narrowed policy, a rotation and taken permissions are not compared: their records do not have the values.

use std::collections::BTreeMap;

use anyhow::anyhow;
use serde::Serialize;

use super::export::read_state;
use crate::cli::installation::Installation;
use crate::cli::output::{self, seconds};
use crate::cli::{CliError, ExitStatus, audit};
use domain::clock::{self, Micros};
use domain::counted::Counted;
use domain::identity::{OrgId, UserId};
use domain::key::KeyId;
use domain::management_token::TokenId;
use journal::audit::{Filter, Outcome, Record, RecordKind};
use state::StateRecord;
use state::migration::{self, Records};

/// Subject of a withdrawal.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Subject {
    Key(KeyId),
    /// Disabled, which can be taken back.
    DisabledKey(KeyId),
    User(UserId),
    SuspendedUser(UserId),
    Org(OrgId),
    Token(TokenId),
    Rule(OrgId, String),
}

/// A withdrawal that the audit has.
#[derive(Clone, Debug, Serialize)]
struct Withdrawal {
    action: String,
    subject: String,
    #[serde(with = "clock::rfc3339")]
    time: Micros,
    by: Option<String>,
}

pub(super) fn verify(installation: &Installation, json: bool) -> Result<(), CliError> {
    let mut withdrawals: BTreeMap<Subject, Withdrawal> = BTreeMap::new();
    audit::open(&installation.config()?)?.export(&Filter::default(), &mut |record| {
        note(&mut withdrawals, &record);
        Ok(())
    })?;
    let state = read_state(installation)?;
    let all = withdrawals.len();
    let missing: Vec<Withdrawal> =
        withdrawals.into_iter().filter(|(subject, _)| !holds(&state, subject)).map(|(_, of)| of).collect();
    if json {
        output::json(&missing)?;
    } else {
        for Withdrawal { action, subject, time, by } in &missing {
            let by = by.as_deref().unwrap_or("-");
            output::line(format_args!("missing: {action} {subject}, of {} by {by}", seconds(*time)))?;
        }
        output::line(format_args!("compared: {}", Counted(all, "withdrawal")))?;
    }
    match missing.len() {
        0 => Ok(()),
        count => {
            let message =
                anyhow!("{} of the audit missing in the state: make them again", Counted(count, "withdrawal"));
            Err(CliError::new(ExitStatus::Failed, message))
        }
    }
}

/// Notes what a record withdraws, or takes back. One whose outcome is not known is named as well: making it again does
/// no harm.
fn note(withdrawals: &mut BTreeMap<Subject, Withdrawal>, record: &Record) {
    if record.kind() != RecordKind::Change || record.outcome == Outcome::ClientError {
        return;
    }
    let user = record.subject.or(record.user_id);
    let detail = record.path.split_once('/').map(|(_, detail)| detail);
    let action = record.action.as_str();
    let subject = match action {
        "key.revoke" => record.key_id.map(Subject::Key),
        "key.disable" | "key.disable_unused" | "key.enable" => record.key_id.map(Subject::DisabledKey),
        "user.remove" => user.map(Subject::User),
        "user.suspend" | "user.resume" => user.map(Subject::SuspendedUser),
        "org.suspend" | "org.resume" => record.org_id.map(Subject::Org),
        // Of a leaked token, its place follows the id.
        "token.revoke" => detail.and_then(|id| id.split('/').next()?.parse().ok()).map(Subject::Token),
        "federation.create" | "federation.remove" => {
            record.org_id.zip(detail).map(|(org, name)| Subject::Rule(org, name.to_owned()))
        }
        _ => None,
    };
    let Some(subject) = subject else { return };
    if matches!(action, "key.enable" | "user.resume" | "org.resume" | "federation.create") {
        withdrawals.remove(&subject);
        return;
    }
    let withdrawal =
        Withdrawal { action: action.to_owned(), subject: text(&subject), time: record.time, by: record.actor.clone() };
    withdrawals.insert(subject, withdrawal);
}

/// Returns whether a withdrawal holds in the state, also when its subject is not there at all.
fn holds(state: &Records, subject: &Subject) -> bool {
    let record = match subject {
        Subject::Key(id) | Subject::DisabledKey(id) => migration::Record::Key(*id),
        Subject::User(id) | Subject::SuspendedUser(id) => migration::Record::User(*id),
        Subject::Org(id) => migration::Record::Org(*id),
        Subject::Token(id) => migration::Record::Token(*id),
        Subject::Rule(org, name) => migration::Record::rule(*org, name),
    };
    match state.find(&record) {
        None => true,
        Some(StateRecord::Key(export)) => {
            let key = &export.key;
            let is_disabled = key.policy.as_ref().is_some_and(|policy| policy.disabled.is_some());
            key.revoked.is_some() || matches!(subject, Subject::DisabledKey(_)) && is_disabled
        }
        Some(StateRecord::User(export)) => {
            let user = &export.user;
            user.removed.is_some() || matches!(subject, Subject::SuspendedUser(_)) && user.suspended.is_some()
        }
        Some(StateRecord::Org(org)) => org.suspended,
        Some(StateRecord::Token(token)) => token.revoked.is_some(),
        Some(StateRecord::Rule(_)) => false,
        Some(StateRecord::Digests(..) | StateRecord::Spent(_)) => unreachable!("no subject of a withdrawal"),
    }
}

fn text(subject: &Subject) -> String {
    match subject {
        Subject::Key(id) | Subject::DisabledKey(id) => id.to_string(),
        Subject::User(id) | Subject::SuspendedUser(id) => id.to_string(),
        Subject::Org(id) => id.to_string(),
        Subject::Token(id) => id.to_string(),
        Subject::Rule(org, name) => format!("{name} of {org}"),
    }
}
