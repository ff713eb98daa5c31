//! Sealed tokens: what a client carries for the service, and can neither read nor change, such as a cursor.
//!
//! ```text
//! base64url, no padding, of:   prefix P │ nonce 24 │ ciphertext │ tag 16
//! ```
//!
//! - A token is sealed with XChaCha20-Poly1305 under a random nonce, which with 24 bytes needs no counter. Its
//!   associated data say what it is for, so that it opens for that alone: list, organization, filters. When it expires
//!   is a part of the content.
//! - The prefix is open: the version of the format, and perhaps the id of the key. Who needs it intact adds it to
//!   the associated data.
//! - A token opens in its only form: one that differs in a bit, in its length or in its base64 does not.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chacha20poly1305::aead::{Aead as _, Payload};
use chacha20poly1305::{KeyInit as _, XChaCha20Poly1305, XNonce};
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

/// Bytes of a nonce.
const NONCE: usize = 24;
/// Bytes of a tag.
const TAG: usize = 16;

/// Key that seals and opens tokens of one purpose.
pub struct TokenKey(XChaCha20Poly1305);

/// Token of a client, whose content is not opened yet.
pub struct SealedToken<const P: usize> {
    /// Its first bytes.
    pub prefix: [u8; P],
    nonce: [u8; NONCE],
    sealed: Vec<u8>,
}

impl TokenKey {
    /// Derives the key of a purpose from a secret that is random enough for one hash to suffice.
    pub fn derive(purpose: &str, secret: &[u8]) -> Self {
        let hash = Sha256::new().chain_update(purpose).chain_update(b"\0").chain_update(secret).finalize();
        let key: Zeroizing<[u8; 32]> = Zeroizing::new(hash.into());
        Self(XChaCha20Poly1305::new((&*key).into()))
    }

    /// Seals a content.
    ///
    /// # Errors
    /// The operating system provides no randomness.
    pub fn seal<const P: usize>(
        &self,
        prefix: [u8; P],
        associated: &[u8],
        content: &[u8],
    ) -> Result<String, getrandom::Error> {
        let mut nonce = [0; NONCE];
        getrandom::fill(&mut nonce)?;
        let payload = Payload { msg: content, aad: associated };
        let sealed = self.0.encrypt(&XNonce::from(nonce), payload).expect("the content is not too long");
        Ok(URL_SAFE_NO_PAD.encode([&prefix[..], &nonce, &sealed].concat()))
    }

    /// Opens a token; `None` when any part of it is not as it was sealed with these associated data.
    pub fn open<const P: usize>(&self, token: &SealedToken<P>, associated: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        let payload = Payload { msg: &token.sealed, aad: associated };
        self.0.decrypt(&XNonce::from(token.nonce), payload).ok().map(Zeroizing::new)
    }
}

impl<const P: usize> SealedToken<P> {
    /// Characters of a token with a content of so many bytes.
    pub const fn text_len(content: usize) -> usize {
        ((P + NONCE + content + TAG) * 4).div_ceil(3)
    }

    /// Decodes a token of `longest` characters at most, which bounds what a client can make the service decode.
    pub fn decode(text: &str, longest: usize) -> Option<Self> {
        if text.len() > longest {
            return None;
        }
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        let (prefix, rest) = bytes.split_first_chunk::<P>()?;
        let (nonce, sealed) = rest.split_first_chunk::<NONCE>()?;
        Some(Self { prefix: *prefix, nonce: *nonce, sealed: sealed.to_vec() })
    }
}
