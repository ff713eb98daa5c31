//! Subject token verification: a JWT that a CI presents in exchange for a key (RFC 8693, RFC 7519).
//!
//! The signature and the claims of all tokens are checked as those of ID tokens are, without a nonce: what keeps a
//! token from being presented twice is its identity, which the caller remembers.

use std::fmt;
use std::time::Duration;

use serde_json::{Map, Value};

use super::error::Error;
use super::jws::unverified_claims;
use super::jwt_verifier::{CLOCK_LEEWAY, JwtVerifier, VerifiedClaims, seconds};
use super::key_set::KeySet;
use domain::secret::Secret;
use domain::session::TokenDigest;

/// Bytes of a token at most. Those of CIs have one or two KiB.
const MAX_TOKEN: usize = 16 << 10;
/// Age of a token at most: it is to be exchanged at the beginning of a job, and not to be kept.
const MAX_AGE: Duration = Duration::from_secs(600);
/// Bytes of a `jti` at most.
const MAX_TOKEN_ID: usize = 1024;

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

impl SubjectToken {
    /// Verifies a token. The error is the first of possibly several.
    pub(super) fn verify(verifier: &JwtVerifier<'_>, raw: &Secret, keys: &KeySet) -> Result<Self, SubjectTokenError> {
        let VerifiedClaims { claims, issued, .. } = verifier.verify(raw, keys)?;
        if issued < seconds(verifier.now.before(MAX_AGE + CLOCK_LEEWAY)) {
            return Err(SubjectTokenError::TooOld);
        }
        Ok(Self { identity: identity(raw, &claims)?, claims })
    }

    /// The issuer that a token claims to have, before any verification; none of what is no token.
    pub fn claimed_issuer(raw: &Secret) -> Option<String> {
        let claims = Some(raw).filter(|raw| raw.expose().len() <= MAX_TOKEN).map(unverified_claims)?.ok()?;
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

impl fmt::Debug for SubjectToken {
    /// Without the claims: they may name people.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SubjectToken").finish_non_exhaustive()
    }
}
