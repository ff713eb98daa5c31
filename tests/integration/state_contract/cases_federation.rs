//! Federation rules: each token is exchanged once by a rule, within its rate, and only while the rule is as it was
//! read.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use domain::clock::{self, Micros};
use domain::identity::UserId;
use domain::key::policy::{Field, KeyPolicy, PolicyPatch};
use domain::refusal::Refusal;
use domain::session::{Token, TokenDigest};
use futures_util::future::join_all;
use state::{
    ADMIN, Bounds, Change, ChangeError, FederationExchange, FederationRule, Key, PolicyScope, RuleChange, State, User,
};

use super::fixture::{Fixture, HeldKey, admit, new_fixture, new_key, new_user, permission, refuse, revoke};
use super::runtime::block_on;

const HOUR: Duration = Duration::from_secs(3600);

/// A service of the organization.
async fn service(state: &State, fixture: &Fixture) -> UserId {
    let service =
        User { responsible: Some(fixture.user), ..new_user(fixture.org, &format!("ci {}", UserId::generate())) };
    let id = service.id;
    state.change(Change::CreateUser(service)).await.unwrap();
    id
}

fn rule_of(fixture: &Fixture, user: UserId, name: &str) -> FederationRule {
    FederationRule {
        name: name.into(),
        org: fixture.org,
        user,
        issuer: "https://ci.example.com".into(),
        audience: "https://api.example.com".into(),
        audiences: Vec::new(),
        claims: [("sub".to_owned(), "repo:acme/*:ref:refs/heads/main".parse().unwrap())].into(),
        permissions: vec![permission("queries:read")],
        max: HOUR,
        tags: BTreeMap::new(),
        created: clock::now(),
        created_by: None,
    }
}

async fn create(state: &State, rule: &FederationRule) -> Result<(), ChangeError> {
    state.change(Change::FederationRule(RuleChange::Create(Box::new(rule.clone())))).await
}

async fn remove(state: &State, rule: &FederationRule) -> Result<(), ChangeError> {
    state.change(Change::FederationRule(RuleChange::Remove { org: rule.org, name: rule.name.clone() })).await
}

/// A rule of a new organization, for a service of it.
pub(super) async fn new_rule(state: &State) -> (Fixture, FederationRule) {
    let fixture = new_fixture(state).await;
    let rule = rule_of(&fixture, service(state, &fixture).await, "deploy");
    create(state, &rule).await.unwrap();
    (fixture, rule)
}

pub(super) fn token() -> TokenDigest {
    Token::generate().unwrap().digest()
}

/// Exchanges a token for a key that ends at this time.
pub(super) async fn exchange_until(
    state: &State,
    fixture: &Fixture,
    rule: &FederationRule,
    token: TokenDigest,
    expires: Micros,
) -> Result<HeldKey, ChangeError> {
    let policy = KeyPolicy { expires: Some(expires), ..KeyPolicy::default() };
    let (key, digest) = new_key(fixture.tag, fixture.org, rule.user);
    let id = key.id;
    let change = Box::new(Change::CreateKey { key: Key { policy: policy.boxed(), ..key }, digest });
    let exchange = Box::new(FederationExchange { rule: rule.clone(), token, at: clock::now(), expires });
    let change = Change::ByFederation { exchange, change };
    state.change(change.by("federation:deploy")).await.map(|()| HeldKey { id, digest })
}

async fn exchange(
    state: &State,
    fixture: &Fixture,
    rule: &FederationRule,
    token: TokenDigest,
) -> Result<HeldKey, ChangeError> {
    exchange_until(state, fixture, rule, token, clock::now().after(HOUR)).await
}

pub(super) async fn rules_are_of_services_and_found_by_name(state: &State) {
    let (fixture, rule) = new_rule(state).await;
    let other = FederationRule { name: "a-first".into(), ..rule.clone() };
    create(state, &other).await.unwrap();
    assert_eq!(state.federation_rule(fixture.org, "deploy").await.unwrap(), Some(rule.clone()));
    assert_eq!(state.federation_rules(fixture.org).await.unwrap(), [other.clone(), rule.clone()]);
    let again = create(state, &FederationRule { max: 2 * HOUR, ..rule.clone() }).await;
    assert!(matches!(again, Err(ChangeError::Taken("name"))), "{again:?}");
    let elsewhere = new_fixture(state).await;
    assert_eq!(state.federation_rules(elsewhere.org).await.unwrap(), []);
    assert_eq!(state.federation_rule(elsewhere.org, "deploy").await.unwrap(), None);
    let person = create(state, &rule_of(&fixture, fixture.user, "of-a-person")).await;
    assert!(matches!(person, Err(ChangeError::NotService(user)) if user == fixture.user), "{person:?}");
    let foreign = create(state, &rule_of(&elsewhere, rule.user, "foreign")).await;
    assert!(matches!(foreign, Err(ChangeError::NoUser(user)) if user == rule.user), "{foreign:?}");

    remove(state, &rule).await.unwrap();
    assert_eq!(state.federation_rules(fixture.org).await.unwrap(), [other]);
    let gone = remove(state, &rule).await;
    assert!(matches!(gone, Err(ChangeError::NoFederationRule(_))), "{gone:?}");
}

pub(super) async fn token_is_exchanged_once_by_a_rule(state: &State) {
    let (fixture, rule) = new_rule(state).await;
    for _ in 0..5 {
        let token = token();
        let made: Vec<HeldKey> = std::thread::scope(|scope| {
            let exchangers: Vec<_> =
                (0..4).map(|_| scope.spawn(|| block_on(exchange(state, &fixture, &rule, token)))).collect();
            let results = exchangers.into_iter().map(|exchanger| exchanger.join().unwrap());
            let refused = |error: &ChangeError| assert!(matches!(error, ChangeError::TokenReplayed), "{error:?}");
            results.filter_map(|result| result.inspect_err(refused).ok()).collect()
        });
        assert_eq!(made.len(), 1);
        admit(state, &made[0], clock::now()).await;
        // Whatever has become of its key.
        revoke(state, &made[0]).await;
        let again = exchange(state, &fixture, &rule, token).await;
        assert!(matches!(again, Err(ChangeError::TokenReplayed)), "{again:?}");
    }
    let other = FederationRule { name: "other".into(), ..rule.clone() };
    create(state, &other).await.unwrap();
    let shared = token();
    exchange(state, &fixture, &rule, shared).await.unwrap();
    exchange(state, &fixture, &other, shared).await.expect("by another rule it is another exchange");
    assert_eq!(state.keys(fixture.org).await.unwrap().len(), 7, "what was refused has left nothing behind");
}

pub(super) async fn exchange_by_a_rule_that_was_changed_is_refused(state: &State) {
    let (fixture, rule) = new_rule(state).await;
    remove(state, &rule).await.unwrap();
    let token = token();
    let removed = exchange(state, &fixture, &rule, token).await;
    assert!(matches!(removed, Err(ChangeError::NoFederationRule(_))), "{removed:?}");
    // Another rule of the same name is told from the removed one by its time.
    let created = rule.created.after(Duration::from_micros(1));
    let narrower = FederationRule { permissions: vec![permission("queries:list")], created, ..rule.clone() };
    create(state, &narrower).await.unwrap();
    let before = exchange(state, &fixture, &rule, token).await;
    assert!(matches!(before, Err(ChangeError::NoFederationRule(_))), "{before:?}");
    assert_eq!(state.keys(fixture.org).await.unwrap().len(), 0);
    exchange(state, &fixture, &narrower, token).await.expect("a refused exchange uses no token up");
}

pub(super) async fn exchanges_of_a_rule_are_bounded(state: &State) {
    let (fixture, rule) = new_rule(state).await;
    let begun = Instant::now();
    let results = join_all((0..80).map(|_| exchange(state, &fixture, &rule, token()))).await;
    let refused = |error: &ChangeError| assert!(matches!(error, ChangeError::ExchangeLimited { .. }), "{error:?}");
    let made = results.into_iter().filter_map(|result| result.inspect_err(refused).ok()).count();
    // One more each second.
    let most = 60 + usize::try_from(begun.elapsed().as_secs()).unwrap() + 1;
    assert!((60..=most).contains(&made), "{made} of at most {most}");
    let other = FederationRule { name: "other".into(), ..rule };
    create(state, &other).await.unwrap();
    exchange(state, &fixture, &other, token()).await.expect("another rule has a bucket of its own");
}

pub(super) async fn key_of_a_rule_leaves_the_lists_an_hour_after_its_end(state: &State) {
    state.set_bounds(Bounds { keys_per_user: 2, ..Bounds::DEFAULT });
    let (fixture, rule) = new_rule(state).await;
    let now = clock::now();
    let end = now.before(HOUR + Duration::from_secs(1));
    let over = exchange_until(state, &fixture, &rule, token(), end).await.unwrap();
    let put_off = exchange_until(state, &fixture, &rule, token(), end).await.unwrap();
    let ended = exchange_until(state, &fixture, &rule, token(), now.before(HOUR / 2)).await.unwrap();
    let patch = PolicyPatch { expires: Field::Set(now.after(HOUR)), ..PolicyPatch::default() };
    let later = Change::set_key_policy(put_off.id, Box::new(patch), PolicyScope::Operator);
    state.change(later).await.unwrap();
    // Looks for keys whose time is over.
    state.set_bounds(Bounds { keys_per_user: 2, ..Bounds::DEFAULT });
    let other = fixture.key(state).await;
    let listed: Vec<_> = state.keys(fixture.org).await.unwrap().iter().map(|key| key.id).collect();
    assert_eq!(listed, [put_off.id, ended.id, other.id]);
    admit(state, &put_off, now).await;
    assert_eq!(refuse(state, &ended, now).await, Refusal::KeyExpired);
    let refusal = refuse(state, &over, now).await;
    assert!(matches!(refusal, Refusal::KeyExpired | Refusal::Revoked), "{refusal:?}");
    assert_eq!(state.key_of(&over.digest).await.unwrap(), Some(over.id));

    // Keys of rules are not among those that people create for the service.
    state.change(Change::permit_user(fixture.org, fixture.user, vec![permission(ADMIN)], None)).await.unwrap();
    let (key, digest) = new_key(fixture.tag, fixture.org, rule.user);
    let change = Box::new(Change::CreateKey { key, digest });
    state.change(Change::ByPerson { person: fixture.user, change }).await.unwrap();
}
