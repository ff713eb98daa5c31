//! A provider that is unavailable, hangs, or becomes available again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use control::oidc::{Error, Fault, HttpError, Prompt, Provider};
use domain::clock;
use futures_util::FutureExt as _;
use platform::outbound::ServerError;
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;

use super::hostile::{Hostile, Raw};
use super::{REDIRECT, come_back, provider_at, settings_at, sign_in};
use crate::support::lenient;
use crate::tls::authority::{Authority, Issued};

const HOUR: Duration = Duration::from_secs(3600);

#[tokio::test]
async fn unavailable_provider_has_its_own_reason_and_is_tried_again() {
    let mut hostile = Hostile::start();
    let provider = provider_at(&hostile);
    hostile.go_away();
    let error = provider.begin_sign_in(REDIRECT, Prompt::AsNeeded, clock::now()).await.unwrap_err();
    assert_eq!((error.reason(), error.fault()), ("unreachable", Fault::ProviderUnavailable));
    assert_eq!(provider.sign_out_url(None, REDIRECT, clock::now()).await, None);
    hostile.come_back();
    sign_in(&provider).await.unwrap();
}

#[tokio::test]
async fn server_errors_mean_that_the_provider_is_unavailable() {
    for (path, status) in [("/.well-known/openid-configuration", 500), ("/jwks", 502), ("/token", 503), ("/token", 429)]
    {
        let hostile = Hostile::start();
        hostile.behave(|now| now.answer_with(path, Raw::Status(status)));
        let error = sign_in(&provider_at(&hostile)).await.unwrap_err();
        assert_eq!((error.reason(), error.fault()), ("unreachable", Fault::ProviderUnavailable), "{path}");
    }
}

#[tokio::test]
async fn stale_metadata_is_used_while_the_provider_is_unavailable() {
    let mut hostile = Hostile::start();
    let provider = provider_at(&hostile);
    let begun = provider.begin_sign_in(REDIRECT, Prompt::AsNeeded, clock::now()).await.unwrap();
    let callback = come_back(&begun.url);
    hostile.go_away();
    let later = clock::now().after(2 * HOUR);
    provider.begin_sign_in(REDIRECT, Prompt::AsNeeded, later).await.unwrap();
    assert!(provider.sign_out_url(None, REDIRECT, later).await.is_some());
    let error = provider.finish_sign_in(&begun.pending, REDIRECT, &callback, clock::now()).await.unwrap_err();
    assert_eq!(error.reason(), "unreachable");
    hostile.come_back();
    provider.finish_sign_in(&begun.pending, REDIRECT, &callback, clock::now()).await.unwrap();
}

#[tokio::test]
async fn discovery_document_is_read_again_after_an_hour() {
    let hostile = Hostile::start();
    let provider = provider_at(&hostile);
    let start = clock::now();
    for (after, asked) in [(Duration::ZERO, 1), (HOUR / 2, 1), (HOUR + Duration::from_secs(1), 2), (HOUR, 2)] {
        provider.begin_sign_in(REDIRECT, Prompt::AsNeeded, start.after(after)).await.unwrap();
        assert_eq!(hostile.asked("/.well-known/openid-configuration"), asked, "{after:?}");
    }
    // An invalid document is not hidden by the stale one.
    hostile.behave(|now| now.metadata = Box::new(|metadata| metadata["issuer"] = "http://127.0.0.1:1".into()));
    let error = provider.begin_sign_in(REDIRECT, Prompt::AsNeeded, start.after(3 * HOUR)).await.unwrap_err();
    assert_eq!(error.reason(), "issuer_mismatch");
}

#[tokio::test]
async fn slow_response_times_out_after_ten_seconds() {
    let hostile = Hostile::start();
    hostile.behave(|now| now.answer_with("/.well-known/openid-configuration", Raw::Drip));
    let begun = Instant::now();
    let error = provider_at(&hostile).begin_sign_in(REDIRECT, Prompt::AsNeeded, clock::now()).await.unwrap_err();
    assert!(matches!(error, Error::Unreachable(_, HttpError::TimedOut)), "{error:?}");
    let (took, limit) = (begun.elapsed(), Duration::from_secs(10));
    assert!(took >= limit && took < lenient(limit + Duration::from_secs(5)), "{took:?}");
}

#[tokio::test]
async fn requests_in_flight_are_at_most_64() {
    let hostile = Hostile::start();
    hostile.behave(|now| now.answer_with("/.well-known/openid-configuration", Raw::Drip));
    let provider = provider_at(&hostile);
    let mut waiting = Vec::new();
    for _ in 0..64 {
        let mut one = Box::pin(provider.begin_sign_in(REDIRECT, Prompt::AsNeeded, clock::now()));
        assert!((&mut one).now_or_never().is_none());
        waiting.push(one);
    }
    let error = provider.begin_sign_in(REDIRECT, Prompt::AsNeeded, clock::now()).await.unwrap_err();
    assert!(matches!(error, Error::Unreachable(_, HttpError::Busy)), "{error:?}");
    // Requests that are dropped make room for others.
    drop(waiting);
    hostile.behave(|now| now.answer_with("/.well-known/openid-configuration", Raw::Status(404)));
    let error = provider.begin_sign_in(REDIRECT, Prompt::AsNeeded, clock::now()).await.unwrap_err();
    assert_eq!(error.reason(), "discovery_invalid");
}

#[tokio::test]
async fn provider_certificate_is_verified() {
    let folder = tempfile::tempdir().unwrap();
    let [ours, other] = [Authority::new(), Authority::new()];
    let ca = ours.write(&folder.path().join("ca.pem"));
    for (authority, name, is_it) in [(&ours, "localhost", true), (&other, "localhost", false), (&ours, "other", false)]
    {
        let hostile = Hostile::start_encrypted(shown(&authority.certify(&[name])));
        let mut settings = settings_at(&hostile);
        settings.tls.ca = Some(ca.clone());
        let begun = Provider::new(settings).unwrap().begin_sign_in(REDIRECT, Prompt::AsNeeded, clock::now()).await;
        match begun {
            Ok(begun) => assert!(is_it && begun.url.starts_with("https://localhost:"), "{}", begun.url),
            Err(error) => {
                assert!(
                    !is_it && matches!(error, Error::Unreachable(_, HttpError::Server(ServerError::Handshake(_)))),
                    "{error:?}"
                )
            }
        }
    }
    let plain = Hostile::start();
    let mut settings = settings_at(&plain);
    settings.issuer = plain.issuer().replace("http:", "https:");
    settings.tls.ca = Some(ca);
    let error =
        Provider::new(settings).unwrap().begin_sign_in(REDIRECT, Prompt::AsNeeded, clock::now()).await.unwrap_err();
    assert!(matches!(error, Error::Unreachable(_, HttpError::Server(ServerError::Handshake(_)))), "{error:?}");
}

fn shown(certificate: &Issued) -> ServerConfig {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let key = PrivateKeyDer::from_pem_slice(certificate.key.as_bytes()).unwrap();
    let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    builder.with_no_client_auth().with_single_cert(vec![certificate.der()], key).unwrap()
}

#[test]
fn invalid_settings_are_rejected_at_once() {
    let hostile = Hostile::start();
    for (issuer, reason) in [("http://login.example.com", "issuer"), ("nonsense", "issuer")] {
        let mut settings = settings_at(&hostile);
        settings.issuer = issuer.into();
        assert_eq!(Provider::new(settings).unwrap_err().reason(), reason);
    }
    let mut settings = settings_at(&hostile);
    settings.issuer = "https://login.example.com".into();
    settings.tls.ca = Some("/nonexistent".into());
    assert_eq!(Provider::new(settings).unwrap_err().reason(), "tls");
}
