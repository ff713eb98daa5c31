//! Sealed texts: what a client carries for the gateway, and can neither read nor change.
//!
//! ```text
//! base64url, no padding, of:   format 1 │ nonce 24 │ ciphertext of the text │ tag 16
//! ```
//!
//! - A text is sealed with XChaCha20-Poly1305 under a random nonce. Its associated data say what it is for, so that it opens
//!   for that alone.
//! - The key is derived from a secret in the state, for each purpose another one: all gateways that share a state open each
//!   other's texts, also after a restart.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chacha20poly1305::aead::{Aead as _, Payload};
use chacha20poly1305::{KeyInit as _, XChaCha20Poly1305, XNonce};
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use domain::secret::Secret;
use state::CursorSecret;

/// Version of the layout above; a change of the layout gets the next number.
const FORMAT: u8 = 1;
const NONCE: usize = 24;

/// Seals and opens texts of one purpose.
pub(super) struct TextSealer {
    cipher: XChaCha20Poly1305,
    /// Purpose of the texts, in its only form.
    subject: Vec<u8>,
}

impl TextSealer {
    /// The sealer with the key for a purpose. What is sealed for one `subject` opens for no other.
    pub(super) fn new(secret: &CursorSecret, purpose: &str, subject: &impl Serialize) -> Self {
        let hash = Sha256::new().chain_update(purpose).chain_update(b"\0").chain_update(secret.as_bytes()).finalize();
        let key: Zeroizing<[u8; 32]> = Zeroizing::new(hash.into());
        let subject = serde_json::to_vec(subject).expect("a subject is texts, numbers and tuples of them");
        Self { cipher: XChaCha20Poly1305::new((&*key).into()), subject }
    }

    /// Seals a text.
    ///
    /// # Errors
    /// The operating system provides no randomness.
    pub(super) fn seal(&self, text: &str) -> Result<String, getrandom::Error> {
        let mut nonce = [0; NONCE];
        getrandom::fill(&mut nonce)?;
        let payload = Payload { msg: text.as_bytes(), aad: &self.subject };
        let sealed = self.cipher.encrypt(&XNonce::from(nonce), payload).expect("the text is not too long");
        Ok(URL_SAFE_NO_PAD.encode([&[FORMAT][..], &nonce, &sealed].concat()))
    }

    /// Opens a token of `longest` characters at most, which bounds what a client can make the service decode. `None` when
    /// any part of it is not as it was sealed for this subject.
    pub(super) fn open(&self, token: &str, longest: usize) -> Option<Secret> {
        if token.len() > longest {
            return None;
        }
        let bytes = URL_SAFE_NO_PAD.decode(token).ok()?;
        let (FORMAT, rest) = bytes.split_first().map(|(format, rest)| (*format, rest))? else { return None };
        let (nonce, sealed) = rest.split_first_chunk::<NONCE>()?;
        let payload = Payload { msg: sealed, aad: &self.subject };
        String::from_utf8(self.cipher.decrypt(&XNonce::from(*nonce), payload).ok()?).ok().map(Secret::new)
    }
}
