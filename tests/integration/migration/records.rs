//! Directory with every kind of record, for the tests of the migration.

use std::time::Duration;

use domain::budget::{Cost, OwnBudget, Period};
use domain::clock::{self, Micros};
use domain::identity::{OrgId, PersonId, UserId, Voucher};
use domain::key::policy::{Disabled, DisabledBy, Field, KeyPolicy, PolicyPatch};
use domain::key::{KeyDigest, KeyId, OrgTag, PlainKey};
use domain::management_token::{ManagementToken, PlainToken, TokenScope};
use domain::quota::Quota;
use state::{
    Change, DecideRequest, Decision, FederationRule, Key, KeyPatch, LastRotation, Org, OrgPolicy, RouteAccess,
    RuleChange, State, User, UserPatch, session_quota_digest,
};

/// Overlap of rotated secrets.
pub(super) const OVERLAP: Duration = Duration::from_secs(3600);

/// Creates organizations, users and keys in a state.
pub(super) struct RecordMaker<'a> {
    pub(super) state: &'a State,
    pub(super) now: Micros,
    /// Every digest that a key has or had.
    pub(super) digests: Vec<KeyDigest>,
}

pub(super) fn new_org(name: &str) -> Org {
    let (id, tag) = (OrgId::generate(), OrgTag::generate().unwrap());
    Org::new(id, tag, name, clock::now())
}

pub(super) fn new_user(org: OrgId, email: &str) -> User {
    let permissions = ["a", "b"].map(|text| text.parse().unwrap()).to_vec();
    User { permissions, ..User::new(UserId::generate(), org, email, clock::now()) }
}

pub(super) fn new_key(org: &Org, user: UserId, name: &str) -> (Key, KeyDigest) {
    let plain = PlainKey::generate(KeyId::generate(org.tag).unwrap()).unwrap();
    let key = Key::new(plain.id(), org.id, user, name, clock::now());
    (key, plain.digest())
}

/// A rule of a service.
pub(super) fn new_rule(service: &User, name: &str) -> FederationRule {
    FederationRule {
        name: name.into(),
        org: service.org,
        user: service.id,
        issuer: "https://ci.example.com".into(),
        audience: "https://gateway.example.com".into(),
        audiences: Vec::new(),
        claims: [("sub".to_owned(), "repo:acme/*:ref:refs/heads/main".parse().unwrap())].into(),
        permissions: vec!["a".parse().unwrap()],
        max: OVERLAP,
        tags: [("team".to_owned(), "billing".to_owned())].into(),
        created: clock::now(),
        created_by: None,
    }
}

/// A token of all organizations that expires in a day.
pub fn new_token(name: &str) -> ManagementToken {
    let (plain, created) = (PlainToken::generate().unwrap(), clock::now());
    ManagementToken {
        id: plain.id(),
        digest: plain.digest(),
        name: name.into(),
        org: None,
        admin: None,
        scopes: [TokenScope::KeysRead, TokenScope::KeysCreate].into(),
        networks: vec!["10.0.0.0/8".parse().unwrap(), "2001:db8::/32".parse().unwrap()],
        client_san: Some("ci.example.com".into()),
        created,
        created_by: "unix:ada(1000)".into(),
        expires: created.after(24 * OVERLAP),
        revoked: None,
    }
}

/// A policy with every field.
pub(super) fn full_policy() -> KeyPolicy {
    KeyPolicy {
        permissions: Some(vec!["a".parse().unwrap()]),
        expires: Some(Micros(4_000_000_000_000_000)),
        networks: vec!["10.0.0.0/8".parse().unwrap(), "2001:db8::/32".parse().unwrap()],
        concurrent: Some(5),
        disabled: Some(Disabled { at: Micros(1_700_000_000_000_042), by: DisabledBy::Unused }),
        enabled: None,
        tags: [("team".to_owned(), "billing".to_owned()), ("env".to_owned(), String::new())].into(),
    }
}

/// A budget of so many units a month.
pub(super) fn monthly(units: u64) -> Field<OwnBudget> {
    Field::Set(OwnBudget { units, per: Period::Month })
}

/// The change that makes one policy of another.
pub(super) fn policy_change(before: &KeyPolicy, after: KeyPolicy) -> PolicyPatch {
    fn field<T>(value: Option<T>) -> Field<T> {
        value.map_or(Field::Clear, Field::Set)
    }
    let removed = before.tags.keys().map(|name| (name.clone(), None));
    let tags = removed.chain(after.tags.into_iter().map(|(name, value)| (name, Some(value)))).collect();
    PolicyPatch {
        permissions: field(after.permissions),
        expires: field(after.expires),
        networks: Field::Set(after.networks),
        concurrent: field(after.concurrent),
        disabled: field(after.disabled),
        enabled: after.enabled,
        tags: Field::Set(tags),
    }
}

impl<'a> RecordMaker<'a> {
    pub(super) fn new(state: &'a State) -> Self {
        Self { state, now: clock::now(), digests: Vec::new() }
    }

    pub(super) async fn change(&self, change: Change) {
        self.state.change(change).await.unwrap();
    }

    pub(super) async fn org(&self, name: &str) -> Org {
        let org = new_org(name);
        self.change(Change::CreateOrg(org.clone())).await;
        org
    }

    pub(super) async fn user(&self, org: &Org, email: &str) -> UserId {
        let user = new_user(org.id, email);
        let id = user.id;
        self.change(Change::CreateUser(user)).await;
        id
    }

    /// An organization, acme, and a user of it.
    pub(super) async fn org_with_user(&self) -> (Org, UserId) {
        let org = self.org("acme").await;
        let user = self.user(&org, "ada@example.com").await;
        (org, user)
    }

    pub(super) async fn key(&mut self, org: &Org, user: UserId, name: &str) -> (KeyId, KeyDigest) {
        let (key, digest) = new_key(org, user, name);
        let id = key.id;
        self.change(Change::CreateKey { key, digest }.by("unix:ada(1000)")).await;
        self.digests.push(digest);
        (id, digest)
    }

    /// Creates keys as their user, with tokens of the user's bucket.
    pub(super) async fn keys_by(&mut self, org: &Org, person: UserId, count: usize) {
        for number in 0..count {
            let (key, digest) = new_key(org, person, &format!("own {number}"));
            let change = Box::new(Change::CreateKey { key, digest });
            self.change(Change::ByPerson { person, change }.by(&person.to_string())).await;
            self.digests.push(digest);
        }
    }

    async fn rotate(&mut self, key: KeyId, overlap: Duration) {
        let digest = PlainKey::generate(key).unwrap().digest();
        let previous_until = self.now.after(overlap);
        let rotate = Change::RotateKey { key, digest, at: self.now, previous_until, last: LastRotation::Any };
        self.change(rotate.by("unix:bob(1001)")).await;
        self.digests.push(digest);
    }

    pub(super) async fn take(&self, digest: &KeyDigest, times: usize) {
        for _ in 0..times {
            let ask = DecideRequest {
                digest,
                id: None,
                access: RouteAccess::Everyone,
                cost: Cost::ONE,
                client: None,
                now: self.now,
            };
            assert!(matches!(self.state.decide(ask).await, Ok(Decision::Admitted(_))));
        }
    }

    /// Creates two organizations with every kind of key, a suspended one, and an empty one.
    pub(super) async fn everything(&mut self) {
        for name in ["acme", "globex"] {
            self.busy_org(name).await;
        }
        let suspended = self.org("initech").await;
        let user = self.user(&suspended, "milton@example.com").await;
        self.key(&suspended, user, "stapler").await;
        self.change(Change::suspend_org(suspended.id, true)).await;
        self.change(Change::WithdrawUser { org: suspended.id, user, at: self.now }).await;
        self.change(Change::suspend_user(suspended.id, user, Some(self.now), true)).await;
        self.org("empty").await;
    }

    async fn busy_org(&mut self, name: &str) {
        let org = self.org(name).await;
        self.change(Change::limit_org(org.id, Some(7))).await;
        let user = self.user(&org, "ada@example.com").await;
        let gone = self.user(&org, "bob@example.com").await;
        let (_, of_gone) = self.key(&org, gone, "of a removed user").await;
        self.take(&of_gone, 2).await;
        self.change(Change::RemoveUser { org: org.id, user: gone, at: self.now }).await;
        let again = self.user(&org, "bob@example.com").await;
        let permissions = vec!["queries:read".parse().unwrap()];
        let person = PersonId::from_subject("https://login.example", "bob");
        let vouched_by = Some(Voucher { provider: "corp".into(), person });
        self.change(Change::permit_user(org.id, again, permissions, vouched_by)).await;
        let service = User { responsible: Some(again), ..new_user(org.id, "nightly report") };
        self.change(Change::CreateUser(service.clone())).await;
        self.change(Change::reassign_user(org.id, service.id, user)).await;
        self.key(&org, service.id, "of a service").await;
        let patch = UserPatch { budget: monthly(1000), ..UserPatch::default() };
        self.change(Change::UpdateUser { org: org.id, user, patch }).await;
        self.keys_of(&org, user).await;
        self.key(&org, again, "of another bob").await;
        // At the end: it bounds the keys that are created from then on.
        let policy = OrgPolicy { max_expiry: Some(OVERLAP), ..OrgPolicy::default() };
        self.change(Change::set_org_policy(org.id, policy)).await;
    }

    async fn keys_of(&mut self, org: &Org, user: UserId) {
        self.key(org, user, "never used").await;
        let (_, used) = self.key(org, user, "half empty").await;
        self.take(&used, 25).await;
        let (_, drained) = self.key(org, user, "empty").await;
        self.take(&drained, 40).await;
        let (revoked, digest) = self.key(org, user, "revoked").await;
        self.take(&digest, 3).await;
        self.change(Change::RevokeKey { key: revoked, at: self.now }.by("unix:root(0) sudo:ada(1000)")).await;
        let (rotated, digest) = self.key(org, user, "rotated with an overlap").await;
        self.rotate(rotated, OVERLAP).await;
        self.take(&digest, 4).await;
        let (rotated, _) = self.key(org, user, "rotated without").await;
        self.rotate(rotated, Duration::ZERO).await;
        let (rotated, _) = self.key(org, user, "rotated three times").await;
        for _ in 0..3 {
            self.rotate(rotated, OVERLAP).await;
        }
        let (limited, digest) = self.key(org, user, "own quota").await;
        let quota = Quota { requests: 7, per: Duration::from_secs(86_400), burst: 9, strict: false };
        self.change(Change::limit_key(limited, Some(quota))).await;
        let patch = KeyPatch { budget: monthly(1000), ..KeyPatch::default() };
        self.change(Change::UpdateKey { key: limited, patch }).await;
        self.take(&digest, 5).await;
        let (mut key, digest) = new_key(org, user, "narrow");
        key.policy = full_policy().boxed();
        self.change(Change::CreateKey { key, digest }).await;
        self.digests.push(digest);
        let (mut key, _) = new_key(org, user, "imported");
        key.imported = true;
        let digest = KeyDigest::of(key.id.as_str().as_bytes());
        self.change(Change::CreateKey { key, digest }).await;
        self.digests.push(digest);
        let (mut key, _) = new_key(org, user, "session quota");
        key.session_quota_key = true;
        let digest = session_quota_digest(user);
        self.change(Change::CreateKey { key, digest }).await;
        self.digests.push(digest);
        self.take(&digest, 6).await;
    }

    /// Creates federation rules of a service, and management tokens, one of them revoked.
    pub(super) async fn programs(&self, org: &Org, admin: UserId) {
        let service = User { responsible: Some(admin), ..new_user(org.id, "pipeline") };
        self.change(Change::CreateUser(service.clone())).await;
        for name in ["release", "deploy"] {
            let rule = Box::new(new_rule(&service, name));
            self.change(Change::FederationRule(RuleChange::Create(rule))).await;
        }
        let of_operator = new_token("of the operator");
        let of_admin = ManagementToken { org: Some(org.id), admin: Some(admin), ..new_token("of an admin") };
        let revoked = new_token("revoked");
        for token in [of_operator, of_admin, revoked.clone()] {
            self.change(Change::CreateToken(Box::new(token))).await;
        }
        self.change(Change::RevokeToken { token: revoked.id, at: self.now }).await;
    }

    /// Creates an organization with many keys of two users, each key used once.
    pub(super) async fn many(&mut self, name: &str, count: usize) {
        let org = self.org(name).await;
        let users = [self.user(&org, "one@example.com").await, self.user(&org, "two@example.com").await];
        let keys: Vec<_> =
            (0..count).map(|number| new_key(&org, users[number % 2], &format!("key {number}"))).collect();
        let made =
            keys.iter().map(|(key, digest)| self.change(Change::CreateKey { key: key.clone(), digest: *digest }));
        futures_util::future::join_all(made).await;
        for (_, digest) in keys {
            self.take(&digest, 1).await;
            self.digests.push(digest);
        }
    }
}
