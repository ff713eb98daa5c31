//! The rules of changes, each case on records in memory.

use std::collections::BTreeMap;
use std::time::Duration;

use super::*;
use crate::{FederationRule, LastRotation, Membership, OrgPolicyPatch, Permitted};
use domain::identity::PersonId;
use domain::key::OrgTag;
use domain::key::policy::{Disabled, DisabledBy, KeyPolicy, PolicyPatch};
use domain::quota::Quota;

const DAY: Duration = Duration::from_secs(24 * 3600);
const NOW: Micros = Micros(1_000_000_000);

/// Records in memory.
#[derive(Clone)]
struct Directory {
    orgs: Vec<Org>,
    users: Vec<User>,
    keys: Vec<Key>,
    sessions: Vec<Session>,
}

impl Records for Directory {
    type Error = ChangeError;

    fn org(&self, id: OrgId) -> Result<Option<Org>, ChangeError> {
        Ok(self.orgs.iter().find(|org| org.id == id).cloned())
    }

    fn user(&self, org: OrgId, id: UserId) -> Result<Option<User>, ChangeError> {
        Ok(self.users.iter().find(|user| (user.org, user.id) == (org, id)).cloned())
    }

    fn key(&self, id: KeyId) -> Result<Option<Key>, ChangeError> {
        Ok(self.keys.iter().find(|key| key.id == id).cloned())
    }

    fn session(&self, id: SessionId) -> Result<Option<Session>, ChangeError> {
        Ok(self.sessions.iter().find(|session| session.id == id).cloned())
    }

    fn has_other_admin(&self, org: OrgId, person: UserId) -> Result<bool, ChangeError> {
        let mut of_org = self.users.iter().filter(|user| user.org == org && user.id != person);
        Ok(of_org.any(|user| user.is_active_admin()))
    }
}

impl Directory {
    /// An organization with an administrator, a service of theirs, and a key of the service.
    fn new() -> Self {
        let org = Org::new(OrgId::generate(), OrgTag::generate().unwrap(), "acme", Micros(1));
        let permissions = vec![ADMIN.parse().unwrap()];
        let admin = User { permissions, ..User::new(UserId::generate(), org.id, "ada@acme.example", Micros(1)) };
        let responsible = Some(admin.id);
        let service = User { responsible, ..User::new(UserId::generate(), org.id, "nightly", Micros(1)) };
        let key = Key::new(KeyId::generate(org.tag).unwrap(), org.id, service.id, "ci", Micros(1));
        Self { orgs: vec![org], users: vec![admin, service], keys: vec![key], sessions: Vec::new() }
    }

    fn org(&self) -> Org {
        self.orgs[0].clone()
    }

    fn admin(&self) -> User {
        self.users[0].clone()
    }

    fn service(&self) -> User {
        self.users[1].clone()
    }

    fn key(&self) -> Key {
        self.keys[0].clone()
    }

    fn user_after(&self, change: &Change) -> User {
        match plan(change, self) {
            Ok(Planned::User(user)) => user,
            other => panic!("{:?}", other.err()),
        }
    }

    fn key_after(&self, change: &Change) -> Key {
        match plan(change, self) {
            Ok(Planned::PatchedKey(key, _) | Planned::RevokedKey(key, _) | Planned::RotatedKey(key, _)) => key,
            other => panic!("{:?}", other.err()),
        }
    }

    fn refusal(&self, change: &Change) -> ChangeError {
        plan(change, self).err().expect("a refusal")
    }
}

fn policy(patch: PolicyPatch, allowed: PolicyScope) -> KeyPatch {
    KeyPatch { policy: Some(PolicyChange { patch: Box::new(patch), allowed }), ..KeyPatch::default() }
}

#[test]
fn fields_of_an_organization_that_a_patch_does_not_name_stay() {
    let records = Directory::new();
    let change = |patch| Change::UpdateOrg { org: records.org().id, patch };
    let policy = OrgPolicyPatch { max_expiry: Some(Some(DAY)), ..OrgPolicyPatch::default() };
    let patch = OrgPatch { suspended: Some(true), policy, ..OrgPatch::default() };
    let Ok(Planned::Org(after)) = plan(&change(patch), &records) else { panic!() };
    let max_expiry = Some(DAY);
    assert_eq!(
        after,
        Org { suspended: true, policy: OrgPolicy { max_expiry, ..OrgPolicy::default() }, ..records.org() }
    );
    let records = Directory { orgs: vec![after.clone()], ..records.clone() };
    let change = |patch| Change::UpdateOrg { org: records.org().id, patch };
    let Ok(Planned::Org(same)) = plan(&change(OrgPatch::default()), &records) else { panic!() };
    assert_eq!(same, after);
    let beyond = OrgPolicyPatch { default_expiry: Some(Some(2 * DAY)), ..OrgPolicyPatch::default() };
    let refused = records.refusal(&change(OrgPatch { policy: beyond, ..OrgPatch::default() }));
    assert!(matches!(refused, ChangeError::InvalidOrgPolicy(_)), "{refused:?}");
    let nowhere = Change::suspend_org(OrgId::generate(), true);
    assert!(matches!(records.refusal(&nowhere), ChangeError::NoOrg(_)));
}

#[test]
fn first_of_several_withdrawals_suspensions_and_revocations_stands() {
    let records = Directory::new();
    let (org, user, key) = (records.org().id, records.admin().id, records.key().id);
    let later = NOW.after(DAY);
    let withdrawn = records.user_after(&Change::WithdrawUser { org, user, at: NOW });
    let suspended = records.user_after(&Change::suspend_user(org, user, Some(NOW), false));
    let revoked = records.key_after(&Change::RevokeKey { key, at: NOW });
    assert_eq!((withdrawn.withdrawn, suspended.suspended, revoked.revoked), (Some(NOW), Some(NOW), Some(NOW)));
    let after = |user: &User| Directory { users: vec![user.clone()], keys: vec![revoked.clone()], ..records.clone() };
    assert_eq!(after(&withdrawn).user_after(&Change::WithdrawUser { org, user, at: later }), withdrawn);
    assert_eq!(after(&suspended).user_after(&Change::suspend_user(org, user, Some(later), false)), suspended);
    assert_eq!(after(&suspended).key_after(&Change::RevokeKey { key, at: later }), revoked);
}

#[test]
fn suspension_by_the_operator_is_taken_back_by_the_operator_alone() {
    let records = Directory::new();
    let (org, user) = (records.org().id, records.admin().id);
    let suspend = |at, by_operator| Change::suspend_user(org, user, at, by_operator);
    let by_admin = records.user_after(&suspend(Some(NOW), false));
    let records = Directory { users: vec![by_admin], ..records };
    assert_eq!(records.user_after(&suspend(None, false)).suspended, None);
    // Noted also of one who is suspended already.
    let by_operator = records.user_after(&suspend(Some(NOW), true));
    let records = Directory { users: vec![by_operator], ..records };
    assert!(matches!(records.refusal(&suspend(None, false)), ChangeError::SuspendedByOperator(id) if id == user));
    let resumed = records.user_after(&suspend(None, true));
    assert_eq!((resumed.suspended, resumed.suspended_by_operator), (None, false));
}

#[test]
fn permissions_take_a_withdrawal_back_and_keep_the_voucher() {
    let records = Directory::new();
    let admin = User { withdrawn: Some(NOW), ..records.admin() };
    let records = Directory { users: vec![admin.clone()], ..records };
    let permitted = Some(Permitted { permissions: Vec::new(), vouched_by: None });
    let patch = UserPatch { permitted, ..UserPatch::default() };
    let after = records.user_after(&Change::UpdateUser { org: admin.org, user: admin.id, patch });
    assert_eq!(after, User { permissions: Vec::new(), withdrawn: None, ..admin });
}

#[test]
fn removed_user_is_none_for_every_change() {
    let records = Directory::new();
    let (org, user) = (records.org().id, records.service().id);
    let removed = records.user_after(&Change::RemoveUser { org, user, at: NOW });
    assert_eq!(removed.removed, Some(NOW));
    let records = Directory { users: vec![records.admin(), removed], ..records };
    let key = Key::new(KeyId::generate(records.org().tag).unwrap(), org, user, "late", NOW);
    for change in [
        Change::RemoveUser { org, user, at: NOW },
        Change::WithdrawUser { org, user, at: NOW },
        Change::suspend_user(org, user, Some(NOW), true),
        Change::permit_user(org, user, Vec::new(), None),
        Change::reassign_user(org, user, records.admin().id),
        Change::CreateKey { key, digest: KeyDigest::of(b"late") },
    ] {
        assert!(matches!(records.refusal(&change), ChangeError::NoUser(id) if id == user), "{change:?}");
    }
    let nowhere = OrgId::generate();
    let elsewhere = records.refusal(&Change::RemoveUser { org: nowhere, user, at: NOW });
    assert!(matches!(elsewhere, ChangeError::NoOrg(id) if id == nowhere), "{elsewhere:?}");
}

#[test]
fn responsible_person_is_a_person_of_the_organization() {
    let records = Directory::new();
    let (org, person, service) = (records.org().id, records.admin(), records.service());
    let create = |responsible| {
        let user = User { responsible: Some(responsible), ..User::new(UserId::generate(), org, "weekly", NOW) };
        Change::CreateUser(user)
    };
    let reassign = |user, responsible| Change::reassign_user(org, user, responsible);
    assert!(matches!(plan(&create(person.id), &records), Ok(Planned::NewUser(_))));
    assert_eq!(records.user_after(&reassign(service.id, person.id)), service);
    for change in [create(service.id), reassign(service.id, service.id)] {
        assert!(matches!(records.refusal(&change), ChangeError::NotPerson(id) if id == service.id));
    }
    let nobody = UserId::generate();
    for change in [create(nobody), reassign(service.id, nobody)] {
        assert!(matches!(records.refusal(&change), ChangeError::NoUser(id) if id == nobody));
    }
    let refused = records.refusal(&reassign(person.id, person.id));
    assert!(matches!(refused, ChangeError::NotService(id) if id == person.id), "{refused:?}");
}

#[test]
fn federation_rule_is_of_a_service() {
    let records = Directory::new();
    let rule = |user| {
        let rule = FederationRule {
            name: "deploy".into(),
            org: records.org().id,
            user,
            issuer: "https://issuer.example".into(),
            audience: "https://api.example".into(),
            audiences: Vec::new(),
            claims: BTreeMap::new(),
            permissions: Vec::new(),
            max: DAY,
            tags: BTreeMap::new(),
            created: NOW,
            created_by: None,
        };
        Change::FederationRule(RuleChange::Create(Box::new(rule)))
    };
    assert!(matches!(plan(&rule(records.service().id), &records), Ok(Planned::Rule(_))));
    assert!(matches!(records.refusal(&rule(records.admin().id)), ChangeError::NotService(_)));
    assert!(matches!(records.refusal(&rule(UserId::generate())), ChangeError::NoUser(_)));
}

#[test]
fn new_key_is_of_its_organization_and_within_its_policy() {
    let records = Directory::new();
    let max_expiry = Some(30 * DAY);
    let bounded = Org { policy: OrgPolicy { max_expiry, ..OrgPolicy::default() }, ..records.org() };
    let records = Directory { orgs: vec![bounded], ..records };
    let new = |days: Option<u32>| {
        let key = Key::new(KeyId::generate(records.org().tag).unwrap(), records.org().id, records.admin().id, "a", NOW);
        let expires = days.map(|days| NOW.after(days * DAY));
        Key { policy: KeyPolicy { expires, ..KeyPolicy::default() }.boxed(), ..key }
    };
    let change = |key| Change::CreateKey { key, digest: KeyDigest::of(b"a") };
    assert!(matches!(plan(&change(new(Some(30))), &records), Ok(Planned::NewKey(..))));
    for beyond in [None, Some(31)] {
        assert!(matches!(records.refusal(&change(new(beyond))), ChangeError::TooLate(_)));
    }
    // A session quota key never expires.
    let session_quota_key = Key { session_quota_key: true, ..new(None) };
    assert!(matches!(plan(&change(session_quota_key), &records), Ok(Planned::NewKey(..))));
    let foreign = Key { id: KeyId::generate(OrgTag::generate().unwrap()).unwrap(), ..new(Some(1)) };
    assert!(matches!(records.refusal(&change(foreign)), ChangeError::NoOrg(_)));
}

#[test]
fn rotation_is_of_a_live_key_and_follows_the_expected_one() {
    let records = Directory::new();
    let key = records.key();
    let rotate = |last| Change::RotateKey {
        key: key.id,
        digest: KeyDigest::of(b"second"),
        at: NOW,
        previous_until: NOW.after(DAY),
        last,
    };
    let rotated = records.key_after(&rotate(LastRotation::Never));
    assert_eq!(rotated, Key { rotated: Some(NOW), previous_until: Some(NOW.after(DAY)), ..key.clone() });
    let with = |key: Key| Directory { keys: vec![key], ..records.clone() };
    for stale in [LastRotation::Never, LastRotation::At(Micros(2))] {
        let refused = with(rotated.clone()).refusal(&rotate(stale));
        assert!(matches!(refused, ChangeError::Rotated { rotated: Some(NOW), .. }), "{refused:?}");
    }
    assert_eq!(with(rotated.clone()).key_after(&rotate(LastRotation::At(NOW))), rotated);
    let revoked = with(Key { revoked: Some(NOW), ..key.clone() });
    assert!(matches!(revoked.refusal(&rotate(LastRotation::Any)), ChangeError::Revoked(_)));
    let of_sessions = with(Key { session_quota_key: true, ..key });
    assert!(matches!(of_sessions.refusal(&rotate(LastRotation::Any)), ChangeError::NoKey(_)));
}

#[test]
fn quota_and_policy_of_a_key_are_changed_together_or_not_at_all() {
    let records = Directory::new();
    let id = records.key().id;
    let quota = Quota { requests: 7, per: Duration::from_secs(60), burst: 9, strict: false };
    let by = |by| PolicyPatch { disabled: Field::Set(Disabled { at: NOW, by }), ..PolicyPatch::default() };
    let patch = KeyPatch { quota: Field::Set(quota), ..policy(by(DisabledBy::Operator), PolicyScope::Operator) };
    let after = records.key_after(&Change::UpdateKey { key: id, patch });
    assert_eq!(after.quota, Some(quota));
    let records = Directory { keys: vec![after], ..records };
    let enable = PolicyPatch { disabled: Field::Clear, ..PolicyPatch::default() };
    let patch = KeyPatch { quota: Field::Clear, ..policy(enable, PolicyScope::Admin { at: NOW }) };
    let refused = records.refusal(&Change::UpdateKey { key: id, patch });
    assert!(matches!(refused, ChangeError::DisabledByOperator(_)), "{refused:?}");
}

#[test]
fn key_that_was_created_since_is_not_unused() {
    let records = Directory::new();
    let sweep = |since| {
        let disabled = Field::Set(Disabled { at: NOW, by: DisabledBy::Unused });
        let patch = PolicyPatch { disabled, ..PolicyPatch::default() };
        Change::UpdateKey { key: records.key().id, patch: policy(patch, PolicyScope::Unused(since)) }
    };
    assert!(matches!(records.refusal(&sweep(records.key().created)), ChangeError::InUse(_)));
    assert!(records.key_after(&sweep(records.key().created.after(DAY))).policy.is_some());
}

#[test]
fn session_acts_where_its_person_is_a_member_and_ends_with_the_last_membership() {
    let orgs = [OrgId::generate(), OrgId::generate()];
    let memberships = orgs.map(|org| Membership { org, user: UserId::generate() }).to_vec();
    let id = SessionId::generate();
    let session = Session {
        id,
        person: PersonId::from_user(UserId::generate()),
        email: "ada@acme.example".into(),
        memberships,
        chosen: orgs[0],
        provider: None,
        id_token: None,
        created: NOW,
        expires: NOW.after(DAY),
        idle: DAY,
        seen: NOW,
        ip: None,
        user_agent: None,
    };
    let with = |session: &Session| Directory { sessions: vec![session.clone()], ..Directory::new() };
    let choose = |org| Change::ChooseOrg { session: id, org };
    let Ok(Planned::Session(chosen)) = plan(&choose(orgs[1]), &with(&session)) else { panic!() };
    assert_eq!((chosen.chosen, chosen.memberships.len()), (orgs[1], 2));
    assert!(matches!(with(&session).refusal(&choose(OrgId::generate())), ChangeError::NoOrg(_)));
    assert!(matches!(Directory::new().refusal(&choose(orgs[0])), ChangeError::NoSession(_)));
    let end = |org| Change::EndMembership { session: id, org };
    let Ok(Planned::Session(left)) = plan(&end(orgs[0]), &with(&session)) else { panic!() };
    assert_eq!((left.chosen, left.memberships.len()), (orgs[1], 1));
    assert!(matches!(plan(&end(orgs[1]), &with(&left)), Ok(Planned::EndOfSession(ended)) if ended == id));
    assert!(matches!(plan(&end(orgs[1]), &Directory::new()), Ok(Planned::EndOfSession(_))));
}

#[test]
fn organization_keeps_its_last_administrator() {
    let records = Directory::new();
    let admin = records.admin();
    let suspend = Change::suspend_user(admin.org, admin.id, Some(NOW), false);
    let refused = require_person(admin.id, &suspend, &records).unwrap_err();
    assert!(matches!(refused, ChangeError::LastAdmin(id) if id == admin.id), "{refused:?}");
    let other = User { id: UserId::generate(), email: "ann@acme.example".into(), ..admin.clone() };
    let with_other = Directory { users: vec![admin.clone(), other], ..records.clone() };
    require_person(admin.id, &suspend, &with_other).unwrap();
    // Nor does the last one leave, or give up the role.
    let remove = Change::RemoveUser { org: admin.org, user: admin.id, at: NOW };
    let permit = |permissions: &[&str]| {
        let permissions = permissions.iter().map(|name| name.parse().unwrap()).collect();
        Change::permit_user(admin.org, admin.id, permissions, None)
    };
    for change in [&remove, &permit(&[])] {
        assert!(matches!(require_person(admin.id, change, &records), Err(ChangeError::LastAdmin(_))), "{change:?}");
        require_person(admin.id, change, &with_other).unwrap();
    }
    require_person(admin.id, &permit(&[ADMIN]), &records).unwrap();
    // A key that is missing is left to the change.
    let missing = Change::RevokeKey { key: KeyId::generate(records.org().tag).unwrap(), at: NOW };
    require_person(UserId::generate(), &missing, &records).unwrap();
    let of_service = Change::RevokeKey { key: records.key().id, at: NOW };
    assert!(matches!(require_person(UserId::generate(), &of_service, &records), Err(ChangeError::NotAllowed(_))));
    require_person(records.service().id, &of_service, &records).unwrap();
}
