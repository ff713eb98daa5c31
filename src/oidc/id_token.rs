//! The ID token: who it was, verified (OpenID Connect Core 1.0, section 3.1.3.7).
//!
//! Pure: the token, the keys and the time go in, its claims or the reason come out.

use std::time::{Duration, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use openidconnect::core::{
    CoreIdToken, CoreIdTokenClaims, CoreIdTokenVerifier, CoreJsonWebKeySet, CoreJwsSigningAlgorithm,
};
use openidconnect::{
    AccessToken, AccessTokenHash, ClaimsVerificationError, ClientId, IssuerUrl, Nonce, SignatureVerificationError,
};
use serde_json::{Map, Value};

use super::error::Error;
use super::settings::Settings;
use crate::clock::Micros;
use crate::secret::Secret;

/// How far the provider's clock may be from ours.
const LEEWAY: Duration = Duration::from_secs(60);
/// The longest subject (OpenID Connect Core 1.0, section 2).
const LONGEST_SUBJECT: usize = 255;

/// What a token must be.
pub(super) struct Expected<'a> {
    pub(super) settings: &'a Settings,
    pub(super) algorithms: &'a [CoreJwsSigningAlgorithm],
    pub(super) nonce: &'a Secret,
    /// What came with it.
    pub(super) access: &'a Secret,
    pub(super) now: Micros,
}

impl Expected<'_> {
    /// The claims of a token that is all it must be. One of several reasons why it is not is given.
    pub(super) fn claims(&self, raw: &Secret, keys: &CoreJsonWebKeySet) -> Result<Map<String, Value>, Error> {
        let token: CoreIdToken = raw.expose().parse().map_err(|_| Error::Malformed)?;
        let verifier = self.verifier(keys);
        let nonce = Nonce::new(self.nonce.expose().to_owned());
        let claims = token.claims(&verifier, &nonce).map_err(reason)?;
        self.check_party(claims)?;
        self.check_issued(claims)?;
        self.check_access_token(&token, &verifier, claims)?;
        if claims.subject().is_empty() || claims.subject().len() > LONGEST_SUBJECT {
            return Err(Error::Subject);
        }
        let claims = payload(raw)?;
        self.check_begun(&claims)?;
        Ok(claims)
    }

    fn verifier(&self, keys: &CoreJsonWebKeySet) -> CoreIdTokenVerifier<'static> {
        let client = ClientId::new(self.settings.client_id.clone());
        let issuer =
            IssuerUrl::new(self.settings.issuer.clone()).expect("the issuer is a URL, or there were no provider");
        let earliest = UNIX_EPOCH + Duration::from_micros(self.now.before(LEEWAY).0);
        CoreIdTokenVerifier::new_public_client(client, issuer, keys.clone())
            .set_allowed_algs(self.algorithms.iter().cloned())
            .set_time_fn(move || earliest.into())
    }

    /// Step 5.
    fn check_party(&self, claims: &CoreIdTokenClaims) -> Result<(), Error> {
        match claims.authorized_party() {
            Some(party) if **party != self.settings.client_id => Err(Error::AuthorizedParty),
            _ => Ok(()),
        }
    }

    /// Step 10, as far as it is certain: nothing is from the future.
    fn check_issued(&self, claims: &CoreIdTokenClaims) -> Result<(), Error> {
        let latest = i64::try_from(self.now.after(LEEWAY).0).unwrap_or(i64::MAX);
        if claims.issue_time().timestamp_micros() > latest { Err(Error::NotYetValid) } else { Ok(()) }
    }

    /// RFC 7519, section 4.1.5: a token may say from when on it is good, in seconds.
    fn check_begun(&self, claims: &Map<String, Value>) -> Result<(), Error> {
        let latest = Duration::from_micros(self.now.after(LEEWAY).0).as_secs_f64();
        match claims.get("nbf").map(Value::as_f64) {
            Some(Some(begins)) if begins > latest => Err(Error::NotYetValid),
            Some(None) => Err(Error::Malformed),
            _ => Ok(()),
        }
    }

    /// Section 3.1.3.8: when the token names an access token, it is the one that came with it.
    fn check_access_token(
        &self,
        token: &CoreIdToken,
        verifier: &CoreIdTokenVerifier<'_>,
        claims: &CoreIdTokenClaims,
    ) -> Result<(), Error> {
        let Some(expected) = claims.access_token_hash() else { return Ok(()) };
        let algorithm = token.signing_alg().map_err(signature_reason)?;
        let key = token.signing_key(verifier).map_err(signature_reason)?;
        let access = AccessToken::new(self.access.expose().to_owned());
        match AccessTokenHash::from_token(&access, algorithm, key) {
            Ok(actual) if actual == *expected => Ok(()),
            _ => Err(Error::AccessTokenHash),
        }
    }
}

/// All claims of a token that has been verified.
fn payload(raw: &Secret) -> Result<Map<String, Value>, Error> {
    let payload = raw.expose().split('.').nth(1).ok_or(Error::Malformed)?;
    let payload = URL_SAFE_NO_PAD.decode(payload.trim_end_matches('=')).map_err(|_| Error::Malformed)?;
    serde_json::from_slice(&payload).map_err(|_| Error::Malformed)
}

fn reason(error: ClaimsVerificationError) -> Error {
    match error {
        ClaimsVerificationError::Expired(_) => Error::Expired,
        ClaimsVerificationError::InvalidAudience(_) => Error::Audience,
        ClaimsVerificationError::InvalidIssuer(_) => Error::TokenIssuer,
        ClaimsVerificationError::InvalidNonce(_) => Error::Nonce,
        ClaimsVerificationError::SignatureVerification(error) => signature_reason(error),
        _ => Error::Malformed,
    }
}

fn signature_reason(error: SignatureVerificationError) -> Error {
    match error {
        SignatureVerificationError::NoSignature => Error::Unsigned,
        SignatureVerificationError::DisallowedAlg(_) | SignatureVerificationError::UnsupportedAlg(_) => {
            Error::Algorithm
        }
        SignatureVerificationError::NoMatchingKey | SignatureVerificationError::AmbiguousKeyId(_) => Error::UnknownKey,
        _ => Error::Signature,
    }
}
