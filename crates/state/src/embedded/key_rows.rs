//! Keys as SQL, with their digests.

use rusqlite::{Connection, params};

use super::key_policies;
use super::sql::{execute, exists, integer};
use crate::{ChangeError, Key};
use domain::clock::Micros;
use domain::key::{KeyDigest, KeyId};
use domain::plan_name::PlanName;
use domain::quota::Quota;

/// Creates a key, whose user exists.
pub(super) fn create(sql: &Connection, key: &Key, digest: &KeyDigest) -> Result<(), ChangeError> {
    require_new_digest(sql, digest)?;
    let [requests, per, burst] = quota_columns(key.quota);
    execute(
        sql,
        "INSERT INTO keys (id, digest, user, name, imported, created, rotated, previous_until, revoked, requests, per,
                           burst, last_used, uses, session_quota_key, plan, budget)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)",
        params![
            key.id.as_str(),
            digest.as_bytes(),
            key.user.to_string(),
            key.name,
            key.imported,
            integer(key.created.0),
            time(key.rotated),
            time(key.previous_until),
            time(key.revoked),
            requests,
            per,
            burst,
            time(key.last_used),
            integer(key.uses),
            key.session_quota_key,
            plan(key),
            budget(key),
        ],
    )?;
    key.policy.as_deref().map_or(Ok(()), |policy| key_policies::write(sql, key.id, Some(policy)))
}

/// Writes what can change of a key, but for its digest and its policy.
pub(super) fn update(sql: &Connection, key: &Key) -> Result<(), ChangeError> {
    let [requests, per, burst] = quota_columns(key.quota);
    let update = "UPDATE keys SET rotated = ?2, previous_until = ?3, revoked = ?4, requests = ?5, per = ?6, burst = ?7,
                                  plan = ?8, budget = ?9, name = ?10 WHERE id = ?1";
    let [rotated, previous_until, revoked] = [key.rotated, key.previous_until, key.revoked].map(time);
    let id = key.id.as_str();
    let parameters =
        params![id, rotated, previous_until, revoked, requests, per, burst, plan(key), budget(key), key.name];
    execute(sql, update, parameters).map(drop)
}

/// Gives a key a new digest. The one before is kept for good: a use of the replaced secret is recognized, and no key
/// ever gets its digest again.
pub(super) fn replace_digest(sql: &Connection, key: KeyId, digest: &KeyDigest) -> Result<(), ChangeError> {
    require_new_digest(sql, digest)?;
    execute(sql, "INSERT INTO replaced SELECT digest, id FROM keys WHERE id = ?1", [key.as_str()])?;
    let update = "UPDATE keys SET previous = digest, digest = ?2 WHERE id = ?1";
    execute(sql, update, params![key.as_str(), digest.as_bytes()]).map(drop)
}

/// Requires a digest that no key has or had.
pub(super) fn require_new_digest(sql: &Connection, digest: &KeyDigest) -> Result<(), ChangeError> {
    let query = "SELECT 1 FROM keys WHERE digest = ?1 UNION ALL SELECT 1 FROM replaced WHERE digest = ?1";
    let taken = exists(sql, query, [digest.as_bytes()])?;
    if taken { Err(ChangeError::Taken("digest")) } else { Ok(()) }
}

fn time(at: Option<Micros>) -> Option<i64> {
    at.map(|at| integer(at.0))
}

fn plan(key: &Key) -> Option<&str> {
    key.plan.as_ref().map(PlanName::as_str)
}

fn budget(key: &Key) -> Option<String> {
    key.budget.map(|budget| budget.to_string())
}

/// A key's own quota as columns: requests, seconds, burst.
fn quota_columns(quota: Option<Quota>) -> [Option<i64>; 3] {
    let Some(quota) = quota else { return [None; 3] };
    [u64::from(quota.requests), quota.per.as_secs(), u64::from(quota.burst)].map(|value| Some(integer(value)))
}
