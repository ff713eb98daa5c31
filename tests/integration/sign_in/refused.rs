//! Bad responses of a provider: each is refused with the right status and an error page, without a session, and is
//! logged with its reason.

use domain::clock;
use serde_json::{Value, json};

use super::fixture::{self, PERSON, given, hostile};
use super::gateway_browser::{GatewayBrowser, path_here, text};
use super::process::GatewayProcess;
use crate::oidc::hostile::{Behaviour, Hostile, Raw, SECRET, Signing};
use crate::oidc::signing::SigningKey;
use crate::support::Upstream;

/// A change to the provider's behaviour, with the status and reason of the refusal.
type Bad = (&'static str, Box<dyn Fn(&mut Behaviour)>, u16, &'static str);

/// Starts a gateway with these providers, by name, and one user whom they sign in.
fn start(upstream: &Upstream, providers: &[(&str, &Hostile)]) -> GatewayProcess {
    let providers: Vec<String> =
        providers.iter().map(|(name, provider)| hostile(name, provider, "only: all")).collect();
    let gateway = GatewayProcess::start(upstream, &fixture::session(&providers, ""));
    gateway.keygate(&["org", "create", "acme"]);
    gateway.keygate(&["user", "create", "--org", "acme", PERSON]);
    gateway
}

/// Checks that a callback from a provider is refused with this status and reason.
fn assert_refused(gateway: &GatewayProcess, provider: &str, what: &str, status: u16, reason: &str) {
    let mut visitor = GatewayBrowser::at(gateway.address);
    let back = visitor.begin_and_come_back(provider);
    let answer = visitor.arrive(&back);
    assert_eq!(answer.status, status, "{what}: {}", text(&answer));
    let id = fixture::assert_refused(&answer, status);
    let line = gateway.refusal(&id);
    for part in [format!("reason=\"{reason}\""), format!("provider=\"{provider}\""), "cause=".into()] {
        assert!(line.contains(&part), "{what}: no {part} in {line}");
    }
    assert!(reason != "audience" || line.contains("another"), "the audiences are not named: {line}");
    for secret in ["eyJ", "access-", SECRET] {
        assert!(!line.contains(secret) && !text(&answer).contains(secret), "{what}: {secret}");
    }
}

fn claim(name: &'static str, value: Value) -> Box<dyn Fn(&mut Behaviour)> {
    Box::new(move |now| {
        let value = value.clone();
        now.claims = Box::new(move |claims| claims[name] = value.clone());
    })
}

fn signing(how: fn() -> Signing) -> Box<dyn Fn(&mut Behaviour)> {
    Box::new(move |now| now.signing = how())
}

fn raw(path: &'static str, how: fn() -> Raw) -> Box<dyn Fn(&mut Behaviour)> {
    Box::new(move |now| now.answer_with(path, how()))
}

fn response(change: fn(&mut Vec<(String, String)>)) -> Box<dyn Fn(&mut Behaviour)> {
    Box::new(move |now| now.response = Box::new(change))
}

/// Resets the behaviour except the keys, which the gateway has cached and does not fetch again at once.
fn behave_well(now: &mut Behaviour) {
    let keys = std::mem::take(&mut now.keys);
    *now = Behaviour::good();
    now.keys = keys;
}

/// Errors in tokens and responses.
fn bad() -> Vec<Bad> {
    let now = i64::try_from(clock::now().0 / 1_000_000).unwrap();
    vec![
        ("another audience", claim("aud", json!("another client")), 502, "audience"),
        ("two audiences", claim("aud", json!(["client 1", "another"])), 502, "audience"),
        ("another issuer", claim("iss", json!("https://other.example")), 502, "token_issuer"),
        ("another nonce", claim("nonce", json!("another sign-in's")), 502, "nonce"),
        ("no nonce", claim("nonce", Value::Null), 502, "nonce"),
        ("expired", claim("exp", json!(now - 3600)), 502, "expired"),
        ("from the future", claim("iat", json!(now + 3600)), 502, "not_yet"),
        ("no subject", claim("sub", json!("")), 502, "subject"),
        ("another access token's", claim("at_hash", json!("AAAAAAAAAAAAAAAAAAAAAA")), 502, "access_token_hash"),
        ("an unverified address", claim("email_verified", json!(false)), 403, "unverified_email"),
        ("no address", claim("email", Value::Null), 403, "no_email"),
        ("a stranger's address", claim("email", json!("stranger@example.com")), 403, "no_membership"),
        ("no signature", signing(|| Signing::None), 502, "unsigned"),
        ("signed with a shared secret", signing(|| Signing::Shared(SECRET.into())), 502, "algorithm"),
        ("an unknown key", signing(|| Signing::Hidden(SigningKey::generate())), 502, "unknown_key"),
        ("a bad signature", signing(|| Signing::Broken), 502, "signature"),
        ("no token", raw("/token", || Raw::Body(b"{}".to_vec())), 502, "answer_invalid"),
        ("garbage", raw("/token", || Raw::Bytes(b"SSH-2.0-OpenSSH_9.2\r\n".to_vec())), 502, "answer_invalid"),
        ("a page", raw("/token", || Raw::Body(b"<html>".to_vec())), 502, "answer_invalid"),
        ("a server error", raw("/token", || Raw::Status(500)), 503, "unreachable"),
        ("a refused code", raw("/token", || Raw::Status(400)), 502, "answer_invalid"),
        ("a response without issuer", response(|pairs| pairs.truncate(2)), 400, "response_issuer"),
        (
            "a response of another issuer",
            response(|pairs| pairs[2].1 = "https://other.example".into()),
            400,
            "response_issuer",
        ),
        ("a made-up code", response(|pairs| pairs[0].1 = "made up".into()), 400, "code_refused"),
        ("no code", response(|pairs| drop(pairs.remove(0))), 400, "callback"),
        ("declined", response(|pairs| pairs[0] = ("error".into(), "access_denied".into())), 403, "denied_by_user"),
        ("not now", response(|pairs| pairs[0] = ("error".into(), "server_error".into())), 503, "unavailable"),
        ("another error", response(|pairs| pairs[0] = ("error".into(), "<script>".into())), 502, "refused"),
    ]
}

#[test]
fn bad_provider_responses_have_an_error_page_and_a_log_line() {
    let (provider, upstream) = (Hostile::start(), Upstream::start());
    let gateway = start(&upstream, &[("corp", &provider)]);
    for (what, worsen, status, reason) in bad() {
        provider.behave(|now| {
            behave_well(now);
            worsen(now);
        });
        assert_refused(&gateway, "corp", what, status, reason);
    }
    provider.behave(behave_well);
    let mut visitor = GatewayBrowser::at(gateway.address);
    assert_eq!(visitor.sign_in("corp").status, 303, "a good response is accepted afterwards");
}

#[test]
fn userinfo_of_another_subject_is_refused() {
    let (provider, upstream) = (Hostile::start(), Upstream::start());
    let gateway = start(&upstream, &[("corp", &provider)]);
    provider.behave(|now| {
        now.claims = Box::new(|claims| drop(claims.as_object_mut().unwrap().remove("email")));
        now.userinfo = Box::new(|claims| claims["sub"] = json!("subject-2"));
    });
    assert_refused(&gateway, "corp", "userinfo of another", 502, "userinfo_subject");
    provider.behave(|now| now.userinfo = Box::new(|_| {}));
    assert_eq!(GatewayBrowser::at(gateway.address).sign_in("corp").status, 303);
}

#[test]
fn misconfigured_providers_are_refused() {
    let upstream = Upstream::start();
    let [other, garbage, mut away, good] = [(); 4].map(|()| Hostile::start());
    let gateway = start(&upstream, &[("other", &other), ("garbage", &garbage), ("away", &away), ("good", &good)]);
    other.behave(|now| now.metadata = Box::new(|metadata| metadata["issuer"] = json!("http://127.0.0.1:1")));
    garbage.behave(|now| now.answer_with("/.well-known/openid-configuration", Raw::Body(b"<html>".to_vec())));
    away.go_away();
    for (name, status, reason) in
        [("other", 502, "issuer_mismatch"), ("garbage", 502, "discovery_invalid"), ("away", 503, "unreachable")]
    {
        let mut visitor = GatewayBrowser::at(gateway.address);
        let answer = visitor.submit(&format!("/settings/sign-in/{name}"), &[]);
        let id = fixture::assert_refused(&answer, status);
        assert!(gateway.refusal(&id).contains(&format!("reason=\"{reason}\"")), "{name}");
        assert_eq!(answer.header("retry-after").is_some(), status == 503, "{name}");
        // Signing in by another provider still works.
        assert_eq!(visitor.sign_in("good").status, 303);
    }
    away.come_back();
    assert_eq!(GatewayBrowser::at(gateway.address).sign_in("away").status, 303, "the provider is asked again");
}

#[test]
fn provider_may_become_unavailable_and_change_its_keys_during_a_sign_in() {
    let (mut provider, upstream) = (Hostile::start(), Upstream::start());
    let gateway = start(&upstream, &[("corp", &provider)]);
    let mut visitor = GatewayBrowser::at(gateway.address);
    let back = visitor.begin_and_come_back("corp");
    provider.go_away();
    let answer = visitor.arrive(&back);
    let id = fixture::assert_refused(&answer, 503);
    assert!(gateway.refusal(&id).contains("reason=\"unreachable\""));
    provider.come_back();
    assert_eq!(visitor.sign_in("corp").status, 303, "the next sign-in works");

    let mut other = GatewayBrowser::at(gateway.address);
    let url = other.begin("corp", "");
    provider.behave(|now| now.keys = vec![SigningKey::generate()]);
    let back = other.elsewhere.get(&url).redirect().unwrap();
    let answer = other.arrive(&path_here(&back));
    assert!(answer.status == 303 && given(&answer).is_some(), "{}", text(&answer));
}
