//! The rules of changes, once for both variants of the state.
//!
//! A plan is pure: from records as its driver has them it makes the record that a change leads to, or says why there is
//! none. What the variants differ in is their drivers' own: reading, unique names and digests, buckets, order and
//! atomicity of the writes. The embedded driver plans in the transaction of the change. That of Redis reads what a plan
//! asks for until it is complete, and its transaction requires that the plan still holds.
//!
//! ```text
//! plan > standing, records
//! ```

mod records;
mod standing;

use crate::{Change, ChangeError, Key, KeyPatch, Org, OrgPatch, OrgPolicy, PolicyChange, PolicyScope, RuleChange};
use crate::{Session, TicketSource, User, UserPatch};
use domain::clock::Micros;
use domain::identity::{OrgId, SessionId, UserId};
use domain::key::policy::Field;
use domain::key::{KeyDigest, KeyId};
use domain::management_token::{ManagementToken, TokenId, TokenUse};
use domain::session::TokenDigest;

pub(crate) use records::Records;
pub use standing::ADMIN;
pub(crate) use standing::{require_person, require_service};

/// A change as it was planned: the new record, or the whole record as the change leaves it.
#[derive(Clone)]
pub(crate) enum Planned {
    NewOrg(Org),
    Org(Org),
    NewUser(User),
    User(User),
    NewKey(Key, KeyDigest),
    PatchedKey(Key, KeyPatch),
    /// A key, and the time of its revocation, which may be an earlier one.
    RevokedKey(Key, Micros),
    RotatedKey(Key, Rotation),
    Rule(RuleChange),
    NewSession(Box<Session>, TokenDigest),
    Session(Box<Session>),
    /// The session ends, or has ended already.
    EndOfSession(SessionId),
    NewToken(Box<ManagementToken>),
    /// The token and its descendants are revoked.
    EndOfToken(TokenId, Micros),
    /// The last use of a token, and the time at which the token expires.
    UseOfToken(TokenId, Box<TokenUse>, Micros),
    Ticket {
        digest: TokenDigest,
        content: Vec<u8>,
        expires: Micros,
        source: TicketSource,
    },
}

/// The new secret of a key.
#[derive(Clone, Copy)]
pub(crate) struct Rotation {
    pub(crate) digest: KeyDigest,
    pub(crate) at: Micros,
    /// Time until which the replaced secret stays valid; `at` for no overlap.
    pub(crate) previous_until: Micros,
}

/// Plans a change, without the conditions and the bounds around it.
///
/// # Errors
/// The change is refused, or a record cannot be read.
pub(crate) fn plan<R: Records>(change: &Change, records: &R) -> Result<Planned, R::Error> {
    Ok(match change {
        Change::CreateOrg(org) => Planned::NewOrg(org.clone()),
        Change::UpdateOrg { org, patch } => Planned::Org(patched_org(require_org(records, *org)?, patch)?),
        Change::CreateUser(user) => {
            if let Some(person) = user.responsible {
                require_responsible(records, user.org, person)?;
            }
            require_org(records, user.org)?;
            Planned::NewUser(user.clone())
        }
        Change::UpdateUser { org, user, patch } => Planned::User(patched_user(records, *org, *user, patch)?),
        Change::WithdrawUser { org, user, at } => {
            let user = require_user(records, *org, *user)?;
            // Of several withdrawals the first stands.
            Planned::User(User { withdrawn: user.withdrawn.or(Some(*at)), ..user })
        }
        Change::RemoveUser { org, user, at } => {
            Planned::User(User { removed: Some(*at), ..require_user(records, *org, *user)? })
        }
        Change::CreateKey { key, digest } => {
            check_new_key(records, key)?;
            Planned::NewKey(key.clone(), *digest)
        }
        Change::RevokeKey { key, at } => {
            let key = records.key(*key)?.ok_or(ChangeError::NoKey(*key))?;
            // Of several revocations the first stands.
            let at = key.revoked.unwrap_or(*at);
            Planned::RevokedKey(Key { revoked: Some(at), ..key }, at)
        }
        Change::RotateKey { key, digest, at, previous_until, last } => {
            let key = require_live_key(records, *key)?;
            last.check(key.id, key.rotated)?;
            // A session quota key has no secret that could be replaced.
            if key.session_quota_key {
                return Err(ChangeError::NoKey(key.id).into());
            }
            let rotation = Rotation { digest: *digest, at: *at, previous_until: *previous_until };
            Planned::RotatedKey(Key { rotated: Some(*at), previous_until: Some(*previous_until), ..key }, rotation)
        }
        Change::UpdateKey { key, patch } => Planned::PatchedKey(patched_key(records, *key, patch)?, patch.clone()),
        Change::FederationRule(change) => {
            if let RuleChange::Create(rule) = change {
                require_service_account(&require_user(records, rule.org, rule.user)?)?;
            }
            Planned::Rule(change.clone())
        }
        Change::CreateSession { session, digest } => Planned::NewSession(session.clone(), *digest),
        Change::ChooseOrg { session, org } => Planned::Session(Box::new(chosen(records, *session, *org)?)),
        Change::EndSession { session } => Planned::EndOfSession(*session),
        Change::EndMembership { session, org } => without_membership(records, *session, *org)?,
        Change::CreateToken(token) => Planned::NewToken(token.clone()),
        Change::RevokeToken { token, at } => Planned::EndOfToken(*token, *at),
        Change::UseToken { token, last, expires } => Planned::UseOfToken(*token, last.clone(), *expires),
        Change::PutTicket { digest, content, expires, source } => {
            Planned::Ticket { digest: *digest, content: content.clone(), expires: *expires, source: *source }
        }
        Change::ByPerson { change, .. }
        | Change::ByActor { change, .. }
        | Change::ByFederation { change, .. }
        | Change::IfMatch { change, .. }
        | Change::Once { change, .. } => return plan(change, records),
    })
}

fn patched_org(org: Org, patch: &OrgPatch) -> Result<Org, ChangeError> {
    let OrgPatch { suspended, concurrent, plan, budget, policy } = patch;
    let policy = if policy.is_empty() { org.policy } else { policy.apply_to(org.policy)? };
    let suspended = suspended.unwrap_or(org.suspended);
    let plan = plan.apply(org.plan);
    let budget = budget.apply(org.budget);
    Ok(Org { suspended, concurrent: concurrent.apply(org.concurrent), plan, budget, policy, ..org })
}

fn patched_user<R: Records>(records: &R, org: OrgId, user: UserId, patch: &UserPatch) -> Result<User, R::Error> {
    let mut user = require_user(records, org, user)?;
    // A user whom the operator has suspended the operator alone resumes.
    if patch.suspended == Field::Clear && user.suspended_by_operator && !patch.by_operator {
        return Err(ChangeError::SuspendedByOperator(user.id).into());
    }
    if let Some(responsible) = patch.responsible {
        require_service_account(&user)?;
        require_responsible(records, org, responsible)?;
    }
    patch.clone().apply_to(&mut user);
    Ok(user)
}

fn patched_key<R: Records>(records: &R, key: KeyId, patch: &KeyPatch) -> Result<Key, R::Error> {
    let key = require_live_key(records, key)?;
    let policy = match &patch.policy {
        None => key.policy,
        Some(PolicyChange { patch, allowed }) => {
            let bounded = allowed.is_bounded().then(|| require_org(records, key.org)).transpose()?;
            let of_org = bounded.map(|org| org.policy).unwrap_or_default();
            let policy = allowed.apply(key.id, patch, key.policy.as_deref(), &of_org)?;
            if matches!(*allowed, PolicyScope::Unused(since) if key.created >= since) {
                return Err(ChangeError::InUse(key.id).into());
            }
            policy
        }
    };
    if patch.changes_limits() {
        // Read for the driver, which converts the bucket from the limits before to those after.
        records.user(key.org, key.user)?;
        records.org(key.org)?;
    }
    let (quota, plan) = (patch.quota.apply(key.quota), patch.plan.apply(key.plan));
    let name = patch.name.clone().unwrap_or(key.name);
    Ok(Key { name, quota, plan, budget: patch.budget.apply(key.budget), policy, ..key })
}

/// Checks a new key: its user is there, and it expires within the policy of its organization. A session quota key never
/// expires.
fn check_new_key<R: Records>(records: &R, key: &Key) -> Result<(), R::Error> {
    require_user(records, key.org, key.user)?;
    let org = require_org(records, key.org)?;
    if key.id.tag() != org.tag {
        return Err(ChangeError::NoOrg(key.org).into());
    }
    let policy = if key.session_quota_key { OrgPolicy::default() } else { org.policy };
    let expires = key.policy.as_deref().and_then(|policy| policy.expires);
    Ok(policy.check_new_key(expires, key.created).map_err(ChangeError::from)?)
}

/// A session acts in an organization that its person belongs to.
fn chosen<R: Records>(records: &R, id: SessionId, org: OrgId) -> Result<Session, R::Error> {
    let session = records.session(id)?.ok_or(ChangeError::NoSession(id))?;
    if !session.memberships.iter().any(|membership| membership.org == org) {
        return Err(ChangeError::NoOrg(org).into());
    }
    Ok(Session { chosen: org, ..session })
}

/// A session ends with its last membership.
fn without_membership<R: Records>(records: &R, id: SessionId, org: OrgId) -> Result<Planned, R::Error> {
    let Some(mut session) = records.session(id)? else { return Ok(Planned::EndOfSession(id)) };
    session.end_membership(org);
    let is_over = session.memberships.is_empty();
    Ok(if is_over { Planned::EndOfSession(id) } else { Planned::Session(Box::new(session)) })
}

fn require_org<R: Records>(records: &R, org: OrgId) -> Result<Org, R::Error> {
    Ok(records.org(org)?.ok_or(ChangeError::NoOrg(org))?)
}

/// A user of the organization who is not removed.
fn require_user<R: Records>(records: &R, org: OrgId, user: UserId) -> Result<User, R::Error> {
    match records.user(org, user)? {
        Some(found) if found.removed.is_none() => Ok(found),
        // A missing organization is the better answer: its users are missing with it.
        _ => require_org(records, org).and(Err(ChangeError::NoUser(user).into())),
    }
}

/// Requires a person of the organization, who can be responsible for a service.
fn require_responsible<R: Records>(records: &R, org: OrgId, person: UserId) -> Result<(), R::Error> {
    let found = require_user(records, org, person)?;
    if found.is_service() { Err(ChangeError::NotPerson(person).into()) } else { Ok(()) }
}

fn require_service_account(user: &User) -> Result<(), ChangeError> {
    if user.is_service() { Ok(()) } else { Err(ChangeError::NotService(user.id)) }
}

/// A key that is not revoked.
fn require_live_key<R: Records>(records: &R, id: KeyId) -> Result<Key, R::Error> {
    let key = records.key(id)?.ok_or(ChangeError::NoKey(id))?;
    if key.revoked.is_some() { Err(ChangeError::Revoked(id).into()) } else { Ok(key) }
}

#[cfg(test)]
mod tests;
