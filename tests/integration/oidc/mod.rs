//! OpenID Connect sign-ins: with the certified provider, and with one that does what it should not.

// Providers and a browser, for these tests and those of the dashboard.
pub mod browser;
pub mod certified_provider;
pub mod hostile;
pub mod signing;

mod certified;
mod responses;
mod id_tokens;
mod keys;
mod unavailable;

use control::oidc::{AuthorizationResponse, Error, Prompt, Provider, Settings, VerifiedIdentity};
use domain::clock;
use domain::secret::Secret;
use url::Url;

use browser::Browser;
use hostile::{Hostile, SECRET};

/// The redirect URI. No process listens there: the tests read the query themselves.
const REDIRECT: &str = "http://127.0.0.1:1/callback";

/// Settings of a client of the hostile provider.
fn settings_at(hostile: &Hostile) -> Settings {
    Settings {
        name: "hostile".into(),
        label: "The hostile one".into(),
        issuer: hostile.issuer(),
        client_id: "client 1".into(),
        audiences: Vec::new(),
        client_secret: Some(Secret::new(SECRET.into())),
        scopes: vec!["email".into()],
        claims: Vec::new(),
        tls: platform::tls::ClientSettings::default(),
    }
}

fn provider_at(hostile: &Hostile) -> Provider {
    Provider::new(settings_at(hostile)).unwrap()
}

/// Begins a sign-in, follows the browser through the provider, which sends it back at once, and finishes the sign-in.
async fn sign_in(provider: &Provider) -> Result<VerifiedIdentity, Error> {
    let begun = provider.begin_sign_in(REDIRECT, Prompt::AsNeeded, clock::now()).await?;
    let response = come_back(&begun.url);
    let state = response.state.as_ref().map(Secret::expose);
    assert_eq!(state, Some(begun.state.expose()));
    provider.finish_sign_in(&begun.pending, REDIRECT, &response, clock::now()).await
}

/// The authorization response with which the browser comes back from the hostile provider.
fn come_back(url: &str) -> AuthorizationResponse {
    let page = Browser::new().get(&url.parse().unwrap());
    let back: Url = page.redirect().unwrap();
    assert!(back.as_str().starts_with(REDIRECT), "{back}");
    AuthorizationResponse::parse(back.query().unwrap()).unwrap()
}

/// The reason of the error with which a sign-in ends. Checks that no text of the error has a secret.
async fn refusal(provider: &Provider) -> &'static str {
    let error = sign_in(provider).await.unwrap_err();
    let text = format!("{error} {error:?} {}", error.in_full());
    for secret in [SECRET, "access-", "eyJ"] {
        assert!(!text.contains(secret), "{secret} in {text}");
    }
    error.reason()
}
