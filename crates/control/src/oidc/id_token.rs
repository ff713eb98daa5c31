//! ID token verification (OpenID Connect Core 1.0, section 3.1.3.7).
//!
//! Pure: the token, the key set and the time go in, the claims or an error come out. `openidconnect` checks the
//! signature, `iss`, `aud`, `exp` and `nonce`; the checks that it leaves to its caller are here.

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
use super::invalid_response::ErrorDescription;
use super::key_set::{KeySet, UnfitKey};
use super::settings::Settings;
use domain::clock::Micros;
use domain::secret::Secret;

/// Difference allowed between the clocks of the provider and of this gateway.
pub(super) const CLOCK_LEEWAY: Duration = Duration::from_secs(60);
/// The longest subject, in bytes (OpenID Connect Core 1.0, section 2).
pub(super) const MAX_SUBJECT: usize = 255;

/// Values that an ID token is verified against.
pub(super) struct IdTokenVerifier<'a> {
    pub(super) settings: &'a Settings,
    /// The signature algorithms that both sides accept.
    pub(super) algorithms: &'a [CoreJwsSigningAlgorithm],
    /// The nonce of this sign-in.
    pub(super) nonce: &'a Secret,
    /// The access token that came with the ID token.
    pub(super) access: &'a Secret,
    pub(super) now: Micros,
}

impl IdTokenVerifier<'_> {
    /// Verifies an ID token and returns its claims. The error is the first of possibly several.
    pub(super) fn verify(&self, raw: &Secret, keys: &KeySet) -> Result<Map<String, Value>, Error> {
        self.verify_with(raw, &keys.keys).map_err(|error| keys.explain(error, raw))
    }

    fn verify_with(&self, raw: &Secret, keys: &CoreJsonWebKeySet) -> Result<Map<String, Value>, Error> {
        let token: CoreIdToken = raw.expose().parse().map_err(|_| Error::Malformed)?;
        let verifier = self.library_verifier(keys);
        let nonce = Nonce::new(self.nonce.expose().to_owned());
        let claims = token.claims(&verifier, &nonce).map_err(|error| from_claims_error(error, raw))?;
        self.check_authorized_party(claims)?;
        self.check_issue_time(claims)?;
        self.check_access_token(&token, &verifier, claims)?;
        if claims.subject().is_empty() || claims.subject().len() > MAX_SUBJECT {
            return Err(Error::Subject);
        }
        let claims = parse_payload(raw)?;
        check_not_before(&claims, self.now)?;
        Ok(claims)
    }

    /// Steps 2, 3 and 6 to 9 and 11. The algorithms are chosen here, not by the token: a token that chooses `none`, or
    /// HS256 with the provider's public key as the secret (algorithm confusion, RFC 8725, section 2.1), is refused
    /// before any check of its signature. As a public client the library accepts no symmetric algorithm either.
    fn library_verifier(&self, keys: &CoreJsonWebKeySet) -> CoreIdTokenVerifier<'static> {
        let client = ClientId::new(self.settings.client_id.clone());
        let issuer =
            IssuerUrl::new(self.settings.issuer.clone()).expect("Provider::new checked that the issuer is a URL");
        let earliest = UNIX_EPOCH + Duration::from_micros(self.now.before(CLOCK_LEEWAY).0);
        let trusted = self.settings.audiences.clone();
        CoreIdTokenVerifier::new_public_client(client, issuer, keys.clone())
            .set_other_audience_verifier_fn(move |audience| trusted.contains(audience))
            .set_allowed_algs(self.algorithms.iter().cloned())
            .set_time_fn(move || earliest.into())
    }

    /// Step 5: a token that was issued to another client of the provider (`azp`), and only presented to this one, does
    /// not sign its user in here.
    fn check_authorized_party(&self, claims: &CoreIdTokenClaims) -> Result<(), Error> {
        match claims.authorized_party() {
            Some(party) if **party != self.settings.client_id => Err(Error::AuthorizedParty),
            _ => Ok(()),
        }
    }

    /// Step 10: `iat` must not be in the future. Its age needs no bound: the nonce is this sign-in's,
    /// which is minutes old.
    fn check_issue_time(&self, claims: &CoreIdTokenClaims) -> Result<(), Error> {
        let latest = i64::try_from(self.now.after(CLOCK_LEEWAY).0).unwrap_or(i64::MAX);
        if claims.issue_time().timestamp_micros() > latest { Err(Error::NotYetValid) } else { Ok(()) }
    }

    /// Section 3.1.3.8: `at_hash`, when the token has it, must be the hash of the access token that came with it, so
    /// that an access token of another user cannot be put beside a valid ID token (token substitution).
    fn check_access_token(
        &self,
        token: &CoreIdToken,
        verifier: &CoreIdTokenVerifier<'_>,
        claims: &CoreIdTokenClaims,
    ) -> Result<(), Error> {
        let Some(expected) = claims.access_token_hash() else { return Ok(()) };
        let algorithm = token.signing_alg().map_err(from_signature_error)?;
        let key = token.signing_key(verifier).map_err(from_signature_error)?;
        let access = AccessToken::new(self.access.expose().to_owned());
        match AccessTokenHash::from_token(&access, algorithm, key) {
            Ok(actual) if actual == *expected => Ok(()),
            _ => Err(Error::AccessTokenHash),
        }
    }
}

/// `nbf`, in seconds, must have passed (RFC 7519, section 4.1.5).
pub(super) fn check_not_before(claims: &Map<String, Value>, now: Micros) -> Result<(), Error> {
    let latest = Duration::from_micros(now.after(CLOCK_LEEWAY).0).as_secs_f64();
    match claims.get("nbf").map(Value::as_f64) {
        Some(Some(begins)) if begins > latest => Err(Error::NotYetValid),
        Some(None) => Err(Error::Malformed),
        _ => Ok(()),
    }
}

/// Parses all claims of a token that has been verified: the library's type has only the standard ones.
pub(super) fn parse_payload(raw: &Secret) -> Result<Map<String, Value>, Error> {
    let payload = raw.expose().split('.').nth(1).ok_or(Error::Malformed)?;
    let payload = URL_SAFE_NO_PAD.decode(payload.trim_end_matches('=')).map_err(|_| Error::Malformed)?;
    serde_json::from_slice(&payload).map_err(|_| Error::Malformed)
}

/// The audiences of a token that need not be valid, for the log.
fn audiences(raw: &Secret) -> ErrorDescription {
    let claims = parse_payload(raw).unwrap_or_default();
    let found = match claims.get("aud") {
        Some(Value::Array(list)) => list.iter().filter_map(Value::as_str).collect(),
        Some(Value::String(one)) => vec![one.as_str()],
        _ => Vec::new(),
    };
    ErrorDescription::new(&found.join(", "))
}

/// Classifies what the library found in this token.
pub(super) fn from_claims_error(error: ClaimsVerificationError, raw: &Secret) -> Error {
    match error {
        ClaimsVerificationError::Expired(_) => Error::Expired,
        ClaimsVerificationError::InvalidAudience(_) => Error::Audience(audiences(raw)),
        ClaimsVerificationError::InvalidIssuer(_) => Error::TokenIssuer,
        ClaimsVerificationError::InvalidNonce(_) => Error::Nonce,
        ClaimsVerificationError::SignatureVerification(error) => from_signature_error(error),
        _ => Error::Malformed,
    }
}

fn from_signature_error(error: SignatureVerificationError) -> Error {
    match error {
        SignatureVerificationError::NoSignature => Error::Unsigned,
        SignatureVerificationError::DisallowedAlg(_) | SignatureVerificationError::UnsupportedAlg(_) => {
            Error::Algorithm
        }
        // Both may be a key that the provider added after the cached key set was read.
        SignatureVerificationError::NoMatchingKey | SignatureVerificationError::AmbiguousKeyId(_) => Error::UnknownKey,
        SignatureVerificationError::InvalidKey(_) => Error::UnfitKey(UnfitKey::Algorithm),
        _ => Error::Signature,
    }
}
