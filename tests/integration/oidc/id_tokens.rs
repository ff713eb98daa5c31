//! ID tokens: each invalid one is refused, with a reason of its own.

use control::oidc::Prompt;
use domain::clock;
use serde_json::{Value, json};

use super::hostile::{Hostile, SECRET, SUBJECT, Signing};
use super::signing::SigningKey;
use super::{provider_at, refusal, settings_at, sign_in};

fn seconds() -> i64 {
    i64::try_from(clock::now().0 / 1_000_000).unwrap()
}

#[tokio::test]
async fn valid_token_is_accepted() {
    let hostile = Hostile::start();
    let provider = provider_at(&hostile);
    let person = sign_in(&provider).await.unwrap();
    assert_eq!((person.subject.as_str(), person.email.as_deref()), (SUBJECT, Some("person@example.com")));
    assert!(person.email_verified);
    // The ID token had all claims that are needed.
    assert_eq!((hostile.asked("/userinfo"), hostile.asked("/jwks")), (0, 1));
    sign_in(&provider).await.unwrap();
    assert_eq!((hostile.asked("/.well-known/openid-configuration"), hostile.asked("/jwks")), (1, 1));
}

#[tokio::test]
async fn wrong_claims_have_reasons_of_their_own() {
    let hostile = Hostile::start();
    let provider = provider_at(&hostile);
    let refused: [(&str, Value, &str); 28] = [
        ("aud", json!("another client"), "audience"),
        ("aud", json!(["client 1", "another client"]), "audience"),
        ("aud", json!([]), "audience"),
        ("aud", Value::Null, "malformed"),
        ("azp", json!("another client"), "authorized_party"),
        ("iss", json!("https://other.example"), "token_issuer"),
        ("iss", json!(hostile.issuer() + "/"), "token_issuer"),
        ("iss", json!("not a URL"), "token_issuer"),
        ("iss", json!(1), "malformed"),
        ("nonce", json!("another sign-in's"), "nonce"),
        ("nonce", Value::Null, "nonce"),
        ("nonce", json!(""), "nonce"),
        ("exp", json!(seconds() - 61), "expired"),
        ("exp", json!(0), "expired"),
        ("exp", json!(-1e300), "malformed"),
        ("exp", Value::Null, "malformed"),
        ("exp", json!("soon"), "malformed"),
        ("exp", json!(1e300), "malformed"),
        ("iat", json!(seconds() + 120), "not_yet"),
        ("iat", json!(8_000_000_000_000_i64), "not_yet"),
        ("iat", Value::Null, "malformed"),
        ("nbf", json!(seconds() + 120), "not_yet"),
        ("nbf", Value::Null, "malformed"),
        ("at_hash", json!("AAAAAAAAAAAAAAAAAAAAAA"), "access_token_hash"),
        ("sub", Value::Null, "malformed"),
        ("sub", json!(""), "subject"),
        ("sub", json!("s".repeat(256)), "subject"),
        ("sub", json!(1), "malformed"),
    ];
    for (name, value, reason) in refused {
        let what = format!("{name}: {value}");
        hostile.behave(|now| now.claims = Box::new(move |claims| claims[name] = value.clone()));
        assert_eq!(refusal(&provider).await, reason, "{what}");
    }
    // Times within the leeway, and optional claims that are absent, are accepted.
    let accepted: [(&str, Value); 5] = [
        ("exp", json!(seconds() - 30)),
        ("iat", json!(seconds() + 30)),
        ("aud", json!(["client 1"])),
        ("azp", json!("client 1")),
        ("at_hash", Value::Null),
    ];
    for (name, value) in accepted {
        let what = format!("{name}: {value}");
        hostile.behave(|now| now.claims = Box::new(move |claims| claims[name] = value.clone()));
        assert_eq!(
            sign_in(&provider).await.map(|person| person.subject).map_err(|e| e.in_full()),
            Ok(SUBJECT.into()),
            "{what}"
        );
    }
}

#[tokio::test]
async fn further_audiences_are_accepted_where_they_are_listed() {
    let hostile = Hostile::start();
    let settings = control::oidc::Settings { audiences: vec!["246361787010646019".into()], ..settings_at(&hostile) };
    let provider = control::oidc::Provider::new(settings).unwrap();
    let audience =
        |value: Value| hostile.behave(|now| now.claims = Box::new(move |claims| claims["aud"] = value.clone()));
    for accepted in
        [json!("client 1"), json!(["client 1", "246361787010646019"]), json!(["246361787010646019", "client 1"])]
    {
        audience(accepted.clone());
        assert_eq!(sign_in(&provider).await.map(drop).map_err(|error| error.in_full()), Ok(()), "{accepted}");
    }
    for (refused, named) in [
        (json!(["client 1", "246361787010646019", "evil \"client\"\n"]), "client 1, 246361787010646019, evil client"),
        (json!("246361787010646019"), "246361787010646019"),
        (json!(["client 1", "24636178701064601"]), "client 1, 24636178701064601"),
    ] {
        audience(refused.clone());
        let error = sign_in(&provider).await.unwrap_err();
        assert_eq!(error.reason(), "audience", "{refused}");
        assert!(error.in_full().ends_with(&format!(": {named}")), "{}", error.in_full());
    }
}

#[tokio::test]
async fn signature_must_be_the_providers() {
    let hostile = Hostile::start();
    let provider = provider_at(&hostile);
    let mut id = String::new();
    let mut pem = String::new();
    hostile.behave(|now| (id, pem) = (now.keys[0].id.clone(), now.keys[0].public_pem()));
    for (signing, reason) in [
        (Signing::None, "unsigned"),
        (Signing::Shared(SECRET.into()), "algorithm"),
        (Signing::Shared(pem), "algorithm"),
        (Signing::Hidden(SigningKey::named(&id)), "signature"),
        (Signing::Hidden(SigningKey::generate()), "unknown_key"),
        (Signing::Broken, "signature"),
    ] {
        hostile.behave(|now| now.signing = signing);
        assert_eq!(refusal(&provider).await, reason);
    }
    hostile.behave(|now| now.signing = Signing::Good);
    sign_in(&provider).await.unwrap();
}

#[tokio::test]
async fn key_set_is_not_read_for_every_bad_token() {
    let hostile = Hostile::start();
    let provider = provider_at(&hostile);
    hostile.behave(|now| now.signing = Signing::Hidden(SigningKey::generate()));
    for _ in 0..5 {
        assert_eq!(refusal(&provider).await, "unknown_key");
    }
    // Once for the first sign-in, and once because a key was unknown.
    assert_eq!(hostile.asked("/jwks"), 2);
}

#[tokio::test]
async fn key_rotation_during_a_sign_in_is_followed() {
    let hostile = Hostile::start();
    let provider = provider_at(&hostile);
    sign_in(&provider).await.unwrap();
    let begun = provider.begin_sign_in(super::REDIRECT, Prompt::AsNeeded, clock::now()).await.unwrap();
    let callback = super::come_back(&begun.url);
    hostile.behave(|now| now.keys = vec![SigningKey::generate()]);
    provider.finish_sign_in(&begun.pending, super::REDIRECT, &callback, clock::now()).await.unwrap();
    sign_in(&provider).await.unwrap();
    assert_eq!(hostile.asked("/jwks"), 2);
}

#[tokio::test]
async fn new_key_with_the_id_of_the_old_one_is_found() {
    let hostile = Hostile::start();
    let provider = provider_at(&hostile);
    sign_in(&provider).await.unwrap();
    hostile.behave(|now| now.keys = vec![SigningKey::named(&now.keys[0].id)]);
    sign_in(&provider).await.unwrap();
}

#[tokio::test]
async fn withdrawn_key_is_accepted_for_an_hour_at_most() {
    let hostile = Hostile::start();
    let provider = provider_at(&hostile);
    sign_in(&provider).await.unwrap();
    // The provider goes on signing with a key that is no longer in its key set.
    hostile.behave(|now| {
        let withdrawn = now.keys.pop().unwrap();
        now.keys = vec![SigningKey::generate()];
        now.signing = Signing::Hidden(withdrawn);
        now.claims = Box::new(|claims| claims["exp"] = json!(seconds() + 7200));
    });
    sign_in(&provider).await.unwrap();
    let begun = provider.begin_sign_in(super::REDIRECT, Prompt::AsNeeded, clock::now()).await.unwrap();
    let callback = super::come_back(&begun.url);
    let later = clock::now().after(std::time::Duration::from_secs(3601));
    let error = provider.finish_sign_in(&begun.pending, super::REDIRECT, &callback, later).await.unwrap_err();
    assert_eq!(error.reason(), "unknown_key");
}

#[tokio::test]
async fn email_is_verified_only_when_the_provider_says_so() {
    let hostile = Hostile::start();
    let provider = provider_at(&hostile);
    for verified in [json!(false), json!("false"), Value::Null] {
        hostile.behave(|now| now.claims = Box::new(move |claims| claims["email_verified"] = verified.clone()));
        let person = sign_in(&provider).await.unwrap();
        assert_eq!((person.email.as_deref(), person.email_verified), (Some("person@example.com"), false));
    }
}

#[tokio::test]
async fn userinfo_is_fetched_for_missing_claims_of_the_same_subject() {
    let hostile = Hostile::start();
    let mut settings = settings_at(&hostile);
    settings.claims = vec!["groups".into()];
    let provider = control::oidc::Provider::new(settings).unwrap();
    hostile.behave(|now| now.userinfo = Box::new(|claims| claims["groups"] = json!(["staff"])));
    let person = sign_in(&provider).await.unwrap();
    assert_eq!((hostile.asked("/userinfo"), &person.claims["groups"]), (1, &json!(["staff"])));

    for sub in [json!("subject-2"), json!(""), Value::Null] {
        hostile.behave(|now| now.userinfo = Box::new(move |claims| claims["sub"] = sub.clone()));
        assert_eq!(refusal(&provider).await, "userinfo_subject");
    }
    hostile.behave(|now| now.metadata = Box::new(|metadata| metadata["userinfo_endpoint"] = Value::Null));
    let silent = provider_at(&hostile);
    sign_in(&silent).await.unwrap();
}
