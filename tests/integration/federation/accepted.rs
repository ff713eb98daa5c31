//! Tokens that are accepted, and their keys.

use control::management;
use control::oidc::{AuthorizationResponse, Prompt, Provider};
use domain::clock;
use domain::key::policy::KeyPolicy;
use journal::audit::{Filter, Outcome, Reader, RecordKind};
use serde_json::json;

use super::{ACCESS_TOKEN, ORG, SUBJECT, TARGET, World, exchange, exchange_at, grant, issued, refusal, start_gateway};
use crate::oidc::browser::Browser;
use crate::oidc::certified_provider::Real;
use crate::oidc::signing::SigningKey;
use crate::support::gateway::OPERATOR;
use crate::support::redis::Redis;
use crate::support::{Client, eventually};

const REDIRECT: &str = "http://127.0.0.1:1/callback";

#[test]
fn token_gives_one_key_that_works_until_it_ends_embedded() {
    token_gives_one_key(&World::embedded());
}

#[test]
fn token_gives_one_key_that_works_until_it_ends_on_redis() {
    token_gives_one_key(&World::with(Some(Redis::start()), ""));
}

fn token_gives_one_key(world: &World) {
    let before = clock::now();
    let token = world.token();
    let response = world.exchange(&token);
    let body = response.json();
    assert_eq!((response.status, response.header("cache-control")), (200, Some("no-store")), "{body}");
    assert_eq!(response.header("content-type"), Some("application/json"));
    assert_eq!((&body["token_type"], &body["issued_token_type"]), (&json!("Bearer"), &json!(ACCESS_TOKEN)));
    assert_eq!((&body["expires_in"], &body["scope"]), (&json!(600), &json!("queries:read")));
    let key = issued(&response);
    let mut client = Client::connect(world.gateway.address);
    assert_eq!(client.get("/reads", &key).status, 200);
    assert_eq!(client.get("/writes", &key).status, 403, "the service may, the rule may not");
    assert_eq!(refusal(&world.exchange(&token)), grant("token_replayed"));

    let [shown] = &world.keys()[..] else { panic!("not one key") };
    let KeyPolicy { expires: Some(expires), tags, .. } = &shown.policy else { panic!("it never ends") };
    let lifetime = expires.since(before);
    assert!((600_000_000..660_000_000).contains(&lifetime), "{lifetime}");
    assert_eq!((&*tags["rule"], &*tags["sub"], tags["issuer"] == world.ci.issuer()), ("deploy", SUBJECT, true));
    assert_eq!(tags["jti"].len(), 36);

    // Ends it now, as its time would.
    let policy = control::management::PolicyUpdate { expires: Some(Some(clock::now())), ..Default::default() };
    world.gateway.set_policy(shown.id, policy);
    assert_eq!(client.get("/reads", &key).status, 401, "the key has ended");
}

#[test]
fn scope_narrows_the_permissions() {
    let world = World::embedded();
    let both = ["queries:read", "queries:write"].map(|name| name.parse().unwrap()).to_vec();
    let rule = control::management::NewFederationRule { name: "both".into(), permissions: both, ..world.rule() };
    world.create_rule(rule);
    let response = exchange(&world.gateway, "acme/both", &world.token(), &[("scope", "queries:write")]);
    assert_eq!(response.json()["scope"], "queries:write");
    let key = issued(&response);
    let mut client = Client::connect(world.gateway.address);
    assert_eq!((client.get("/writes", &key).status, client.get("/reads", &key).status), (200, 403));
    let beyond = exchange(&world.gateway, TARGET, &world.token(), &[("scope", "queries:write")]);
    assert_eq!(refusal(&beyond), (400, "invalid_scope".into(), "scope_exceeded".into()));
    // The organization by its id names the same rule.
    let org = world.gateway.perform(async |to, now| management::show_org(to, OPERATOR, ORG, now).await);
    issued(&exchange(&world.gateway, &format!("{}/deploy", org.id), &world.token(), &[]));
}

#[test]
fn key_set_is_read_again_for_an_unknown_key_and_not_for_each() {
    let world = World::embedded();
    issued(&world.exchange(&world.token()));
    assert_eq!(world.ci.asked("/jwks"), 1);
    // The CI rotates its keys.
    world.ci.behave(|now| now.keys = vec![SigningKey::generate()]);
    issued(&world.exchange(&world.token()));
    assert_eq!(world.ci.asked("/jwks"), 2);
    let hidden = SigningKey::common();
    for _ in 0..5 {
        assert_eq!(refusal(&world.exchange(&hidden.signed(&world.claims()))), grant("token_refused"));
    }
    assert_eq!(world.ci.asked("/jwks"), 2, "an unknown key makes it ask once in ten seconds");
    issued(&world.exchange(&world.token()));
}

#[test]
fn two_gateways_make_one_key_of_a_token() {
    let world = World::with(Some(Redis::start()), "");
    let other = start_gateway(&world.upstream, world.redis.as_ref(), "");
    for _ in 0..5 {
        let token = &world.token();
        let responses: Vec<_> = std::thread::scope(|scope| {
            let gateways = [world.gateway.address, other.address].into_iter().cycle().take(8);
            let senders: Vec<_> =
                gateways.map(|gateway| scope.spawn(move || exchange_at(gateway, TARGET, token, &[]))).collect();
            senders.into_iter().map(|sender| sender.join().unwrap()).collect()
        });
        let (made, refused): (Vec<_>, Vec<_>) = responses.iter().partition(|response| response.status == 200);
        assert_eq!(made.len(), 1);
        assert!(refused.into_iter().all(|response| refusal(response) == grant("token_replayed")));
    }
    assert_eq!(world.keys().len(), 5);
}

#[test]
fn creation_is_recorded_and_the_token_nowhere() {
    let world = World::embedded();
    let token = world.token();
    let key = issued(&world.exchange(&token));
    refusal(&world.exchange(&token));
    let audit = world.gateway.dir.path().join("audit");
    let mut changes = Vec::new();
    eventually("both exchanges are recorded", || {
        changes = Reader::open(&audit).unwrap().list(&Filter::default(), 1000, None).unwrap().records;
        changes.retain(|record| record.kind() == RecordKind::Change && record.action == "key.create");
        changes.len() == 2 && changes.iter().all(|record| record.outcome != Outcome::InProgress)
    });
    let [replay, creation] = &changes[..] else { panic!("not two") };
    assert_eq!(creation.actor.as_deref(), Some("federation:deploy"));
    assert_eq!((creation.outcome, replay.outcome), (Outcome::Completed, Outcome::ClientError));
    assert_eq!(creation.path, format!("key.create/{SUBJECT}"));
    assert_eq!(creation.ip, Some([127, 0, 0, 1].into()));
    let [shown] = &world.keys()[..] else { panic!("not one key") };
    assert_eq!(creation.key_id, Some(shown.id));

    let secrets = [token.rsplit('.').next().unwrap(), token.split('.').nth(1).unwrap(), &key];
    // All but the admin socket.
    for file in crate::support::files::files(world.gateway.dir.path()).into_iter().filter(|file| file.is_file()) {
        let content = std::fs::read(&file).unwrap();
        let has = |secret: &str| content.windows(secret.len()).any(|window| window == secret.as_bytes());
        assert!(!secrets.into_iter().any(has), "{}", file.display());
    }
}

/// A token of the certified provider, which has no `jti`: what is signed is its identity.
#[tokio::test(flavor = "multi_thread")]
async fn token_of_the_certified_provider_is_exchanged_once() {
    let real = Real::start(&[REDIRECT], json!({"deployer": {"email": "ci@example.com", "email_verified": true}}));
    let provider = Provider::new(real.settings()).unwrap();
    let begun = provider.begin_sign_in(REDIRECT, Prompt::AsNeeded, clock::now()).await.unwrap();
    let back = Browser::new().sign_in(&begun.url, "deployer");
    let callback = AuthorizationResponse::parse(back.query().unwrap()).unwrap();
    let identity = provider.finish_sign_in(&begun.pending, REDIRECT, &callback, clock::now()).await.unwrap();
    let token = identity.id_token.expose().to_owned();
    assert!(!identity.claims.contains_key("jti"));

    let issuer = real.issuer().to_owned();
    tokio::task::spawn_blocking(move || {
        let world = World::embedded();
        let claims = [("sub".to_owned(), "deployer".parse().unwrap())].into();
        let rule = control::management::NewFederationRule {
            name: "real".into(),
            issuer,
            audience: "keygate".into(),
            audiences: Vec::new(),
            claims,
            ..world.rule()
        };
        world.create_rule(rule);
        let key = issued(&exchange(&world.gateway, "acme/real", &token, &[]));
        assert_eq!(Client::connect(world.gateway.address).get("/reads", &key).status, 200);
        assert_eq!(refusal(&exchange(&world.gateway, "acme/real", &token, &[])), grant("token_replayed"));
    })
    .await
    .unwrap();
    drop(real);
}
