//! Signing in by OpenID Connect: with the certified provider, and with one that does what it should not.

// Providers and a browser, for these tests and those of the pages.
pub mod browser;
pub mod hostile;
pub mod real;
pub mod signing;

mod good;
mod responses;
mod tokens;
mod away;

use keygate::clock;
use keygate::oidc::{AuthorizationResponse, Error, Provider, Settings, VerifiedIdentity};
use keygate::secret::Secret;
use openidconnect::url::Url;

use browser::Browser;
use hostile::{Hostile, SECRET};

/// Where browsers come back to; nobody is there.
const REDIRECT: &str = "http://127.0.0.1:1/callback";

/// What a client of the hostile provider is told.
fn settings_at(hostile: &Hostile) -> Settings {
    Settings {
        name: "hostile".into(),
        label: "The hostile one".into(),
        issuer: hostile.issuer(),
        client_id: "client 1".into(),
        client_secret: Some(Secret::new(SECRET.into())),
        scopes: vec!["email".into()],
        claims: Vec::new(),
        tls: keygate::tls::ClientSettings::default(),
    }
}

fn provider_at(hostile: &Hostile) -> Provider {
    Provider::new(settings_at(hostile)).unwrap()
}

/// Begins, goes to the provider, which sends the browser back at once, and finishes.
async fn sign_in(provider: &Provider) -> Result<VerifiedIdentity, Error> {
    let begun = provider.begin_sign_in(REDIRECT, clock::now()).await?;
    let callback = come_back(&begun.url);
    let state = callback.state.as_ref().map(Secret::expose);
    assert_eq!(state, Some(begun.state.expose()));
    provider.finish_sign_in(&begun.pending, REDIRECT, &callback, clock::now()).await
}

/// What the browser comes back with from the hostile provider.
fn come_back(url: &str) -> AuthorizationResponse {
    let page = Browser::new().get(&url.parse().unwrap());
    let back: Url = page.redirect().unwrap();
    assert!(back.as_str().starts_with(REDIRECT), "{back}");
    AuthorizationResponse::parse(back.query().unwrap()).unwrap()
}

/// The reason why nobody was signed in. Nothing secret is in any text of it.
async fn refusal(provider: &Provider) -> &'static str {
    let error = sign_in(provider).await.unwrap_err();
    let text = format!("{error} {error:?} {}", error.in_full());
    for secret in [SECRET, "access-", "eyJ"] {
        assert!(!text.contains(secret), "{secret} in {text}");
    }
    error.reason()
}
