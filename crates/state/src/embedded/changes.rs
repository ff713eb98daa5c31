//! Changes as SQL: each is checked and written in one transaction, whole or not at all.
//!
//! The checks read the file, not the memory: so a change sees the changes before it in the same transaction.

use rusqlite::{Connection, OptionalExtension as _, params};

use crate::{ActorName, Bounds, Change, ChangeError, Key, KeyPatch, LastRotation, Permitted, PolicyChange};
use crate::{User, UserPatch};
use domain::clock::Micros;
use domain::identity::{OrgId, Permission, UserId, Voucher};
use domain::key::policy::Field;
use domain::key::{KeyDigest, KeyId};
use domain::quota::Quota;

use super::sql::{classify_error, execute, exists, integer, micros};
use super::{
    federation, key_actors, key_creation, key_policies, management_tokens, org_rows, preconditions, services,
    session_rows, standing, suspensions, tickets,
};

/// Checks a change and writes it. After an error the caller rolls the savepoint back.
pub(super) fn write(sql: &Connection, change: &Change, bounds: &Bounds) -> Result<(), ChangeError> {
    match change {
        Change::CreateOrg(org) => org_rows::create_new(sql, org),
        Change::UpdateOrg { org, patch } => org_rows::update(sql, *org, patch),
        Change::CreateUser(user) => services::create_new_user(sql, user),
        Change::UpdateUser { org, user, patch } => update_user(sql, *org, *user, patch),
        Change::WithdrawUser { org, user, at } => withdraw_user(sql, *org, *user, *at),
        Change::RemoveUser { org, user, at } => remove_user(sql, *org, *user, *at),
        Change::CreateKey { key, digest } => create_key(sql, key, digest),
        Change::RevokeKey { key, at } => revoke_key(sql, *key, *at),
        Change::RotateKey { key, digest, at, previous_until, last } => {
            rotate_key(sql, *key, digest, (*at, *previous_until), last)
        }
        Change::UpdateKey { key, patch } => update_key(sql, *key, patch),
        Change::ByPerson { person, change } => {
            standing::require_person(sql, *person, change)?;
            write(sql, change, bounds)?;
            key_creation::check(sql, *person, change, bounds)
        }
        Change::ByActor { actor, change } => write_by(sql, actor, change, bounds),
        Change::IfMatch { etag, change } => {
            preconditions::check_etag(sql, change, *etag)?;
            write(sql, change, bounds)
        }
        Change::Once { request, change } => {
            preconditions::write_record(sql, request, change.withdraws())?;
            write(sql, change, bounds)
        }
        Change::ByFederation { exchange, change } => federation::write(sql, exchange, change, bounds),
        Change::FederationRule(change) => federation::change_rule(sql, change),
        Change::CreateSession { session, digest } => {
            session_rows::create(sql, session, digest, bounds.sessions_per_person)
        }
        Change::ChooseOrg { session, org } => session_rows::choose_org(sql, *session, *org),
        Change::EndSession { session } => session_rows::end(sql, *session),
        Change::EndMembership { session, org } => session_rows::end_membership(sql, *session, *org),
        Change::CreateToken(token) => management_tokens::create_in_room(sql, token),
        Change::RevokeToken { token, at } => management_tokens::revoke(sql, *token, *at),
        Change::PutTicket { digest, content, expires, source } => tickets::put(sql, digest, content, *expires, *source),
    }
}

/// Writes a change of a key, and who makes it.
fn write_by(sql: &Connection, actor: &ActorName, change: &Change, bounds: &Bounds) -> Result<(), ChangeError> {
    if let Some(token) = actor.token() {
        management_tokens::require_live(sql, token)?;
    }
    write(sql, change, bounds)?;
    change.key_event().map_or(Ok(()), |event| key_actors::record(sql, event, actor))
}

pub(super) fn create_user(sql: &Connection, user: &User) -> Result<(), ChangeError> {
    require_org(sql, user.org)?;
    let times = [user.removed, user.withdrawn, user.suspended];
    let [removed, withdrawn, suspended] = times.map(|at| at.map(|at| integer(at.0)));
    let (provider, person) = voucher_columns(user.vouched_by.as_ref());
    let [id, org] = [user.id.to_string(), user.org.to_string()];
    let permissions = permissions_column(&user.permissions);
    execute(
        sql,
        "INSERT INTO users (id, org, email, permissions, created, removed, provider, person, withdrawn,
                            suspended, suspended_by_operator, responsible)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
        params![
            id,
            org,
            user.email,
            permissions,
            integer(user.created.0),
            removed,
            provider,
            person,
            withdrawn,
            suspended,
            user.suspended_by_operator,
            user.responsible.map(|user| user.to_string())
        ],
    )
    .map(drop)
}

/// Changes a user that is not removed.
fn update_user(sql: &Connection, org: OrgId, user: UserId, patch: &UserPatch) -> Result<(), ChangeError> {
    require_user(sql, org, user)?;
    if let Some(responsible) = patch.responsible {
        services::reassign(sql, org, user, responsible)?;
    }
    if let Some(permitted) = &patch.permitted {
        permit_user(sql, user, permitted)?;
    }
    match patch.suspended {
        Field::Keep => Ok(()),
        Field::Clear => suspensions::resume_user(sql, user, patch.by_operator),
        Field::Set(at) => suspensions::suspend_user(sql, user, at, patch.by_operator),
    }
}

fn permit_user(sql: &Connection, user: UserId, permitted: &Permitted) -> Result<(), ChangeError> {
    let (provider, person) = voucher_columns(permitted.vouched_by.as_ref());
    execute(
        sql,
        "UPDATE users SET permissions = ?2, withdrawn = NULL, provider = coalesce(?3, provider),
                          person = coalesce(?4, person) WHERE id = ?1",
        params![user.to_string(), permissions_column(&permitted.permissions), provider, person],
    )
    .map(drop)
}

/// The provider that vouches for a user, and the person there.
fn voucher_columns(vouched_by: Option<&Voucher>) -> (Option<&str>, Option<String>) {
    vouched_by.map(|voucher| (&*voucher.provider, voucher.person.to_string())).unzip()
}

fn withdraw_user(sql: &Connection, org: OrgId, user: UserId, at: Micros) -> Result<(), ChangeError> {
    let update = "UPDATE users SET withdrawn = coalesce(withdrawn, ?2) WHERE id = ?1";
    change_user(sql, org, user, update, integer(at.0))
}

fn remove_user(sql: &Connection, org: OrgId, user: UserId, at: Micros) -> Result<(), ChangeError> {
    change_user(sql, org, user, "UPDATE users SET removed = ?2 WHERE id = ?1", integer(at.0))
}

fn change_user(
    sql: &Connection,
    org: OrgId,
    user: UserId,
    update: &str,
    value: impl rusqlite::ToSql,
) -> Result<(), ChangeError> {
    require_user(sql, org, user)?;
    execute(sql, update, params![user.to_string(), value]).map(drop)
}

fn create_key(sql: &Connection, key: &Key, digest: &KeyDigest) -> Result<(), ChangeError> {
    require_user(sql, key.org, key.user)?;
    standing::require_expiry(sql, key)?;
    insert_key(sql, key, digest)
}

/// Writes the row of a key, whose user exists.
pub(super) fn insert_key(sql: &Connection, key: &Key, digest: &KeyDigest) -> Result<(), ChangeError> {
    require_new_digest(sql, digest)?;
    let time = |at: Option<Micros>| at.map(|at| integer(at.0));
    let [requests, per, burst] = quota_columns(key.quota);
    execute(
        sql,
        "INSERT INTO keys (id, digest, user, name, imported, created, rotated, previous_until, revoked, requests, per,
                           burst, last_used, uses, session_quota_key)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)",
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
        ],
    )?;
    key.policy.as_deref().map_or(Ok(()), |policy| key_policies::write(sql, key.id, Some(policy)))
}

/// The first revocation stands: a repeated one must not move its time.
fn revoke_key(sql: &Connection, key: KeyId, at: Micros) -> Result<(), ChangeError> {
    let update = "UPDATE keys SET revoked = ifnull(revoked, ?2) WHERE id = ?1";
    match execute(sql, update, params![key.as_str(), integer(at.0)])? {
        0 => Err(ChangeError::NoKey(key)),
        _ => Ok(()),
    }
}

fn rotate_key(
    sql: &Connection,
    key: KeyId,
    digest: &KeyDigest,
    (at, previous_until): (Micros, Micros),
    last: &LastRotation,
) -> Result<(), ChangeError> {
    require_rotation(sql, key, last)?;
    // A session quota key has no secret that could be replaced.
    if exists(sql, "SELECT 1 FROM keys WHERE id = ?1 AND session_quota_key", [key.as_str()])? {
        return Err(ChangeError::NoKey(key));
    }
    require_new_digest(sql, digest)?;
    // Kept for good: a use of the replaced secret is recognized, and no key ever gets its digest again.
    execute(sql, "INSERT INTO replaced SELECT digest, id FROM keys WHERE id = ?1", [key.as_str()])?;
    execute(
        sql,
        "UPDATE keys SET previous = digest, digest = ?2, rotated = ?3, previous_until = ?4 WHERE id = ?1",
        params![key.as_str(), digest.as_bytes(), integer(at.0), integer(previous_until.0)],
    )
    .map(drop)
}

/// Requires a key that is not revoked, and whose last rotation is the expected one.
fn require_rotation(sql: &Connection, key: KeyId, last: &LastRotation) -> Result<(), ChangeError> {
    require_live_key(sql, key)?;
    last.check(key, last_rotation(sql, key)?)
}

fn last_rotation(sql: &Connection, key: KeyId) -> Result<Option<Micros>, ChangeError> {
    let mut query = sql.prepare_cached("SELECT rotated FROM keys WHERE id = ?1").map_err(classify_error)?;
    let rotated: Option<i64> = query.query_row([key.as_str()], |row| row.get(0)).map_err(classify_error)?;
    Ok(rotated.map(micros))
}

/// Changes a key that is not revoked.
fn update_key(sql: &Connection, key: KeyId, patch: &KeyPatch) -> Result<(), ChangeError> {
    require_live_key(sql, key)?;
    match patch.quota {
        Field::Keep => {}
        Field::Clear => limit_key(sql, key, None)?,
        Field::Set(quota) => limit_key(sql, key, Some(quota))?,
    }
    let Some(PolicyChange { patch, allowed }) = &patch.policy else { return Ok(()) };
    key_policies::change(sql, key, patch, *allowed)
}

fn limit_key(sql: &Connection, key: KeyId, quota: Option<Quota>) -> Result<(), ChangeError> {
    let [requests, per, burst] = quota_columns(quota);
    let update = "UPDATE keys SET requests = ?2, per = ?3, burst = ?4 WHERE id = ?1";
    execute(sql, update, params![key.as_str(), requests, per, burst]).map(drop)
}

pub(super) fn require_org(sql: &Connection, org: OrgId) -> Result<(), ChangeError> {
    let found = exists(sql, "SELECT 1 FROM orgs WHERE id = ?1", [org.to_string()])?;
    found.then_some(()).ok_or(ChangeError::NoOrg(org))
}

/// Requires that a user of the organization exists and is not removed.
pub(super) fn require_user(sql: &Connection, org: OrgId, user: UserId) -> Result<(), ChangeError> {
    let query = "SELECT 1 FROM users WHERE id = ?1 AND org = ?2 AND removed IS NULL";
    if exists(sql, query, [user.to_string(), org.to_string()])? {
        return Ok(());
    }
    // A missing organization is the better answer: its users are missing with it.
    require_org(sql, org)?;
    Err(ChangeError::NoUser(user))
}

/// Requires that a key exists and is not revoked.
fn require_live_key(sql: &Connection, key: KeyId) -> Result<(), ChangeError> {
    let mut query = sql.prepare_cached("SELECT revoked IS NOT NULL FROM keys WHERE id = ?1").map_err(classify_error)?;
    match query.query_row([key.as_str()], |row| row.get(0)).optional().map_err(classify_error)? {
        Some(false) => Ok(()),
        Some(true) => Err(ChangeError::Revoked(key)),
        None => Err(ChangeError::NoKey(key)),
    }
}

/// Requires a digest that no key has or had.
pub(super) fn require_new_digest(sql: &Connection, digest: &KeyDigest) -> Result<(), ChangeError> {
    let query = "SELECT 1 FROM keys WHERE digest = ?1 UNION ALL SELECT 1 FROM replaced WHERE digest = ?1";
    let taken = exists(sql, query, [digest.as_bytes()])?;
    if taken { Err(ChangeError::Taken("digest")) } else { Ok(()) }
}

/// Permissions as a column: comma-separated.
fn permissions_column(permissions: &[Permission]) -> String {
    permissions.iter().map(Permission::as_str).collect::<Vec<_>>().join(",")
}

/// A key's own quota as columns: requests, seconds, burst.
fn quota_columns(quota: Option<Quota>) -> [Option<i64>; 3] {
    let Some(quota) = quota else { return [None; 3] };
    [u64::from(quota.requests), quota.per.as_secs(), u64::from(quota.burst)].map(|value| Some(integer(value)))
}
