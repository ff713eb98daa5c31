//! Presentation of keys: in lists, alone, and once with their secret.
//!
//! A new key is alone on standard output, and everything for people is on standard error. A key whose secret was made
//! elsewhere is shown as `key show` does.

use std::io::{self, IsTerminal as _};
use std::net::IpAddr;

use serde::Serialize;

use super::calls::{list_keys, list_keys_as_csv};
use super::installation::Installation;
use super::list::{self, List, Row};
use super::output::{self, line, note, or_dash, seconds, word};
use super::plan_flags::limits_origin;
use super::quota::quota_text;
use super::show::{self, Fields, Format, OWN_LIMIT, Shown, asterisk, responsible, time};
use super::table::Column;
use super::{CliError, control};
use ::control::management::policy_text::{policy_fields, policy_line};
use ::control::management::{ApiKey, GoodPractice, Key, KeyActor, KeyLimits, KeyQuery, NewKey, Responsible, UserKind};
use domain::clock::Micros;
use domain::identity::UserId;
use journal::audit::{LastUse, Outcome};
use platform::settings::WithUnit;

/// A key in a list, with the name of its organization and the last attempt to use it.
#[derive(Serialize)]
#[serde(transparent)]
struct KeyRow {
    key: Key,
    #[serde(skip)]
    org: String,
    #[serde(skip)]
    attempt: Option<LastUse>,
}

impl Row for KeyRow {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::new("ID", 1, |row| row.key.id.to_string()),
        Column::new("NAME", 2, |row| row.key.name.clone()),
        Column::new("ORG", 5, |row| row.org.clone()),
        Column::new("USER", 4, |row| row.key.email.clone()),
        Column::new("STATUS", 3, |row| status(&row.key)),
        Column::starred("LIMIT", 8, OWN_LIMIT, |row| limit(&row.key.limits) + asterisk(row.key.limits.own)),
        Column::new("PLAN", 9, |row| or_dash(row.key.limits.plan.as_ref().map(|plan| &plan.name))),
        Column::new("REQUESTS", 7, |row| row.key.uses.to_string()),
        Column::new("LAST USED", 6, |row| time(row.key.last_used)),
        Column::new("LAST ATTEMPT", 12, |row| {
            or_dash(row.attempt.as_ref().map(|attempt| format!("{} {}", seconds(attempt.time), word(attempt.outcome))))
        }),
        Column::new("CREATED", 11, |row| seconds(row.key.created)),
        Column::new("POLICY", 10, |row| or_dash(policy_line(&row.key.policy))),
    ];
}

/// Prints the keys of one organization or of all that match, as one list.
pub(super) fn print_list(
    installation: &Installation,
    org: Option<String>,
    query: &KeyQuery,
    format: Format,
) -> Result<(), CliError> {
    let is_filtered = *query != KeyQuery::default() || org.is_none();
    let empty = if is_filtered { "no key matches" } else { "this organization has no keys yet" };
    let call = |org: &str| list_keys(org, query);
    list::print_of_orgs(installation, org, List::new(empty, format), call, async |server, keys: Vec<Key>, org| {
        let mut activity = server.activity(&keys).await;
        let mut attempt = |key: &Key| activity.remove(&key.id)?.last_attempt;
        keys.into_iter().map(|key| KeyRow { attempt: attempt(&key), org: org.to_owned(), key }).collect()
    })
}

impl Shown for Key {
    fn fields(&self) -> Fields {
        let mut fields = vec![
            ("id", self.id.to_string()),
            ("name", self.name.clone()),
            ("status", status(self)),
            ("organization", self.org.to_string()),
            ("user", owner(&self.email, self.user, self.user_kind)),
            ("limit", format!("{} {}", limit(&self.limits), limits_origin(&self.limits))),
            ("plan", or_dash(self.plan.as_ref())),
            ("quota", or_dash(self.limits.quota.as_ref().map(quota_text))),
        ];
        fields.extend(policy_fields(&self.policy));
        fields.extend([
            ("imported", if self.imported { "yes" } else { "no" }.into()),
            ("requests", self.uses.to_string()),
            ("last used", time(self.last_used)),
        ]);
        fields.extend(events(self, "old secret until"));
        insert_responsible(&mut fields, self.responsible.as_ref());
        fields
    }
}

impl Shown for NewKey {
    /// Good practice, and a line for a shell, follow on a terminal only: a log that keeps standard error must not get
    /// the key.
    fn show(&self) -> io::Result<()> {
        let Self { api_key, key, warning } = self;
        if let Some(warning) = warning {
            note(format_args!("warning: {warning}"));
        }
        let Some(api_key) = api_key else {
            note_replaced(key);
            return output::fields(&key.fields());
        };
        note(format_args!("key {} `{}` of {}; the key is shown only once:", key.id, key.name, key.email));
        note_replaced(key);
        line(api_key.expose())?;
        if io::stdout().is_terminal() && io::stderr().is_terminal() {
            advice(api_key).iter().for_each(note);
        }
        Ok(())
    }

    fn way_out(&self) -> Option<String> {
        self.api_key.as_ref()?;
        let id = self.key.id;
        let made = if self.key.rotated.is_some() {
            format!("the secret of key {id} was replaced")
        } else {
            format!("key {id} was created")
        };
        Some(format!(
            "{made}, and its new secret is lost; `keygate key rotate {id}` prints another one, `keygate key revoke \
             {id}` ends the key"
        ))
    }
}

/// Prints a key with the last attempt to use it.
pub(super) fn show_with_attempt(key: &Key, attempt: Option<&LastUse>, format: Format) -> io::Result<()> {
    let mut fields = key.fields();
    let text = attempt.map(|attempt| decision_text(attempt.time, attempt.outcome, attempt.status, attempt.ip));
    show::insert_after(&mut fields, "last used", ("last attempt", or_dash(text)));
    show::record_with(key, ("last_attempt", attempt), &fields, format)
}

/// `2026-11-20T21:08:00Z rate_limited 429 from 192.0.2.7`.
pub(super) fn decision_text(time: Micros, outcome: Outcome, status: Option<u16>, ip: Option<IpAddr>) -> String {
    let status = status.map(|status| format!(" {status}")).unwrap_or_default();
    let ip = ip.map(|ip| format!(" from {ip}")).unwrap_or_default();
    format!("{} {}{status}{ip}", seconds(time), word(outcome))
}

/// Prints the keys of an organization that match as CSV.
pub(super) fn print_csv(installation: &Installation, org: &str, query: &KeyQuery) -> Result<(), CliError> {
    let call = list_keys_as_csv(org, query);
    let content = control::with_server(installation, async |server| server.fetch_body(&call).await)?;
    Ok(output::csv(&String::from_utf8_lossy(&content))?)
}

/// Notes the time until which the secret before a rotation is valid.
fn note_replaced(key: &Key) {
    match &key.previous_until {
        Some(until) if key.rotated.as_ref() != Some(until) => {
            note(format_args!("the old secret is valid until {}", seconds(until)));
        }
        Some(_) => note("the old secret is refused from now on"),
        None => {}
    }
}

/// The lines that follow the key on a terminal.
fn advice(api_key: &ApiKey) -> Vec<String> {
    let practice = GoodPractice::LINES.iter().map(|line| format!("- {line}"));
    let exports = ["To set it in this shell:".to_owned(), format!("  {}", GoodPractice::export_key(api_key.expose()))];
    practice.chain(exports).collect()
}

/// The status of a key, and what its owner should look at: `active`, or `active, unused for 90 days`.
fn status(key: &Key) -> String {
    let marks = key.marks.iter().map(|mark| format!(", {}", mark.text().to_lowercase()));
    std::iter::once(word(key.status)).chain(marks).collect()
}

/// `1000 per 1h, burst 1000`.
pub(super) fn limit(limit: &KeyLimits) -> String {
    let per = if limit.strict { "in any" } else { "per" };
    format!("{} {per} {}, burst {}", limit.requests, WithUnit::Duration(limit.per), limit.burst)
}

/// The user of a key: `ada@example.com usr_…`, or `nightly report usr_…, a service`.
pub(super) fn owner(name: &str, id: UserId, kind: UserKind) -> String {
    let kind = if kind.is_person() { "" } else { ", a service" };
    format!("{name} {id}{kind}")
}

/// Inserts the person who is responsible for a service behind the user.
pub(super) fn insert_responsible(fields: &mut Fields, person: Option<&Responsible>) {
    if let Some(person) = person {
        show::insert_after(fields, "user", ("responsible", responsible(person)));
    }
}

/// The times at which a key and its secrets began and ended, with the name of the field of the old secret.
pub(super) fn events(key: &Key, old_secret: &'static str) -> [(&'static str, String); 4] {
    [
        ("created", event(Some(key.created), key.created_by.as_ref())),
        ("rotated", event(key.rotated, key.rotated_by.as_ref())),
        (old_secret, time(key.previous_until)),
        ("revoked", event(key.revoked, key.revoked_by.as_ref())),
    ]
}

/// `2026-11-20T21:08:00Z by ada@example.com`; without an actor that is known, the time alone.
fn event(at: Option<Micros>, by: Option<&KeyActor>) -> String {
    let by = by.map(|by| format!(" by {}", by.label())).unwrap_or_default();
    time(at) + &by
}
