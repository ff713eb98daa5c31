//! `keygate doctor` and identity providers, and issuers of federation rules.

use serde_json::{Value, json};

use crate::leaks::GitHub;
use crate::oidc::hostile::{Behaviour, Hostile, Raw};
use crate::support::{Setup, free_address};

/// Severity, subject and text of each finding of the check.
fn findings(setup: &Setup) -> Vec<(String, String, String)> {
    let output = setup.keygate(&["doctor", "--json", "--only", "providers"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    let text = |item: &Value, name: &str| item[name].as_str().unwrap().to_owned();
    let items = report["items"].as_array().unwrap().iter();
    items.map(|item| (text(item, "severity"), text(item, "subject"), text(item, "found"))).collect()
}

fn set_up(provider: &Hostile, more: &str) -> Setup {
    let issuer = provider.issuer();
    let provider = format!("{{ name: corp, issuer: '{issuer}', client_id: keygate }}");
    Setup::new(
        free_address(),
        &format!("session: {{ origin: 'https://gateway.test', providers: [{provider}] }}\n{more}"),
    )
}

#[test]
fn doctor_says_what_is_wrong_with_a_provider() {
    let mut provider = Hostile::start();
    let setup = set_up(&provider, "");
    let issuer = provider.issuer();
    let slash = format!("{issuer}/");
    let key = |size: usize| json!({"kty": "RSA", "kid": "old", "n": "_".repeat(size), "e": "AQAB"});
    let keys = move |keys: Value| Raw::Body(json!({ "keys": keys }).to_string().into_bytes());
    type Change = Box<dyn FnOnce(&mut Behaviour)>;
    let cases: Vec<(Change, &str, String)> = vec![
        (Box::new(|_| {}), "ok", "1 keys are readable".into()),
        (
            Box::new(move |now| now.metadata = Box::new(move |document| document["issuer"] = json!(slash))),
            "error",
            format!("{issuer} is configured, the document has {issuer}/"),
        ),
        (
            Box::new(move |now| now.answer_with("/jwks", keys(json!([key(172)])))),
            "warning",
            "RSA key of 1032 bits".into(),
        ),
        (Box::new(|now| now.answer_with("/jwks", Raw::Status(404))), "error", "the response has status 404".into()),
        (
            Box::new(|now| now.answer_with("/.well-known/openid-configuration", Raw::Body(b"<html>".to_vec()))),
            "error",
            "not the JSON".into(),
        ),
        (
            Box::new(|now| {
                let document = b"HTTP/1.1 200 OK\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\nContent-Length: 2\r\n\r\n{}";
                now.answer_with("/.well-known/openid-configuration", Raw::Bytes(document.to_vec()));
            }),
            "error",
            "a member is missing".into(),
        ),
    ];
    for (change, severity, found) in cases {
        provider.behave(|now| {
            *now = Behaviour::good();
            change(now);
        });
        let findings = findings(&setup);
        let (is, subject, text) = &findings[0];
        assert_eq!((is.as_str(), subject), (severity, &format!("provider `corp`, {issuer}")), "{findings:?}");
        assert!(text.contains(&found), "{found}: {text}");
    }
    provider.go_away();
    let (severity, _, text) = &findings(&setup)[0];
    assert!(severity == "error" && text.contains("discovery document cannot be reached"), "{text}");
}

#[test]
fn doctor_asks_the_issuers_of_federation_rules() {
    let (provider, ci) = (Hostile::start(), Hostile::start());
    let setup = set_up(&provider, "federation: { path: /v1/token }\n");
    let _gateway = setup.start();
    let ok = |arguments: &[&str]| assert!(setup.keygate(arguments).status.success(), "{arguments:?}");
    ok(&["org", "create", "bolt"]);
    ok(&["user", "create", "--org", "bolt", "ada@example.com"]);
    ok(&[
        "user",
        "create",
        "--org",
        "bolt",
        "--service",
        "ci",
        "--responsible",
        "ada@example.com",
        "--permission",
        "a",
    ]);
    let rule = ["federation", "create", "deploy", "--org", "bolt", "--user", "ci", "--issuer", &ci.issuer()];
    ok(&[&rule[..], &["--audience", "a", "--claim", "repository=acme/app", "--permission", "a"]].concat());
    let subjects = |severity: &str| {
        let found = findings(&setup).into_iter().filter(|(is, ..)| is == severity);
        found.map(|(_, subject, _)| subject).collect::<Vec<_>>()
    };
    let of_rule = format!("issuer of rules, {}", ci.issuer());
    assert_eq!(subjects("ok"), [format!("provider `corp`, {}", provider.issuer()), of_rule.clone()]);
    ci.behave(|now| now.answer_with("/jwks", Raw::Status(500)));
    assert_eq!(subjects("error"), [of_rule]);
}

#[test]
fn doctor_reads_the_keys_of_github() {
    let github = GitHub::start();
    let setup = Setup::new(free_address(), &github.block("disable"));
    let subject = format!("reports of leaked keys, {}", github.keys_address());
    let text = "1 keys are readable";
    assert_eq!(findings(&setup), [("ok".into(), subject.clone(), text.into())]);
    github.lose_keys();
    let (severity, found, text) = findings(&setup).remove(0);
    assert_eq!((severity.as_str(), found), ("error", subject));
    assert!(text.contains("key set cannot be reached"), "{text}");
}
