//! Server of HTTP as a sink: messages of JSON lines, signed as Standard Webhooks.
//!
//! - A message is a `POST` of up to 1,000 records, or of checkpoints, as `application/x-ndjson`, with `webhook-id`,
//!   `webhook-timestamp` and `webhook-signature` (`v1`, HMAC-SHA256). A status of 2xx takes it.
//! - The id is made of the content: a message that is sent again has the same id and body, and its signature is of
//!   the time at which it is sent. A failed batch is cut at the same records when it is delivered again, although
//!   the journal has grown. Only after a restart the last message of a batch may be cut elsewhere; the ids of its
//!   records are the same.
//! - A message with a record that the receiver refuses is sent in parts ([`super::isolation`]).
//! - No redirect is followed: the receiver is the configured one.

use std::fmt;

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use http::{HeaderMap, HeaderName, HeaderValue};
use sha2::{Digest as _, Sha256};

use super::batch::Batch;
use super::message::Message;
use super::message_progress::MessageProgress;
use super::ndjson;
use super::rejected_file::RejectedFile;
use super::settings::WebhookSettings;
use super::sink_error::SinkError;
use domain::clock::Micros;
use platform::outbound::delivery::HttpPost;
use platform::tls;

/// Prefix of a secret.
const SECRET_PREFIX: &str = "whsec_";
/// Bytes of a secret (Standard Webhooks, "Signature scheme").
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 24..=64;

/// Receiver of webhooks.
pub(super) struct Webhook {
    post: HttpPost,
    key: hmac::Key,
    progress: MessageProgress,
}

/// Text that is not a secret of Standard Webhooks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("is not a secret: whsec_ and 24 to 64 bytes in base64; make one with `echo whsec_$(openssl rand -base64 32)`")]
pub struct InvalidSecret;

/// Checks a secret.
///
/// # Errors
/// [`InvalidSecret`].
pub fn check_secret(secret: &str) -> Result<(), InvalidSecret> {
    key(secret).map(drop)
}

fn key(secret: &str) -> Result<hmac::Key, InvalidSecret> {
    let encoded = secret.strip_prefix(SECRET_PREFIX).ok_or(InvalidSecret)?;
    let bytes = BASE64_STANDARD.decode(encoded).map_err(|_| InvalidSecret)?;
    if !SECRET_BYTES.contains(&bytes.len()) {
        return Err(InvalidSecret);
    }
    Ok(hmac::Key::new(hmac::HMAC_SHA256, &bytes))
}

impl Webhook {
    /// A receiver by these settings, whose secret was checked.
    pub(super) fn open(settings: &WebhookSettings) -> Result<Self, tls::Error> {
        let WebhookSettings { url, tls, timeout, secret } = settings;
        let key = key(secret.expose()).expect("the configuration has checked the secret");
        let post = HttpPost::open(url, tls, "application/x-ndjson", *timeout)?;
        Ok(Self { post, key, progress: MessageProgress::default() })
    }

    /// The place, without the path, which may hold a token.
    pub(super) fn target(&self) -> String {
        self.post.target().to_owned()
    }

    pub(super) fn disconnect(&mut self) {
        self.post.disconnect();
    }

    /// Sends the records of a batch, and then its checkpoints, message by message.
    pub(super) async fn deliver(&mut self, batch: &Batch, rejected: &mut RejectedFile) -> Result<(), SinkError> {
        let Self { post, key, progress } = self;
        let send = async |message: Message<'_>| {
            let body = match message {
                Message::Records(records) => ndjson::lines(records),
                Message::Checkpoints(checkpoints) => ndjson::checkpoint_lines(checkpoints),
            };
            let fields = signed_fields(key, &body, Micros::wall());
            post.post(body.into(), fields).await?;
            Ok(())
        };
        progress.deliver(batch, rejected, send).await
    }
}

/// The fields that sign a message.
fn signed_fields(key: &hmac::Key, body: &[u8], now: Micros) -> HeaderMap {
    let id = message_id(body);
    let seconds = (now.0 / 1_000_000).to_string();
    let signature = sign(key, &id, &seconds, body);
    let fields = [("webhook-id", id), ("webhook-timestamp", seconds), ("webhook-signature", signature)];
    let visible = |value: String| HeaderValue::try_from(value).expect("digits and base64 are visible ASCII");
    fields.into_iter().map(|(name, value)| (HeaderName::from_static(name), visible(value))).collect()
}

/// The id of a message: of the same content the same.
fn message_id(body: &[u8]) -> String {
    format!("msg_{}", BASE64_URL_SAFE_NO_PAD.encode(&Sha256::digest(body)[..18]))
}

/// The signature of a message: `v1,` and the HMAC of `ID.TIMESTAMP.BODY`.
fn sign(key: &hmac::Key, id: &str, timestamp: &str, body: &[u8]) -> String {
    let mut context = hmac::Context::with_key(key);
    for part in [id.as_bytes(), &b"."[..], timestamp.as_bytes(), &b"."[..], body] {
        context.update(part);
    }
    format!("v1,{}", BASE64_STANDARD.encode(context.sign()))
}

impl fmt::Debug for Webhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Webhook").field("target", &self.target()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The test vector of the libraries of Standard Webhooks.
    #[test]
    fn signature_is_that_of_standard_webhooks() {
        let key = key("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let signature = sign(&key, "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", br#"{"test": 2432232314}"#);
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn secret_has_its_prefix_and_enough_bytes() {
        assert_eq!(check_secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"), Ok(()));
        for wrong in ["", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_", "whsec_AAAA", "whsec_*"] {
            assert_eq!(check_secret(wrong), Err(InvalidSecret), "{wrong}");
        }
    }

    #[test]
    fn id_is_that_of_the_content() {
        assert_eq!(message_id(b"a"), message_id(b"a"));
        assert_ne!(message_id(b"a"), message_id(b"b"));
        assert!(message_id(b"").starts_with("msg_") && !message_id(b"").contains('.'));
    }
}
