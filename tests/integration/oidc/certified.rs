//! Sign-ins with the certified provider.

use std::sync::Arc;

use control::oidc::{AuthorizationResponse, Error, Prompt, Provider, Settings, VerifiedIdentity};
use domain::clock;
use serde_json::{Value, json};
use tokio::runtime::LocalOptions;
use url::Url;

use super::REDIRECT;
use super::browser::Browser;
use super::certified_provider::{Real, SIGNED_OUT};

fn people() -> Value {
    json!({
        "ada": {"email": "ada@example.com", "email_verified": true, "name": "Ada", "groups": ["staff", "admins"]},
        "bob": {"email": "bob@example.com", "email_verified": false},
    })
}

async fn sign_in(provider: &Provider, browser: &mut Browser, name: &str) -> Result<VerifiedIdentity, Error> {
    let begun = provider.begin_sign_in(REDIRECT, Prompt::AsNeeded, clock::now()).await?;
    let back = browser.sign_in(&begun.url, name);
    let callback = AuthorizationResponse::parse(back.query().unwrap()).unwrap();
    assert_eq!(callback.state.as_ref().unwrap().expose(), begun.state.expose());
    provider.finish_sign_in(&begun.pending, REDIRECT, &callback, clock::now()).await
}

#[tokio::test]
async fn users_sign_in_with_their_claims_and_sign_out() {
    let real = Real::start(&[REDIRECT], people());
    let provider = Provider::new(real.settings()).unwrap();
    let mut browser = Browser::new();
    let ada = sign_in(&provider, &mut browser, "ada").await.unwrap();
    assert_eq!(ada.claims["iss"], real.issuer());
    assert_eq!(
        (ada.subject.as_str(), ada.email.as_deref(), ada.email_verified),
        ("ada", Some("ada@example.com"), true)
    );
    assert_eq!((ada.name.as_deref(), &ada.claims["groups"]), (Some("Ada"), &json!(["staff", "admins"])));
    assert_eq!(format!("{ada:?}"), "VerifiedIdentity { email_verified: true, .. }");

    let out = provider.sign_out_url(Some(&ada.id_token), SIGNED_OUT, clock::now()).await.unwrap();
    let page = browser.get(&out.parse().unwrap());
    let (action, mut fields) = page.form().unwrap();
    fields.push(("logout".into(), "yes".into()));
    let fields: Vec<(&str, &str)> = fields.iter().map(|(name, value)| (&**name, &**value)).collect();
    let page = browser.submit(&action, &fields);
    assert_eq!(browser.follow(page).unwrap_err().as_str(), SIGNED_OUT);

    // Claims may change, and the new ones count from then on.
    let mut accounts = people();
    accounts["bob"]["email"] = json!("robert@example.com");
    real.set_accounts(&accounts);
    // Ada is signed out, so Bob can sign in with the same browser.
    let bob = sign_in(&provider, &mut browser, "bob").await.unwrap();
    assert_eq!(
        (bob.subject.as_str(), bob.email.as_deref(), bob.email_verified),
        ("bob", Some("robert@example.com"), false)
    );
    assert_eq!((bob.name, bob.claims.get("groups")), (None, None));
}

#[tokio::test]
async fn client_authentications_and_algorithms_work() {
    for (method, algorithm) in [("client_secret_post", "PS256"), ("client_secret_basic", "ES256"), ("none", "EdDSA")] {
        let metadata = json!({"redirect_uris": [REDIRECT], "token_endpoint_auth_method": method});
        let options = json!({"claims_in_id_token": true, "signing_algorithm": algorithm});
        let real = Real::start_with(metadata, people(), options);
        let mut settings = real.settings();
        if method == "none" {
            settings.client_secret = None;
        }
        let ada = sign_in(&Provider::new(settings).unwrap(), &mut Browser::new(), "ada").await;
        assert_eq!(ada.unwrap().email.as_deref(), Some("ada@example.com"), "{method} {algorithm}");
    }
}

#[tokio::test]
async fn declined_sign_in_has_its_own_reason() {
    let real = Real::start(&[REDIRECT], people());
    let provider = Provider::new(real.settings()).unwrap();
    let begun = provider.begin_sign_in(REDIRECT, Prompt::AsNeeded, clock::now()).await.unwrap();
    let mut browser = Browser::new();
    let page = browser.get(&begun.url.parse().unwrap());
    let page = browser.follow(page).unwrap();
    let abort: Url = format!("{}/abort", page.url).parse().unwrap();
    let page = browser.get(&abort);
    let back = browser.follow(page).unwrap_err();
    let callback = AuthorizationResponse::parse(back.query().unwrap()).unwrap();
    let error = provider.finish_sign_in(&begun.pending, REDIRECT, &callback, clock::now()).await.unwrap_err();
    assert_eq!((error.reason(), error.fault()), ("denied_by_user", control::oidc::Fault::Declined));
    assert!(error.in_full().contains("End-User aborted interaction"), "{}", error.in_full());
}

#[tokio::test]
async fn code_is_accepted_once_and_only_for_its_sign_in() {
    let real = Real::start(&[REDIRECT], people());
    let provider = Provider::new(real.settings()).unwrap();
    let mut browser = Browser::new();
    let begun = provider.begin_sign_in(REDIRECT, Prompt::AsNeeded, clock::now()).await.unwrap();
    let other = provider.begin_sign_in(REDIRECT, Prompt::AsNeeded, clock::now()).await.unwrap();
    let back = browser.sign_in(&begun.url, "ada");
    let callback = AuthorizationResponse::parse(back.query().unwrap()).unwrap();
    let stolen = provider.finish_sign_in(&other.pending, REDIRECT, &callback, clock::now()).await.unwrap_err();
    assert_eq!((stolen.reason(), stolen.fault()), ("code_refused", control::oidc::Fault::Browser));

    let back = browser.sign_in(&other.url, "ada");
    let callback = AuthorizationResponse::parse(back.query().unwrap()).unwrap();
    provider.finish_sign_in(&other.pending, REDIRECT, &callback, clock::now()).await.unwrap();
    let again = provider.finish_sign_in(&other.pending, REDIRECT, &callback, clock::now()).await.unwrap_err();
    assert_eq!(again.reason(), "code_refused");
}

#[tokio::test]
async fn wrong_client_secret_has_its_own_reason() {
    let real = Real::start(&[REDIRECT], people());
    let wrong = domain::secret::Secret::new(uuid::Uuid::new_v4().to_string());
    let provider = Provider::new(Settings { client_secret: Some(wrong), ..real.settings() }).unwrap();
    let error = sign_in(&provider, &mut Browser::new(), "ada").await.unwrap_err();
    assert_eq!((error.reason(), error.fault()), ("client_refused", control::oidc::Fault::Provider));
}

#[test]
fn provider_serves_runtimes_that_come_and_go() {
    let real = Real::start(&[REDIRECT], people());
    let provider = Arc::new(Provider::new(real.settings()).unwrap());
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let provider = Arc::clone(&provider);
            std::thread::spawn(move || {
                let mut builder = tokio::runtime::Builder::new_current_thread();
                let runtime = builder.enable_all().build_local(LocalOptions::default()).unwrap();
                runtime.block_on(sign_in(&provider, &mut Browser::new(), "ada")).unwrap().subject
            })
        })
        .collect();
    for thread in threads {
        assert_eq!(thread.join().unwrap(), "ada");
    }
}

#[test]
fn certified_provider_ends_with_its_standard_input() {
    let mut child = std::process::Command::new(super::certified_provider::node())
        .arg("tests/oidc-provider/provider.js")
        .env("CLIENTS", "[]")
        .env("ACCOUNTS", "/dev/null")
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut output = std::io::BufReader::new(child.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut output, &mut line).unwrap();
    assert!(line.starts_with("listening http://127.0.0.1:"), "{line}");
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
}
