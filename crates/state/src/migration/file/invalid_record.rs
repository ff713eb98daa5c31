//! Reasons why a record of a file is not valid.

use crate::{InvalidFederationRule, InvalidPolicy};
use domain::key::InvalidDigest;
use domain::key::policy::InvalidKeyPolicy;
use domain::management_token::InvalidTokenSettings;
use domain::names::{InvalidEmail, InvalidName};
use domain::quota::QuotaError;

/// Reason why a record is not valid.
#[derive(Debug, thiserror::Error)]
pub enum InvalidRecord {
    /// The policy of a key is not valid.
    #[error(transparent)]
    KeyPolicy(#[from] InvalidKeyPolicy),
    /// It is not the JSON of a record.
    #[error("it is not a record: {0}")]
    Json(#[from] serde_json::Error),
    /// A digest is not valid.
    #[error("a digest is not valid: {0}")]
    Digest(#[from] InvalidDigest),
    /// A quota is not valid.
    #[error("a quota is not valid: {0}")]
    Quota(#[from] QuotaError),
    /// The limit of requests in flight of an organization is out of range.
    #[error("concurrent is {0}, and must be 1 to 1000000")]
    Concurrent(u32),
    /// The policy of an organization is not valid.
    #[error("the policy is not valid: {0}")]
    Policy(#[from] InvalidPolicy),
    /// The name of an organization or a key is none that can be given.
    #[error("the name `{}` is not valid: {reason}", .name.escape_debug())]
    Name {
        /// The name.
        name: String,
        /// Reason for that.
        reason: InvalidName,
    },
    /// A name has white space around it, or an email address is not in lower case: no record is written so.
    #[error("`{}` is not written as it was created", .0.escape_debug())]
    NotNormalized(String),
    /// An email address is not valid.
    #[error(transparent)]
    Email(#[from] InvalidEmail),
    /// A bucket has more tokens than it can hold, or a debt that is out of range.
    #[error("the level of a bucket is out of range")]
    Level,
    /// A session quota key has the digest of its user, and no other key has such a digest.
    #[error("the digest belongs to web sessions, or not to those of this user")]
    SessionQuotaDigest,
    /// A digest is there twice.
    #[error("a digest of the key is there twice")]
    DigestTwice,
    /// An actor is not a line of text, or the key has no such change.
    #[error("the actor `{}` is none of a change of this key", .0.escape_debug())]
    Actor(String),
    /// A federation rule is not valid.
    #[error("the rule is not valid: {0}")]
    Rule(#[from] InvalidFederationRule),
    /// A management token is not valid.
    #[error("the token is not valid: {0}")]
    Token(#[from] InvalidTokenSettings),
    /// A management token has an administrator and no organization.
    #[error("the token is not valid: one of an administrator is one of an organization")]
    AdminWithoutOrg,
    /// The creator of a management token is not a line of text.
    #[error("the actor `{}` is none who could create a token", .0.escape_debug())]
    Creator(String),
    /// The spending of a subject began too late or within a second, or is more than a budget can have.
    #[error("what is spent has the start of a second, at most a day ahead, and at most 1,000,000,000,000,000 units")]
    Spent,
    /// The permissions of a user are not sorted, each once.
    #[error("the permissions of a user are sorted, each once")]
    Permissions,
    /// Another record of the file has the same id, name, address or digest.
    #[error("another record of the file has the same {0}")]
    Twice(&'static str),
    /// The organization is not in the lines before.
    #[error("its organization is not in the lines before it")]
    NoOrg,
    /// The key of some digests is not in the lines before.
    #[error("the key of these digests is not in the lines before it")]
    NoKey,
    /// A record belongs to something of another organization.
    #[error("its {0} belongs to another organization")]
    Elsewhere(&'static str),
    /// A rule is not one of a service.
    #[error("its user is a person, and a rule is one of a service")]
    RuleOfPerson,
    /// Services are responsible for each other.
    #[error("a service is responsible for a service, and only a person can be")]
    ServiceResponsible,
    /// The last line stands where a record is expected.
    #[error("it is the last line of a file")]
    End,
}
