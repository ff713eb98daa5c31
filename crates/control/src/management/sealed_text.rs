//! Sealed texts: [tokens](domain::secret::SealedToken) with a text, whose key is derived from a secret in the state,
//! for each purpose another one. All gateways that share a state open each other's texts, also after a restart.

use serde::Serialize;

use domain::secret::{SealedToken, Secret, TokenKey};
use state::CursorSecret;

/// Version of the format, the prefix of a token.
const FORMAT: [u8; 1] = [1];

/// Seals and opens texts of one purpose.
pub(super) struct TextSealer {
    key: TokenKey,
    /// Subject of the texts, in its only form.
    subject: Vec<u8>,
}

impl TextSealer {
    /// The sealer with the key for a purpose. What is sealed for one `subject` opens for no other.
    pub(super) fn new(secret: &CursorSecret, purpose: &str, subject: &impl Serialize) -> Self {
        let subject = serde_json::to_vec(subject).expect("a subject is texts, numbers and tuples of them");
        Self { key: TokenKey::derive(purpose, secret.as_bytes()), subject }
    }

    /// Seals a text.
    ///
    /// # Errors
    /// The operating system provides no randomness.
    pub(super) fn seal(&self, text: &str) -> Result<String, getrandom::Error> {
        self.key.seal(FORMAT, &self.subject, text.as_bytes())
    }

    /// Opens a token of `longest` characters at most. `None` when any part of it is not as it was
    /// sealed for this subject.
    pub(super) fn open(&self, token: &str, longest: usize) -> Option<Secret> {
        let token = SealedToken::decode(token, longest).filter(|token| token.prefix == FORMAT)?;
        let text = self.key.open(&token, &self.subject)?;
        std::str::from_utf8(&text).ok().map(|text| Secret::new(text.to_owned()))
    }
}
