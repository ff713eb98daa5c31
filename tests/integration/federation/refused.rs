//! Tokens and requests that are refused: none leaves a key behind.

use control::management;
use serde_json::{Value, json};

use super::{AUDIENCE, GRANT, JWT, ORG, TARGET, World, exchange, grant, issued, refusal, send};
use crate::oidc::signing::{SigningKey, unsigned, with_shared_secret};
use crate::support::Client;
use crate::support::gateway::OPERATOR;
use crate::support::redis::Redis;
use crate::support::updates::suspension;

#[test]
fn token_that_is_not_as_the_rule_says_is_refused_embedded() {
    tokens_are_refused(&World::embedded());
}

#[test]
fn token_that_is_not_as_the_rule_says_is_refused_on_redis() {
    tokens_are_refused(&World::with(Some(Redis::start()), ""));
}

fn tokens_are_refused(world: &World) {
    let changed = |change: &dyn Fn(&mut Value)| {
        let mut claims = world.claims();
        change(&mut claims);
        world.sign(&claims)
    };
    let shift = |name: &'static str, seconds: i64| {
        changed(&|claims| claims[name] = json!(claims["iat"].as_i64().unwrap() + seconds))
    };
    let mut public = String::new();
    let mut id = String::new();
    world.ci.behave(|now| (public, id) = (now.keys[0].public_pem(), now.keys[0].id.clone()));
    let good = world.token();
    let (signed, signature) = good.rsplit_once('.').unwrap();
    let other = world.token();
    let refused = grant("token_refused");
    let target = (400, "invalid_target".to_owned(), "unknown_target".to_owned());
    for (what, token, expected) in [
        ("another issuer", changed(&|claims| claims["iss"] = json!("https://evil.example")), &target),
        ("no issuer", changed(&|claims| drop(claims.as_object_mut().unwrap().remove("iss"))), &refused),
        ("no token", "a.b.c".to_owned(), &refused),
        ("no segments", "token".to_owned(), &refused),
        ("another audience", changed(&|claims| claims["aud"] = json!("https://other.example")), &refused),
        ("another audience besides", changed(&|claims| claims["aud"] = json!([AUDIENCE, "other"])), &refused),
        ("no audience", changed(&|claims| claims["aud"] = json!([])), &refused),
        (
            "another owner",
            changed(&|claims| claims["sub"] = json!("repo:evil/app:ref:refs/heads/main")),
            &grant("claim_mismatch"),
        ),
        (
            "another branch",
            changed(&|claims| claims["sub"] = json!("repo:acme/app:ref:refs/heads/x")),
            &grant("claim_mismatch"),
        ),
        ("no subject", changed(&|claims| claims["sub"] = json!("")), &refused),
        ("too old", shift("iat", -11 * 60 - 10), &refused),
        ("expired", shift("exp", -70), &refused),
        ("from the future", shift("iat", 90), &refused),
        ("not yet valid", shift("nbf", 90), &refused),
        ("no time of issue", changed(&|claims| drop(claims.as_object_mut().unwrap().remove("iat"))), &refused),
        ("an id that is no text", changed(&|claims| claims["jti"] = json!(7)), &refused),
        ("not signed", unsigned(&world.claims()), &refused),
        ("HS256 with the public key", with_shared_secret(&public, &id, &world.claims()), &refused),
        ("a key that is not the CI's", SigningKey::common().signed(&world.claims()), &refused),
        ("another key of the same id", SigningKey::named(&id).signed(&world.claims()), &refused),
        ("the signature of another token", format!("{}.{signature}", other.rsplit_once('.').unwrap().0), &refused),
        ("no signature", format!("{signed}."), &refused),
    ] {
        assert_eq!(&refusal(&world.exchange(&token)), expected, "{what}");
    }
    assert_eq!(world.keys().len(), 0);
    issued(&world.exchange(&good));
    issued(&world.exchange(&shifted(world, -9 * 60)));
}

/// A token of some time ago that has not expired.
fn shifted(world: &World, seconds: i64) -> String {
    let mut claims = world.claims();
    claims["iat"] = json!(claims["iat"].as_i64().unwrap() + seconds);
    world.sign(&claims)
}

#[test]
fn all_claims_of_the_rule_have_to_match() {
    let world = World::embedded();
    let mut rule = world.rule();
    rule.name = "first-attempts".into();
    rule.claims.insert("run_attempt".into(), "1".parse().unwrap());
    world.create_rule(rule);
    let mut claims = world.claims();
    issued(&exchange(&world.gateway, "acme/first-attempts", &world.sign(&claims), &[]));
    claims["run_attempt"] = json!("2");
    claims["jti"] = json!("another");
    let again = exchange(&world.gateway, "acme/first-attempts", &world.sign(&claims), &[]);
    assert_eq!(refusal(&again), grant("claim_mismatch"));
    let description = again.json()["error_description"].as_str().unwrap().to_owned();
    assert!(description.contains("`run_attempt`") && !description.contains('2'), "{description}");
}

#[test]
fn further_audiences_of_a_rule_are_accepted_and_no_others() {
    let world = World::embedded();
    let audiences = vec!["project".to_owned()];
    let rule = control::management::NewFederationRule { name: "project".into(), audiences, ..world.rule() };
    assert_eq!(world.create_rule(rule).audiences, ["project"]);
    let present = |target: &str, audience: Value| {
        let mut claims = world.claims();
        claims["aud"] = audience;
        exchange(&world.gateway, target, &world.sign(&claims), &[])
    };
    issued(&present("acme/project", json!([AUDIENCE, "project"])));
    issued(&present("acme/project", json!(AUDIENCE)));
    for refused in [json!([AUDIENCE, "project", "other"]), json!(["project"]), json!([AUDIENCE, "Project"])] {
        assert_eq!(refusal(&present("acme/project", refused)), grant("token_refused"));
    }
    assert_eq!(refusal(&present(TARGET, json!([AUDIENCE, "project"]))), grant("token_refused"), "of another rule");
}

#[test]
fn removed_rule_gives_no_more_keys_and_takes_none_back() {
    let world = World::embedded();
    issued(&world.exchange(&world.token()));
    world.gateway.perform(async |to, now| management::remove_federation_rule(to, OPERATOR, ORG, "deploy", now).await);
    assert_eq!(refusal(&world.exchange(&world.token())).1, "invalid_target");
    assert_eq!(world.keys().len(), 1, "its keys stay until they end");
}

#[test]
fn rule_that_is_not_there_and_a_token_of_another_issuer_look_the_same() {
    let world = World::embedded();
    let mut foreign = world.claims();
    foreign["iss"] = json!("https://evil.example");
    let mut answers = Vec::new();
    for (target, token) in [
        ("acme/nothing", world.token()),
        ("nobody/deploy", world.token()),
        ("deploy", world.token()),
        ("acme/", world.token()),
        ("/deploy", world.token()),
        (TARGET, world.sign(&foreign)),
    ] {
        let response = exchange(&world.gateway, target, &token, &[]);
        let (status, error, code) = refusal(&response);
        answers.push((status, error, code, response.json()["error_description"].clone()));
    }
    assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
    assert_eq!(answers[0].1, "invalid_target");
}

#[test]
fn suspended_service_or_organization_gets_no_key() {
    let world = World::embedded();
    let refused = grant("service_suspended");
    let gateway = &world.gateway;
    gateway.suspend_user_of(ORG, "ci");
    assert_eq!(refusal(&world.exchange(&world.token())), refused);
    gateway.resume_user_of(ORG, "ci");
    gateway.perform(async |to, now| management::update_org(to, OPERATOR, ORG, suspension(true), now).await);
    assert_eq!(refusal(&world.exchange(&world.token())), refused);
    gateway.perform(async |to, now| management::update_org(to, OPERATOR, ORG, suspension(false), now).await);
    issued(&world.exchange(&world.token()));
    gateway.remove_user_of(ORG, "ci");
    assert_eq!(refusal(&world.exchange(&world.token())), refused);
}

#[test]
fn request_that_is_no_exchange_is_refused() {
    let world = World::embedded();
    let token = world.token();
    let usual = format!("grant_type={GRANT}&subject_token_type={JWT}&audience={TARGET}&subject_token={token}");
    for (form, error) in [
        (String::new(), "invalid_request"),
        (usual.replace(GRANT, "client_credentials"), "unsupported_grant_type"),
        (usual.replace(JWT, "urn:ietf:params:oauth:token-type:saml2"), "invalid_request"),
        (format!("{usual}&subject_token={token}"), "invalid_request"),
        (format!("{usual}&actor_token={token}"), "invalid_request"),
        (format!("{usual}&scope=NONE"), "invalid_scope"),
        ("x".repeat(70_000), "invalid_request"),
    ] {
        let (status, found, _) = refusal(&send(world.gateway.address, &form));
        assert_eq!((status, &*found), (400, error), "{}", &form[..form.len().min(200)]);
    }
    let mut client = Client::connect(world.gateway.address);
    let json = client.request("POST", "/v1/token", "", &[("Content-Type", "application/json")], b"{}");
    assert_eq!(refusal(&json), (415, "invalid_request".into(), "unsupported_media_type".into()));
    let get = client.get("/v1/token", "");
    assert_eq!(refusal(&get), (405, "invalid_request".into(), "method_not_allowed".into()));
    assert_eq!(get.header("allow"), Some("POST"));
    assert_eq!(client.request("HEAD", "/v1/token", "", &[], b"").status, 405);
    assert_eq!(world.keys().len(), 0);
    issued(&send(world.gateway.address, &usual));
}

#[test]
fn ci_whose_keys_cannot_be_read_is_unavailable() {
    let mut world = World::embedded();
    let token = world.token();
    world.ci.go_away();
    let refused = world.exchange(&token);
    assert_eq!(refusal(&refused), (503, "temporarily_unavailable".into(), "issuer_unavailable".into()));
    world.ci.come_back();
    issued(&world.exchange(&token));
}
