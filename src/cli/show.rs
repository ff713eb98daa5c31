//! Presentation of records, as names and values or as JSON.

use std::io;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::call::Call;
use super::installation::Installation;
use super::output::{fields, json, line, note, or_dash, seconds, word};
use super::policy_text::policy_fields;
use super::{CliError, control, federation, new_key, secret_output, token};
use ::control::management::{
    AcceptedState, Explanation, FederationRule, Key, KeyActor, KeyLimits, KeyStatus, Link, NewKey, NewToken, Org,
    Responsible, Session, Token, User, UserKind,
};
use domain::clock::Micros;
use domain::identity::{Permission, UserId};
use journal::audit::{LastUse, Record};
use platform::settings::WithUnit;
use state::{OrgPolicy, StateId};

/// Output format.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(super) struct Format {
    /// Print one JSON object
    #[arg(long, global = true)]
    pub(super) json: bool,
}

/// Record that a command prints.
pub(super) trait Shown: Serialize + DeserializeOwned {
    /// Prints it for people.
    fn show(&self) -> io::Result<()>;

    /// Advice for when its secret is lost, of a record that has one.
    fn way_out(&self) -> Option<String> {
        None
    }
}

/// Performs a call, and prints the record that it answers with.
pub(super) fn perform<T: Shown>(installation: &Installation, call: &Call, format: Format) -> Result<(), CliError> {
    Ok(record(&control::perform::<T>(installation, call)?, format)?)
}

/// Prints a record.
pub(super) fn record(record: &impl Shown, format: Format) -> io::Result<()> {
    secret_output::write(record.way_out(), || if format.json { json(record) } else { record.show() })
}

impl Shown for Org {
    fn show(&self) -> io::Result<()> {
        fields(&org_fields(self))
    }
}

impl Shown for User {
    fn show(&self) -> io::Result<()> {
        fields(&user_fields(self))
    }
}

impl Shown for Key {
    fn show(&self) -> io::Result<()> {
        fields(&key_fields(self))
    }
}

impl Shown for NewKey {
    fn show(&self) -> io::Result<()> {
        new_key::show(self)
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

impl Shown for Token {
    fn show(&self) -> io::Result<()> {
        fields(&token::token_fields(self))
    }
}

impl Shown for NewToken {
    fn show(&self) -> io::Result<()> {
        token::show_new(self)
    }

    fn way_out(&self) -> Option<String> {
        let id = self.token.id;
        let made = format!("token {id} was created, and its secret is lost");
        Some(format!("{made}; revoke it (`keygate token revoke {id}`), and create another one"))
    }
}

impl Shown for FederationRule {
    fn show(&self) -> io::Result<()> {
        fields(&federation::rule_fields(self))
    }
}

impl Shown for Session {
    fn show(&self) -> io::Result<()> {
        fields(&session_fields(self))
    }
}

impl Shown for Link {
    fn show(&self) -> io::Result<()> {
        note(format_args!("sign-in link for {}, valid once, until {}:", self.email, seconds(self.expires)));
        line(self.url.expose())
    }

    fn way_out(&self) -> Option<String> {
        let ends = seconds(self.expires);
        Some(format!("the sign-in link for {} is lost, and ends at {ends}; create another one", self.email))
    }
}

impl Shown for AcceptedState {
    fn show(&self) -> io::Result<()> {
        let replaces: Vec<&str> = self.replaces.iter().map(StateId::as_str).collect();
        fields(&[("accepted as", self.id.to_string()), ("in place of", or_dash(Some(replaces.join(", "))))])
    }
}

/// Prints a record, in JSON with one more member.
fn record_with(record: &impl Serialize, name: &str, value: &impl Serialize) -> io::Result<()> {
    let mut object = serde_json::to_value(record)?;
    object[name] = serde_json::to_value(value)?;
    json(&object)
}

/// Prints a user with the permissions that were taken away.
pub(super) fn permitted(user: User, taken: &[Permission], format: Format) -> io::Result<()> {
    if format.json {
        return record_with(&user, "taken_away", &taken);
    }
    let mut shown = user_fields(&user);
    let after_permissions = shown.iter().position(|(name, _)| *name == "permissions").map_or(shown.len(), |at| at + 1);
    if !taken.is_empty() {
        shown.insert(after_permissions, ("taken away", joined(taken)));
    }
    fields(&shown)
}

/// Prints a key with the last attempt to use it.
pub(super) fn key(key: &Key, attempt: Option<&LastUse>, format: Format) -> io::Result<()> {
    if format.json {
        return record_with(key, "last_attempt", &attempt);
    }
    let mut shown = key_fields(key);
    let after_last_used = shown.iter().position(|(name, _)| *name == "last used").map_or(shown.len(), |at| at + 1);
    shown.insert(after_last_used, ("last attempt", or_dash(attempt.map(attempt_text))));
    fields(&shown)
}

/// `2026-11-20T21:08:00Z rate_limited 429 from 192.0.2.7`.
fn attempt_text(attempt: &LastUse) -> String {
    let status = attempt.status.map(|status| format!(" {status}")).unwrap_or_default();
    let ip = attempt.ip.map(|ip| format!(" from {ip}")).unwrap_or_default();
    format!("{} {}{status}{ip}", seconds(attempt.time), word(attempt.outcome))
}

/// Prints the explanation of a key, with its last refusal.
pub(super) fn explanation(explanation: &Explanation, refusal: Option<&Record>) -> io::Result<()> {
    let Explanation { verdict, key, user, org, standing } = explanation;
    line(verdict)?;
    line("")?;
    // The bucket of a key that is refused admits no request, however full it is.
    let is_refused = key.status != KeyStatus::Active;
    let of_bucket = |text: String| if is_refused { "-".to_owned() } else { text };
    let bucket = of_bucket(format!("{} of {} tokens", standing.remaining, standing.burst));
    let of_key = standing.key.map(|slots| format!("{} of {} of the key; ", slots.in_flight, slots.concurrent));
    let of_key = of_key.unwrap_or_default();
    let in_flight = format!("{of_key}{} of {}, of the whole organization", standing.in_flight, standing.concurrent);
    let mut shown = vec![
        ("key", format!("{} `{}`, {}", key.id, key.name, word(key.status))),
        ("user", owner(&user.email, user.id, user.kind)),
        ("permissions", effective_permissions(key, user)),
        ("organization", format!("{} {}, {}", org.name, org.id, org_status(org))),
    ];
    shown.extend(policy_fields(&key.policy).into_iter().filter(|(name, _)| *name != "permissions"));
    shown.extend([
        ("limit", format!("{} {}", limit(&key.limits), origin(key.limits.own))),
        ("bucket", bucket),
        ("next token", of_bucket(standing.next_token.map_or("available now".into(), seconds))),
        ("full", of_bucket(standing.full.map_or("now".into(), seconds))),
        ("in flight", in_flight),
        ("requests", key.uses.to_string()),
        ("last used", time(key.last_used)),
        ("last refusal", or_dash(refusal.map(refusal_text))),
        ("created", event(Some(key.created), key.created_by.as_ref())),
        ("rotated", event(key.rotated, key.rotated_by.as_ref())),
        ("old secret valid until", time(key.previous_until)),
        ("revoked", event(key.revoked, key.revoked_by.as_ref())),
    ]);
    insert_responsible(&mut shown, user.responsible.as_ref());
    fields(&shown)
}

/// The permissions that requests with a key have; of a key that has less than its user, both.
fn effective_permissions(key: &Key, user: &User) -> String {
    let effective = joined(&key.policy.effective_permissions(&user.permissions));
    match &key.policy.permissions {
        Some(own) => format!("{effective} (of the key: {}; of the user: {})", joined(own), joined(&user.permissions)),
        None => effective,
    }
}

/// `2026-11-20T21:08:00Z address_refused 401 from 192.0.2.7`.
fn refusal_text(refusal: &Record) -> String {
    let status = refusal.status.map(|status| format!(" {status}")).unwrap_or_default();
    let ip = refusal.ip.map(|ip| format!(" from {ip}")).unwrap_or_default();
    format!("{} {}{status}{ip}", seconds(refusal.last()), word(refusal.outcome))
}

fn org_fields(org: &Org) -> Vec<(&'static str, String)> {
    vec![
        ("id", org.id.to_string()),
        ("name", org.name.clone()),
        ("status", org_status(org).into()),
        ("concurrent", format!("{} {}", org.concurrent_in_force, origin(org.concurrent.is_some()))),
        ("policy", policy(&org.policy)),
        ("tag", org.tag.to_string()),
        ("created", seconds(org.created)),
    ]
}

/// `max expiry 90d, default expiry 30d, unused keys never`; a dash for a policy that bounds nothing.
fn policy(policy: &OrgPolicy) -> String {
    let expiry = |name: &str, expiry: Option<Duration>| Some(format!("{name} {}", WithUnit::Duration(expiry?)));
    let bounds = [
        expiry("max expiry", policy.max_expiry),
        expiry("default expiry", policy.default_expiry),
        policy.unused_keys.map(|unused| format!("unused keys {unused}")),
    ];
    let bounds: Vec<String> = bounds.into_iter().flatten().collect();
    if bounds.is_empty() { "-".into() } else { bounds.join(", ") }
}

fn user_fields(user: &User) -> Vec<(&'static str, String)> {
    vec![
        ("id", user.id.to_string()),
        ("kind", word(user.kind)),
        (if user.kind.is_person() { "email" } else { "name" }, user.email.clone()),
        ("organization", user.org.to_string()),
        ("permissions", joined(&user.permissions)),
        ("created", seconds(user.created)),
        ("removed", time(user.removed)),
        ("vouched for by", or_dash(user.provider.as_ref())),
        ("withdrawn", time(user.withdrawn)),
        ("suspended", time(user.suspended) + if user.suspended_by_operator { " by the operator" } else { "" }),
        ("responsible", or_dash(user.responsible.as_ref().map(responsible))),
    ]
}

pub(super) fn key_fields(key: &Key) -> Vec<(&'static str, String)> {
    let mut shown = vec![
        ("id", key.id.to_string()),
        ("name", key.name.clone()),
        ("status", status(key)),
        ("organization", key.org.to_string()),
        ("user", owner(&key.email, key.user, key.user_kind)),
        ("limit", format!("{} {}", limit(&key.limits), origin(key.limits.own))),
    ];
    shown.extend(policy_fields(&key.policy));
    shown.extend([
        ("imported", if key.imported { "yes" } else { "no" }.into()),
        ("requests", key.uses.to_string()),
        ("last used", time(key.last_used)),
        ("created", event(Some(key.created), key.created_by.as_ref())),
        ("rotated", event(key.rotated, key.rotated_by.as_ref())),
        ("old secret until", time(key.previous_until)),
        ("revoked", event(key.revoked, key.revoked_by.as_ref())),
    ]);
    insert_responsible(&mut shown, key.responsible.as_ref());
    shown
}

/// The user of a key: `ada@example.com usr_…`, or `nightly report usr_…, a service`.
fn owner(name: &str, id: UserId, kind: UserKind) -> String {
    let kind = if kind.is_person() { "" } else { ", a service" };
    format!("{name} {id}{kind}")
}

/// Inserts the person who is responsible for a service behind the user.
fn insert_responsible(shown: &mut Vec<(&'static str, String)>, person: Option<&Responsible>) {
    let behind = shown.iter().position(|(name, _)| *name == "user").map_or(shown.len(), |at| at + 1);
    if let Some(person) = person {
        shown.insert(behind, ("responsible", responsible(person)));
    }
}

/// `ada@example.com`, or `ada@example.com (suspended)`.
pub(super) fn responsible(person: &Responsible) -> String {
    let mark = if person.is_gone() { format!(" ({})", word(person.status)) } else { String::new() };
    person.label() + &mark
}

fn session_fields(session: &Session) -> Vec<(&'static str, String)> {
    vec![
        ("id", session.id.to_string()),
        ("user", session.email.clone()),
        ("organization", session.org.to_string()),
        ("by", session.provider.clone().unwrap_or_else(|| "link".into())),
        ("seen", seconds(session.seen)),
        ("expires", seconds(session.expires)),
        ("ip", or_dash(session.ip)),
    ]
}

pub(super) fn org_status(org: &Org) -> &'static str {
    if org.suspended { "suspended" } else { "active" }
}

/// The status of a key, and what its owner should look at: `active`, or `active, unused for 90 days`.
pub(super) fn status(key: &Key) -> String {
    let marks = key.marks.iter().map(|mark| format!(", {}", mark.text().to_lowercase()));
    std::iter::once(word(key.status)).chain(marks).collect()
}

/// `1000 per 1h, burst 1000`.
pub(super) fn limit(limit: &KeyLimits) -> String {
    let per = if limit.strict { "in any" } else { "per" };
    format!("{} {per} {}, burst {}", limit.requests, WithUnit::Duration(limit.per), limit.burst)
}

/// The origin of a limit, in words.
fn origin(own: bool) -> &'static str {
    if own { "(its own)" } else { "(as configured)" }
}

/// The mark of an own limit in a table.
pub(super) fn asterisk(own: bool) -> &'static str {
    if own { "*" } else { "" }
}

pub(super) fn legend(any: bool) {
    if any {
        note("* own limit, not the configured one");
    }
}

pub(super) fn joined(permissions: &[Permission]) -> String {
    let words: Vec<&str> = permissions.iter().map(Permission::as_str).collect();
    if words.is_empty() { "-".into() } else { words.join(" ") }
}

/// `2026-11-20T21:08:00Z by ada@example.com`; without an actor that is known, the time alone.
fn event(at: Option<Micros>, by: Option<&KeyActor>) -> String {
    let by = by.map(|by| format!(" by {}", by.label())).unwrap_or_default();
    time(at) + &by
}

pub(super) fn time(time: Option<Micros>) -> String {
    or_dash(time.map(seconds))
}
