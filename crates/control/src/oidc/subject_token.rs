//! Subject token verification: a JWT that a CI presents in exchange for a key (RFC 8693, RFC 7519).
//!
//! Pure: the token, the key set and the time go in, the claims or an error come out. The signature, `iss`, `aud` and
//! `exp` are checked as those of ID tokens are, without a nonce: what keeps a token from being presented twice is its
//! identity, which the caller remembers.

use std::fmt;
use std::time::{Duration, UNIX_EPOCH};

use openidconnect::core::{CoreIdToken, CoreIdTokenVerifier, CoreJsonWebKeySet, CoreJwsSigningAlgorithm};
use openidconnect::{ClientId, IssuerUrl, Nonce};
use serde_json::{Map, Value};

use super::error::Error;
use super::id_token::{CLOCK_LEEWAY, MAX_SUBJECT, check_not_before, from_claims_error, parse_payload};
use super::key_set::KeySet;
use domain::clock::Micros;
use domain::secret::Secret;
use domain::session::TokenDigest;

/// Bytes of a token at most. Those of CIs have one or two KiB.
const MAX_TOKEN: usize = 16 << 10;
/// Age of a token at most: it is to be exchanged at the beginning of a job, and not to be kept.
const MAX_AGE: Duration = Duration::from_secs(600);
/// Bytes of a `jti` at most.
const MAX_TOKEN_ID: usize = 1024;

/// Values that a token is verified against.
pub(super) struct SubjectTokenVerifier<'a> {
    pub(super) issuer: &'a str,
    /// The audience that the token has to be for.
    pub(super) audience: &'a str,
    /// The only others that it may be for besides.
    pub(super) audiences: &'a [String],
    /// The signature algorithms that both sides accept.
    pub(super) algorithms: &'a [CoreJwsSigningAlgorithm],
    pub(super) now: Micros,
}

/// A verified token.
#[derive(Clone)]
pub struct SubjectToken {
    /// All claims.
    pub claims: Map<String, Value>,
    /// Digest of its identity: of `jti`, or, of a token without one, of what is signed. Two tokens of an issuer that
    /// have the same identity are one.
    pub identity: TokenDigest,
}

/// Reason why a token is not accepted.
#[derive(Debug, thiserror::Error)]
pub enum SubjectTokenError {
    /// The token is too old, whatever its `exp` says.
    #[error("the subject token is older than {} minutes; ask the CI for a new one", MAX_AGE.as_secs() / 60)]
    TooOld,
    /// `jti` is not a text, empty or too long.
    #[error("the subject token has no valid `jti`")]
    TokenId,
    /// The token, or its issuer, is not as it should be.
    #[error("{}", describe(.0))]
    Token(#[from] Error),
}

impl SubjectTokenVerifier<'_> {
    /// Verifies a token. The error is the first of possibly several.
    pub(super) fn verify(&self, raw: &Secret, keys: &KeySet) -> Result<SubjectToken, SubjectTokenError> {
        self.verify_with(raw, &keys.keys).map_err(|error| match error {
            SubjectTokenError::Token(error) => keys.explain(error, raw).into(),
            other => other,
        })
    }

    fn verify_with(&self, raw: &Secret, keys: &CoreJsonWebKeySet) -> Result<SubjectToken, SubjectTokenError> {
        let token: CoreIdToken = raw.expose().parse().map_err(|_| Error::Malformed)?;
        let any_nonce = |_: Option<&Nonce>| Ok(());
        let verified = token.claims(&self.library_verifier(keys), any_nonce);
        let verified = verified.map_err(|error| from_claims_error(error, raw))?;
        let issued = verified.issue_time().timestamp_micros();
        if issued > signed(self.now.after(CLOCK_LEEWAY)) {
            return Err(Error::NotYetValid.into());
        }
        if issued < signed(self.now.before(MAX_AGE + CLOCK_LEEWAY)) {
            return Err(SubjectTokenError::TooOld);
        }
        if verified.subject().is_empty() || verified.subject().len() > MAX_SUBJECT {
            return Err(Error::Subject.into());
        }
        let claims = parse_payload(raw)?;
        check_not_before(&claims, self.now)?;
        Ok(SubjectToken { identity: identity(raw, &claims)?, claims })
    }

    /// The algorithms are chosen here, not by the token: one that chooses `none`, or HS256 with the public key of the
    /// issuer as the secret (algorithm confusion, RFC 8725, section 2.1), is refused before its signature is looked at.
    /// A token for other audiences besides is refused, too, unless they are trusted: those could present it here.
    fn library_verifier(&self, keys: &CoreJsonWebKeySet) -> CoreIdTokenVerifier<'static> {
        let audience = ClientId::new(self.audience.to_owned());
        let issuer = IssuerUrl::new(self.issuer.to_owned()).expect("Issuer::new checked that the issuer is a URL");
        let earliest = UNIX_EPOCH + Duration::from_micros(self.now.before(CLOCK_LEEWAY).0);
        let trusted = self.audiences.to_vec();
        CoreIdTokenVerifier::new_public_client(audience, issuer, keys.clone())
            .set_other_audience_verifier_fn(move |audience| trusted.contains(audience))
            .set_allowed_algs(self.algorithms.iter().cloned())
            .set_time_fn(move || earliest.into())
    }
}

impl SubjectToken {
    /// The issuer that a token claims to have, before any verification; none of what is no token.
    pub fn claimed_issuer(raw: &Secret) -> Option<String> {
        let claims = Some(raw).filter(|raw| raw.expose().len() <= MAX_TOKEN).map(parse_payload)?.ok()?;
        claims.get("iss").and_then(Value::as_str).map(str::to_owned)
    }

    /// A claim that is text.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.claims.get(name).and_then(Value::as_str)
    }
}

impl SubjectTokenError {
    /// The reason, for logs: it never changes.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::TooOld => "too_old",
            Self::TokenId => "token_id",
            Self::Token(error) => error.reason(),
        }
    }

    /// Returns whether the token could not be verified because of its issuer, and not of itself.
    pub fn is_of_issuer(&self) -> bool {
        matches!(
            self,
            Self::Token(
                Error::Issuer(_)
                    | Error::Tls(_)
                    | Error::Unreachable(..)
                    | Error::InvalidResponse(..)
                    | Error::IssuerMismatch(_)
            )
        )
    }

    /// The error and its causes, on one line.
    pub fn in_full(&self) -> String {
        match self {
            Self::Token(error) => error.in_full(),
            other => other.to_string(),
        }
    }

    /// Returns whether the verification may succeed with a newer key set.
    pub(super) fn may_be_rotation(&self) -> bool {
        matches!(self, Self::Token(error) if error.may_be_rotation())
    }
}

/// Digest of a token's identity. Without a `jti` it is what is signed, and not the whole token: its signature may have
/// several forms.
fn identity(raw: &Secret, claims: &Map<String, Value>) -> Result<TokenDigest, SubjectTokenError> {
    match claims.get("jti") {
        Some(Value::String(id)) if (1..=MAX_TOKEN_ID).contains(&id.len()) => {
            Ok(TokenDigest::of(format!("jti {id}").as_bytes()))
        }
        Some(_) => Err(SubjectTokenError::TokenId),
        None => {
            let (signed, _) = raw.expose().rsplit_once('.').ok_or(Error::Malformed)?;
            Ok(TokenDigest::of(format!("token {signed}").as_bytes()))
        }
    }
}

/// An error in words about a subject token.
fn describe(error: &Error) -> &'static str {
    match error {
        Error::Unsigned => "the subject token is not signed",
        Error::Algorithm => "the subject token is signed with an algorithm that is not accepted",
        Error::UnknownKey => "the subject token is signed with a key that is not among those of its issuer",
        Error::UnfitKey(_) => "the key of the issuer that the subject token is signed with is not accepted",
        Error::Signature => "the signature of the subject token is wrong",
        Error::TokenIssuer => "the subject token is of another issuer than the rule's",
        Error::Audience(_) => "the subject token is not for the audiences of the rule alone",
        Error::Expired => "the subject token has expired; if it is new, the clocks differ",
        Error::NotYetValid => "the subject token is from the future: the clocks differ",
        Error::Subject => "the subject token has no valid subject",
        Error::Malformed => "the subject token is no JWT with the claims that are needed",
        _ => "the keys of the issuer cannot be read; try again",
    }
}

fn signed(time: Micros) -> i64 {
    i64::try_from(time.0).unwrap_or(i64::MAX)
}

impl fmt::Debug for SubjectToken {
    /// Without the claims: they may name people.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SubjectToken").finish_non_exhaustive()
    }
}
