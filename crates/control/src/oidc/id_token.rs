//! ID token verification (OpenID Connect Core 1.0, section 3.1.3.7): what ID tokens have beside the claims of all
//! tokens.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value};

use super::error::Error;
use super::jwt_verifier::{JwtVerifier, VerifiedClaims, text_claim};
use super::key_set::KeySet;
use domain::secret::Secret;

/// Values that an ID token is verified against.
pub(super) struct IdTokenVerifier<'a> {
    /// The audience is the client.
    pub(super) jwt: JwtVerifier<'a>,
    /// The nonce of this sign-in.
    pub(super) nonce: &'a Secret,
    /// The access token that came with the ID token.
    pub(super) access: &'a Secret,
}

impl IdTokenVerifier<'_> {
    /// Verifies an ID token and returns its claims. The error is the first of possibly several.
    ///
    /// The age of `iat` needs no bound: the nonce is this sign-in's, which is minutes old.
    pub(super) fn verify(&self, raw: &Secret, keys: &KeySet) -> Result<Map<String, Value>, Error> {
        let verified = self.jwt.verify(raw, keys)?;
        let nonce = text_claim(&verified.claims, "nonce")?.unwrap_or_default();
        if verify_slices_are_equal(nonce.as_bytes(), self.nonce.expose().as_bytes()).is_err() {
            return Err(Error::Nonce);
        }
        // Step 5: a token that was issued to another client of the provider, and only presented to this one, does not
        // sign its user in here.
        if text_claim(&verified.claims, "azp")?.is_some_and(|party| party != self.jwt.audience) {
            return Err(Error::AuthorizedParty);
        }
        self.check_access_token(&verified)?;
        Ok(verified.claims)
    }

    /// Section 3.1.3.8: `at_hash`, when the token has it, must be the hash of the access token that came with it, so
    /// that an access token of another user cannot be put beside a valid ID token (token substitution).
    fn check_access_token(&self, verified: &VerifiedClaims) -> Result<(), Error> {
        let Some(expected) = text_claim(&verified.claims, "at_hash")? else { return Ok(()) };
        let hash = digest::digest(verified.algorithm.digest(), self.access.expose().as_bytes());
        let half = &hash.as_ref()[..hash.as_ref().len() / 2];
        if URL_SAFE_NO_PAD.encode(half) == expected { Ok(()) } else { Err(Error::AccessTokenHash) }
    }
}
