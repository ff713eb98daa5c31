//! Difference between two records with the same id, by the fields of their lines in a file.
//!
//! - Requests alone change the fields of usage. In an import they are no difference; in a comparison, only where the
//!   second record has fewer of them.
//! - Withdrawals win: a key or token that one of two records has as revoked, a user as removed, withdrawn or suspended,
//!   an organization as suspended. An import carries them over; those that the state has already are no difference.

use std::collections::{BTreeSet, HashSet};

use super::file::fields;
use crate::{Change, KeyEvent, KeyExport, Org, StateRecord, User, UserExport};
use domain::clock::Micros;

/// Fields that requests change.
const USAGE: [&str; 6] = ["bucket", "creation", "last_used", "start", "units", "uses"];
/// Fields that a withdrawal sets.
const WITHDRAWAL: [&str; 6] = ["removed", "revoked", "revoked_by", "suspended", "suspended_by_operator", "withdrawn"];
/// Fields by which a record with the same id is another one. Nothing is withdrawn from it.
const IDENTITY: [&str; 4] = ["digest", "org", "session_quota_key", "user"];

/// Returns whether a key that conflicts in these fields is another one, or has another secret: former digests of the
/// file are not those of the key that the state has.
pub(super) fn has_other_digests(fields: &[String]) -> bool {
    fields.iter().any(|field| field == "sha256" || IDENTITY.contains(&field.as_str()))
}

/// A record that is the same in two exports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sameness {
    Entirely,
    /// But for later uses.
    UsedSince,
}

/// The fields in which a record of a file conflicts with the one of the state, and the withdrawals that the state
/// lacks.
pub(super) fn conflict(record: &StateRecord, stored: &StateRecord) -> (Vec<String>, Vec<Change>) {
    let mut fields = differences(record, stored);
    fields.retain(|field| !USAGE.contains(&field.as_str()) && !WITHDRAWAL.contains(&field.as_str()));
    if let StateRecord::Key(_) = record {
        // The state is not asked for them: actors change nothing, and digests are looked up by themselves.
        fields.retain(|field| !["created_by", "rotated_by", "replaced"].contains(&field.as_str()));
    }
    let is_another = fields.iter().any(|field| IDENTITY.contains(&field.as_str()));
    let withdrawals = if is_another { Vec::new() } else { withdrawals(record, stored) };
    (fields, withdrawals)
}

/// The changes that withdraw what the file has as withdrawn and the state does not.
fn withdrawals(record: &StateRecord, stored: &StateRecord) -> Vec<Change> {
    match (record, stored) {
        (StateRecord::Org(org), StateRecord::Org(stored)) => suspension(org, stored).into_iter().collect(),
        (StateRecord::User(export), StateRecord::User(stored)) => withdrawals_of_user(&export.user, &stored.user),
        (StateRecord::Key(export), StateRecord::Key(stored)) => revocation(export, stored).into_iter().collect(),
        (StateRecord::Token(token), StateRecord::Token(stored)) => {
            let revoked = token.revoked.filter(|_| stored.revoked.is_none());
            revoked.map(|at| Change::RevokeToken { token: token.id, at }).into_iter().collect()
        }
        _ => Vec::new(),
    }
}

fn suspension(org: &Org, stored: &Org) -> Option<Change> {
    (org.suspended && !stored.suspended).then(|| Change::suspend_org(org.id, true))
}

/// A removed user can neither be withdrawn nor suspended any more.
fn withdrawals_of_user(user: &User, stored: &User) -> Vec<Change> {
    if stored.removed.is_some() {
        return Vec::new();
    }
    let (org, id) = (user.org, user.id);
    if let Some(at) = user.removed {
        return vec![Change::RemoveUser { org, user: id, at }];
    }
    let withdrawn = user.withdrawn.filter(|_| stored.withdrawn.is_none());
    // The operator's suspension is the stricter one: only the operator ends it.
    let is_new = stored.suspended.is_none() || user.suspended_by_operator && !stored.suspended_by_operator;
    let suspended = user.suspended.filter(|_| is_new);
    let suspend = |at| Change::suspend_user(org, id, Some(at), user.suspended_by_operator);
    let withdraw = |at| Change::WithdrawUser { org, user: id, at };
    withdrawn.map(withdraw).into_iter().chain(suspended.map(suspend)).collect()
}

/// The revocation of a key, with its actor as far as it is known. The token of a program may be absent or have ended:
/// tokens are the last records of a file.
fn revocation(export: &KeyExport, stored: &KeyExport) -> Option<Change> {
    let at = export.key.revoked.filter(|_| stored.key.revoked.is_none())?;
    let change = Change::RevokeKey { key: export.key.id, at };
    Some(match export.actor(KeyEvent::Revoked) {
        Some(actor) => change.imported_by(actor),
        None => change,
    })
}

/// Compares a record with the one of a later export; an error has the fields in which they differ. Buckets are compared
/// as of `now`.
pub(super) fn compare_records(first: &StateRecord, second: &StateRecord, now: Micros) -> Result<Sameness, Vec<String>> {
    let mut fields = differences(first, second);
    fields.retain(|field| !USAGE.contains(&field.as_str()));
    let mut sameness = Sameness::Entirely;
    match (first, second) {
        (StateRecord::User(first), StateRecord::User(second)) if is_fuller(first, second) => {
            fields.push("creation".to_owned());
        }
        (StateRecord::Spent(first), StateRecord::Spent(second)) if second.start < first.start => {
            fields.push("start".to_owned());
        }
        (StateRecord::Spent(first), StateRecord::Spent(second)) if first != second => sameness = Sameness::UsedSince,
        (StateRecord::Key(first), StateRecord::Key(second)) => {
            let known: HashSet<_> = second.digests().collect();
            if first.digests().any(|digest| !known.contains(digest)) {
                fields.push("replaced".to_owned());
            }
            if first.key.uses < second.key.uses {
                sameness = Sameness::UsedSince;
            } else {
                fields.extend(usage_differences(first, second, now).map(str::to_owned));
            }
        }
        _ => {}
    }
    if fields.is_empty() { Ok(sameness) } else { Err(fields) }
}

/// Returns whether a user may create more keys in the second export, although none was created since.
fn is_fuller(first: &UserExport, second: &UserExport) -> bool {
    let at = |export: &UserExport| export.creation.map(|creation| creation.bucket.at);
    first.creation != second.creation && at(second) <= at(first)
}

/// The fields of usage in which a key differs that was not used since.
fn usage_differences(first: &KeyExport, second: &KeyExport, now: Micros) -> impl Iterator<Item = &'static str> {
    let quota = second.quota;
    let bucket = first.bucket_under(quota, now).refill(quota, now) == second.bucket.refill(quota, now);
    let same = [
        ("uses", first.key.uses == second.key.uses),
        ("last_used", first.key.last_used == second.key.last_used),
        ("bucket", bucket),
    ];
    same.into_iter().filter(|(_, same)| !same).map(|(name, _)| name)
}

/// The names of all fields in which two records differ, but for those that one of them need not have.
fn differences(first: &StateRecord, second: &StateRecord) -> Vec<String> {
    let (of_first, of_second) = (fields(first), fields(second));
    let names: BTreeSet<&String> = of_first.keys().chain(of_second.keys()).collect();
    let differs = |name: &&String| of_first.get(*name) != of_second.get(*name);
    let is_optional = |name: &&String| match first {
        // A file of version 1 knows no actors. After a rotation without an overlap, no state has the previous digest.
        StateRecord::Key(key) => match name.as_str() {
            "created_by" | "rotated_by" | "revoked_by" => !of_first.contains_key(*name),
            "previous" => key.previous.is_none(),
            // Compared as a set: the lines of digests have more of them.
            "replaced" => true,
            _ => false,
        },
        _ => false,
    };
    names.into_iter().filter(|name| differs(name) && !is_optional(name)).cloned().collect()
}
