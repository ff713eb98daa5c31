//! Verification of a token of an issuer, as far as ID tokens and subject tokens are verified alike (OpenID Connect Core
//! 1.0, section 3.1.3.7; RFC 7519, section 4.1).
//!
//! Pure: the token, the key set and the time go in, the claims or an error come out.

use std::time::Duration;

use serde_json::{Map, Value};

use super::error::Error;
use super::invalid_response::ErrorDescription;
use super::jws::{Algorithm, Token};
use super::key_set::KeySet;
use domain::clock::Micros;
use domain::secret::Secret;

/// Difference allowed between the clocks of the issuer and of this gateway.
pub(super) const CLOCK_LEEWAY: Duration = Duration::from_secs(60);
/// The longest subject, in bytes (OpenID Connect Core 1.0, section 2).
const MAX_SUBJECT: usize = 255;
/// Bound of all times, in seconds: the year 262142. A time beyond it is malformed.
const MAX_TIME: f64 = 8.21e12;

/// Values that a token is verified against.
pub(super) struct JwtVerifier<'a> {
    pub(super) issuer: &'a str,
    /// The audience that the token has to be for.
    pub(super) audience: &'a str,
    /// The only others that it may be for besides: those could present it here.
    pub(super) audiences: &'a [String],
    /// The signature algorithms that both sides accept.
    pub(super) algorithms: &'a [Algorithm],
    pub(super) now: Micros,
}

/// Verified claims.
pub(super) struct VerifiedClaims {
    pub(super) claims: Map<String, Value>,
    pub(super) algorithm: Algorithm,
    /// `iat`, in seconds.
    pub(super) issued: f64,
}

impl JwtVerifier<'_> {
    /// Verifies a token, and returns its claims. The error is the first of possibly several.
    pub(super) fn verify(&self, raw: &Secret, keys: &KeySet) -> Result<VerifiedClaims, Error> {
        self.verify_with(raw, &keys.keys).map_err(|error| keys.explain(error, raw))
    }

    fn verify_with(&self, raw: &Secret, keys: &[Value]) -> Result<VerifiedClaims, Error> {
        let token = Token::parse(raw)?;
        let claims = &token.claims;
        let issuer = required_text(claims, "iss")?;
        let subject = required_text(claims, "sub")?;
        let (expiry, issued) = (time_claim(claims, "exp")?, time_claim(claims, "iat")?);
        if issuer != self.issuer {
            return Err(Error::TokenIssuer);
        }
        self.check_audience(claims)?;
        let algorithm = token.algorithm(self.algorithms)?;
        token.verify(algorithm, keys)?;
        let (earliest, latest) = (seconds(self.now.before(CLOCK_LEEWAY)), seconds(self.now.after(CLOCK_LEEWAY)));
        if expiry <= earliest {
            return Err(Error::Expired);
        }
        if issued > latest || claims.contains_key("nbf") && time_claim(claims, "nbf")? > latest {
            return Err(Error::NotYetValid);
        }
        if subject.is_empty() || subject.len() > MAX_SUBJECT {
            return Err(Error::Subject);
        }
        Ok(VerifiedClaims { algorithm, issued, claims: token.claims })
    }

    /// `aud` has to have the audience, and no other than those listed.
    fn check_audience(&self, claims: &Map<String, Value>) -> Result<(), Error> {
        let found: Option<Vec<&str>> = match claims.get("aud") {
            None => Some(Vec::new()),
            Some(Value::String(one)) => Some(vec![one]),
            Some(Value::Array(list)) => list.iter().map(Value::as_str).collect(),
            Some(_) => None,
        };
        let found = found.ok_or(Error::Malformed)?;
        let is_trusted = |audience: &&str| self.audiences.iter().any(|trusted| trusted == audience);
        let is_accepted = |audience: &&str| *audience == self.audience || is_trusted(audience);
        if found.contains(&self.audience) && found.iter().all(is_accepted) {
            return Ok(());
        }
        Err(Error::Audience(ErrorDescription::new(&found.join(", "))))
    }
}

/// A claim that is text, if it is there.
pub(super) fn text_claim<'c>(claims: &'c Map<String, Value>, name: &str) -> Result<Option<&'c str>, Error> {
    match claims.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => value.as_str().map(Some).ok_or(Error::Malformed),
    }
}

fn required_text<'c>(claims: &'c Map<String, Value>, name: &str) -> Result<&'c str, Error> {
    text_claim(claims, name)?.ok_or(Error::Malformed)
}

/// A time in seconds (`NumericDate`, RFC 7519, section 2).
fn time_claim(claims: &Map<String, Value>, name: &str) -> Result<f64, Error> {
    let time = claims.get(name).and_then(Value::as_f64);
    time.filter(|time| time.abs() < MAX_TIME).ok_or(Error::Malformed)
}

/// A time in seconds.
pub(super) fn seconds(time: Micros) -> f64 {
    Duration::from_micros(time.0).as_secs_f64()
}
