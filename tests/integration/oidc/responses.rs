//! Invalid responses: of the provider's endpoints, and those that the browser brings.

use control::oidc::{AuthorizationResponse, Fault, Prompt, Provider};
use domain::clock;
use serde_json::{Value, json};

use super::hostile::{Hostile, Raw};
use super::{REDIRECT, come_back, provider_at, refusal, settings_at, sign_in};

#[tokio::test]
async fn iss_of_the_response_must_be_the_providers() {
    let hostile = Hostile::start();
    let provider = provider_at(&hostile);
    for iss in ["https://other.example", "", &(hostile.issuer() + "/")] {
        let iss = iss.to_owned();
        hostile.behave(|now| now.response = Box::new(move |pairs| pairs[2].1.clone_from(&iss)));
        assert_eq!(refusal(&provider).await, "response_issuer");
    }
    hostile.behave(|now| now.response = Box::new(|pairs| pairs.truncate(2)));
    assert_eq!(refusal(&provider).await, "response_issuer");
    assert_eq!(hostile.asked("/token"), 0, "a code went to the wrong provider");

    // A provider that does not announce `iss` need not send it; when it does, it must be right.
    hostile.behave(|now| {
        now.metadata = Box::new(|metadata| metadata["authorization_response_iss_parameter_supported"] = json!(false));
    });
    let silent = provider_at(&hostile);
    sign_in(&silent).await.unwrap();
    hostile.behave(|now| now.response = Box::new(|pairs| pairs[2].1 = "https://other.example".into()));
    assert_eq!(refusal(&silent).await, "response_issuer");
}

#[tokio::test]
async fn provider_errors_have_reasons_and_faults() {
    let hostile = Hostile::start();
    let provider = provider_at(&hostile);
    for (error, reason, fault) in [
        ("access_denied", "denied_by_user", Fault::Declined),
        ("temporarily_unavailable", "unavailable", Fault::ProviderUnavailable),
        ("server_error", "unavailable", Fault::ProviderUnavailable),
        ("login_required", "refused", Fault::Provider),
        ("made\r\nup", "refused", Fault::Provider),
    ] {
        hostile.behave(|now| {
            now.response = Box::new(move |pairs| {
                pairs[0] = ("error".into(), error.into());
                pairs.push(("error_description".into(), format!("in\nwords{}", "…".repeat(300))));
            });
        });
        let begun = provider.begin_sign_in(REDIRECT, Prompt::AsNeeded, clock::now()).await.unwrap();
        let callback = come_back(&begun.url);
        let refused = provider.finish_sign_in(&begun.pending, REDIRECT, &callback, clock::now()).await.unwrap_err();
        assert_eq!((refused.reason(), refused.fault()), (reason, fault), "{error}");
        assert!(refused.in_full().ends_with(": inwords"), "{:?}", refused.in_full());
        assert!(!refused.in_full().contains('\n'));
    }
}

#[tokio::test]
async fn response_must_have_one_code_of_this_sign_in() {
    let hostile = Hostile::start();
    let provider = provider_at(&hostile);
    let begun = provider.begin_sign_in(REDIRECT, Prompt::AsNeeded, clock::now()).await.unwrap();
    let good = come_back(&begun.url);
    for callback in [
        AuthorizationResponse { code: None, ..good.clone() },
        AuthorizationResponse { code: Some(domain::secret::Secret::new("made up".into())), ..good.clone() },
    ] {
        let error = provider.finish_sign_in(&begun.pending, REDIRECT, &callback, clock::now()).await.unwrap_err();
        assert_eq!(error.fault(), Fault::Browser, "{error}");
    }
    for repeated in ["code=a&code=a", "code=a&state=b&state=c", "code=a&iss=a&iss=b", "error=a&error=b"] {
        assert_eq!(AuthorizationResponse::parse(repeated).unwrap_err().reason(), "callback", "{repeated}");
    }
    let other = Hostile::start();
    let elsewhere = provider_at(&other).begin_sign_in(REDIRECT, Prompt::AsNeeded, clock::now()).await.unwrap();
    let error = provider.finish_sign_in(&elsewhere.pending, REDIRECT, &good, clock::now()).await.unwrap_err();
    assert_eq!(error.reason(), "other_provider");
    // None of them used the code.
    provider.finish_sign_in(&begun.pending, REDIRECT, &good, clock::now()).await.unwrap();
    let error = provider.finish_sign_in(&begun.pending, REDIRECT, &good, clock::now()).await.unwrap_err();
    assert_eq!(error.reason(), "code_refused");
    assert!(!format!("{error:?} {}", error.in_full()).contains(good.code.unwrap().expose()));
}

#[tokio::test]
async fn pending_authorization_survives_storage_and_hides_its_secrets() {
    let hostile = Hostile::start();
    let provider = provider_at(&hostile);
    let begun = provider.begin_sign_in(REDIRECT, Prompt::AsNeeded, clock::now()).await.unwrap();
    let callback = come_back(&begun.url);
    let stored = serde_json::to_string(&begun.pending).unwrap();
    let parts: Value = serde_json::from_str(&stored).unwrap();
    let shown = format!("{begun:?} {callback:?} {provider:?}");
    for name in ["nonce", "verifier"] {
        assert_eq!(parts[name].as_str().unwrap().len(), 43);
        assert!(!shown.contains(&format!("{}\"", parts[name])), "{name}");
    }
    assert!(!format!("{:?} {callback:?} {provider:?}", begun.pending).contains(parts["verifier"].as_str().unwrap()));
    let pending = serde_json::from_str(&stored).unwrap();
    provider.finish_sign_in(&pending, REDIRECT, &callback, clock::now()).await.unwrap();
}

#[tokio::test]
async fn invalid_provider_responses_name_their_endpoint() {
    let discovery = "/.well-known/openid-configuration";
    let garbage: [fn() -> Raw; 6] = [
        || Raw::Bytes(b"SSH-2.0-OpenSSH_9.2\r\n".to_vec()),
        || Raw::Status(404),
        || Raw::Status(302),
        || Raw::Body(b"<html>".to_vec()),
        || Raw::Body(b"[]".to_vec()),
        || Raw::Body(vec![b' '; 1024 * 1024 + 1]),
    ];
    for (path, reason) in [
        (discovery, "discovery_invalid"),
        ("/jwks", "keys_invalid"),
        ("/token", "answer_invalid"),
        ("/userinfo", "userinfo_invalid"),
    ] {
        let hostile = Hostile::start();
        hostile.behave(|now| now.claims = Box::new(|claims| drop(claims.as_object_mut().unwrap().remove("email"))));
        for raw in garbage {
            hostile.behave(|now| now.answer_with(path, raw()));
            assert_eq!(refusal(&provider_at(&hostile)).await, reason, "{path}");
        }
    }
}

#[tokio::test]
async fn token_response_is_validated() {
    let hostile = Hostile::start();
    let provider = provider_at(&hostile);
    for (name, value, reason) in [
        ("id_token", Value::Null, "answer_invalid"),
        ("id_token", json!("a.b"), "malformed"),
        ("id_token", json!("a.b.c"), "malformed"),
        ("id_token", json!("é"), "malformed"),
        ("token_type", json!("DPoP"), "answer_invalid"),
        ("access_token", json!(1), "answer_invalid"),
        ("access_token", json!("another"), "access_token_hash"),
    ] {
        let what = format!("{name}: {value}");
        hostile.behave(|now| now.tokens = Box::new(move |tokens| tokens[name] = value.clone()));
        assert_eq!(refusal(&provider).await, reason, "{what}");
    }
    // An access token that does not fit into a header must not cause a panic.
    hostile.behave(|now| {
        now.claims = Box::new(|claims| claims["at_hash"] = Value::Null);
        now.tokens = Box::new(|tokens| tokens["access_token"] = json!("a\r\nb"));
    });
    let mut settings = settings_at(&hostile);
    settings.claims = vec!["groups".into()];
    assert_eq!(refusal(&Provider::new(settings).unwrap()).await, "answer_invalid");
}

#[tokio::test]
async fn discovery_document_is_validated() {
    let hostile = Hostile::start();
    hostile.behave(|now| now.metadata = Box::new(|metadata| metadata["issuer"] = json!("http://127.0.0.1:1")));
    assert_eq!(refusal(&provider_at(&hostile)).await, "issuer_mismatch");
    hostile.behave(|now| {
        now.metadata = Box::new(|metadata| metadata["token_endpoint"] = json!("http://other.example/token"));
    });
    assert_eq!(refusal(&provider_at(&hostile)).await, "discovery_invalid");
    hostile.behave(|now| {
        now.metadata =
            Box::new(|metadata| metadata["token_endpoint_auth_methods_supported"] = json!(["private_key_jwt"]));
    });
    assert_eq!(refusal(&provider_at(&hostile)).await, "discovery_invalid");
}

#[tokio::test]
async fn client_secret_post_is_supported() {
    let hostile = Hostile::start();
    hostile.behave(|now| {
        now.metadata =
            Box::new(|metadata| metadata["token_endpoint_auth_methods_supported"] = json!(["client_secret_post"]));
    });
    sign_in(&provider_at(&hostile)).await.unwrap();
    let mut settings = settings_at(&hostile);
    settings.client_secret = Some(domain::secret::Secret::new("another".into()));
    assert_eq!(refusal(&Provider::new(settings).unwrap()).await, "client_refused");
}
