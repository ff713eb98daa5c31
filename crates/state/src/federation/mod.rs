//! Federation rules: which tokens of a CI's own identity are exchanged for keys (RFC 8693), and for which.
//!
//! - A rule belongs to an organization, and is named in it. Its keys are those of one service of the organization.
//! - A token is exchanged once under a rule: the state remembers it for longer than it could be presented again
//!   ([`REMEMBERED`]), in the transaction that creates the key.
//! - The keys of a rule are bounded in their rate ([`EXCHANGES`]), in the same transaction, so over all gateways.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{ActorName, duration_text};
use domain::clock::{self, Micros};
use domain::identity::{OrgId, Permission, UserId};
use domain::key::policy::{KeyPolicy, MAX_TAGS};
use domain::quota::Quota;
use domain::session::TokenDigest;

mod pattern;

pub use pattern::{ClaimPattern, InvalidPattern};

/// Keys of one rule: 60 a minute, as many at once. The jobs of a large pipeline begin together.
pub const EXCHANGES: Quota = Quota { requests: 60, per: Duration::from_secs(60), burst: 60, strict: false };
/// Time for which an exchanged token is remembered. One is accepted for ten minutes after its issue, which may lie a
/// minute ahead; the rest is for clocks that differ.
pub const REMEMBERED: Duration = Duration::from_secs(3600);
/// Time after the end of a key of a rule for which it is listed.
pub const LISTED_AFTER_END: Duration = Duration::from_secs(3600);
/// Lifetimes of keys that a rule may have at most.
pub const MAX_LIFETIME: RangeInclusive<Duration> = Duration::from_secs(60)..=Duration::from_secs(12 * 3600);
/// Names of tags that every key of a rule has.
pub const TOKEN_TAGS: [&str; 4] = ["rule", "issuer", "sub", "jti"];

/// Claims of a rule at most.
const MAX_CLAIMS: usize = 16;
/// Audiences of a rule at most.
const MAX_AUDIENCES: usize = 16;
/// Bytes of the name of a claim at most.
const MAX_CLAIM_NAME: usize = 64;
/// Characters of a name at most.
const MAX_NAME: usize = 40;
/// Bytes of an issuer, and of an audience, at most.
const MAX_TEXT: usize = 255;
/// Claims that name the project or its owner, and may stand in place of `sub`, without a wildcard.
const IDENTIFYING: [&str; 8] = [
    "repository_id",
    "repository_owner_id",
    "repository",
    "repository_owner",
    "project_id",
    "namespace_id",
    "project_path",
    "namespace_path",
];

/// Rule by which tokens of an issuer are exchanged for keys of a service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FederationRule {
    /// Its name, unique in the organization: 1 to 40 of `a-z`, `0-9` and `-`.
    pub name: String,
    /// Its organization.
    pub org: OrgId,
    /// The service of the organization whose keys it makes.
    pub user: UserId,
    /// The issuer (`iss`), to the letter.
    pub issuer: String,
    /// The audience (`aud`), to the letter: tokens for others are refused.
    pub audience: String,
    /// The audiences that a token may have besides, to the letter.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub audiences: Vec<String>,
    /// Patterns of claims by their names; all have to match.
    pub claims: BTreeMap<String, ClaimPattern>,
    /// Permissions of its keys, at least one, as far as the service has them; sorted, each once.
    pub permissions: Vec<Permission>,
    /// Lifetime of its keys.
    #[serde(with = "duration_text")]
    pub max: Duration,
    /// Tags of its keys besides [`TOKEN_TAGS`].
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// Time of creation.
    #[serde(with = "clock::rfc3339")]
    pub created: Micros,
    /// Actor who created it; none when it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_by: Option<ActorName>,
}

/// An exchange of a token for a key, as the state checks and remembers it.
#[derive(Clone, Debug)]
pub struct FederationExchange {
    /// The rule as it was read. Once it was changed or removed, nothing is exchanged by it.
    pub rule: FederationRule,
    /// Digest of the token's identity.
    pub token: TokenDigest,
    /// Time of the exchange.
    pub at: Micros,
    /// End of the key.
    pub expires: Micros,
}

/// A change of the rules of an organization.
#[derive(Clone, Debug)]
pub enum RuleChange {
    /// Creates a rule, whose user is a service of the organization.
    Create(Box<FederationRule>),
    /// Removes a rule: from then on nothing is exchanged by it. Its keys stay until they end.
    Remove {
        /// The organization.
        org: OrgId,
        /// The name of the rule.
        name: String,
    },
}

impl RuleChange {
    /// The organization whose rules are changed.
    pub fn org(&self) -> OrgId {
        match self {
            Self::Create(rule) => rule.org,
            Self::Remove { org, .. } => *org,
        }
    }
}

/// Reason why a rule is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidFederationRule {
    /// The name is not one.
    #[error("the name of a rule is 1 to {MAX_NAME} of a-z, 0-9 and -; choose another")]
    Name,
    /// The issuer is empty or too long.
    #[error("the issuer is 1 to {MAX_TEXT} bytes without control characters, as `iss` of the tokens has it")]
    Issuer,
    /// An audience is empty or too long, or there are too many.
    #[error(
        "at most {MAX_AUDIENCES} audiences, each 1 to {MAX_TEXT} bytes without control characters, as `aud` of the \
         tokens has it"
    )]
    Audience,
    /// Too many claims, or one with a name that is empty or too long.
    #[error("a rule has at most {MAX_CLAIMS} claims, with names of 1 to {MAX_CLAIM_NAME} bytes")]
    Claims,
    /// No claim says whose tokens are exchanged.
    #[error(
        "the claims do not say whose tokens are exchanged; give `sub`, or one of {} without a wildcard",
        IDENTIFYING.join(", ")
    )]
    NoSubject,
    /// The subject names no owner.
    #[error(
        "the pattern of `sub` lets tokens of several owners in; name the owner before the first wildcard, as \
         repo:acme/*:ref:refs/heads/main, project_path:acme/*:**, or system:serviceaccount:NAMESPACE:* do, or give one \
         of {} without a wildcard",
        IDENTIFYING.join(", ")
    )]
    Owner,
    /// The rule gives no permission.
    #[error("a rule gives at least one permission, each once, sorted")]
    Permissions,
    /// The lifetime is out of range.
    #[error("the lifetime of a rule's keys is 1m to 12h")]
    Lifetime,
    /// The tags are not valid, too many, or named like those of every rule.
    #[error(
        "a rule has at most {} tags, NAME=VALUE as those of keys, none of them named {}",
        MAX_TAGS - TOKEN_TAGS.len(),
        TOKEN_TAGS.join(", ")
    )]
    Tags,
}

impl FederationRule {
    /// Checks all that does not depend on the state.
    ///
    /// # Errors
    /// [`InvalidFederationRule`].
    pub fn validate(&self) -> Result<(), InvalidFederationRule> {
        let is_text = |text: &str| (1..=MAX_TEXT).contains(&text.len()) && !text.chars().any(char::is_control);
        if !is_rule_name(&self.name) {
            return Err(InvalidFederationRule::Name);
        }
        if !is_text(&self.issuer) {
            return Err(InvalidFederationRule::Issuer);
        }
        let audiences = || self.audiences.iter().chain([&self.audience]);
        if audiences().count() > MAX_AUDIENCES || !audiences().all(|audience| is_text(audience)) {
            return Err(InvalidFederationRule::Audience);
        }
        self.validate_claims()?;
        if self.permissions.is_empty() || !self.permissions.is_sorted_by(|a, b| a < b) {
            return Err(InvalidFederationRule::Permissions);
        }
        if !MAX_LIFETIME.contains(&self.max) {
            return Err(InvalidFederationRule::Lifetime);
        }
        let of_key = KeyPolicy { tags: self.tags.clone(), ..KeyPolicy::default() };
        let are_free = !TOKEN_TAGS.iter().any(|name| self.tags.contains_key(*name));
        if are_free && self.tags.len() + TOKEN_TAGS.len() <= MAX_TAGS && of_key.validate().is_ok() {
            Ok(())
        } else {
            Err(InvalidFederationRule::Tags)
        }
    }

    fn validate_claims(&self) -> Result<(), InvalidFederationRule> {
        let is_name = |name: &String| (1..=MAX_CLAIM_NAME).contains(&name.len()) && !name.chars().any(char::is_control);
        if self.claims.len() > MAX_CLAIMS || !self.claims.keys().all(is_name) {
            return Err(InvalidFederationRule::Claims);
        }
        let is_exact = |name: &&str| self.claims.get(*name).is_some_and(ClaimPattern::is_exact);
        match self.claims.get("sub") {
            _ if IDENTIFYING.iter().any(is_exact) => Ok(()),
            Some(subject) if subject.names_owner() => Ok(()),
            // Of an unknown form, one text names one subject, unless the owners of an issuer choose their subjects.
            Some(subject) if subject.is_exact() && !self.has_composed_subjects() => Ok(()),
            Some(_) => Err(InvalidFederationRule::Owner),
            None => Err(InvalidFederationRule::NoSubject),
        }
    }

    /// Returns whether the issuer is one of GitHub, of any enterprise or server: each repository may compose its
    /// subject of other claims, such as `ref:refs/heads/main`.
    fn has_composed_subjects(&self) -> bool {
        self.issuer.contains("//token.actions.githubusercontent.com") || self.issuer.ends_with("/_services/token")
    }

    /// Returns whether the claims of a verified token match.
    pub fn matches(&self, claims: &Map<String, Value>) -> bool {
        self.mismatch(claims).is_none()
    }

    /// The name of the first claim that does not match; none when all do.
    pub fn mismatch(&self, claims: &Map<String, Value>) -> Option<&str> {
        let matches = |name: &str, pattern: &ClaimPattern| match claims.get(name) {
            Some(Value::String(text)) => pattern.matches(text),
            // Numbers and booleans stand for their text, which has no segments. Lists and objects match nothing.
            Some(value @ (Value::Bool(_) | Value::Number(_))) => pattern.matches(&value.to_string()),
            _ => false,
        };
        self.claims.iter().find(|(name, pattern)| !matches(name, pattern)).map(|(name, _)| name.as_str())
    }

    /// The rule as records have it: JSON.
    pub(crate) fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a rule is texts, and maps and lists of them")
    }
}

/// Returns whether a text can be the name of a rule.
pub fn is_rule_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(is_plain)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rule() -> FederationRule {
        FederationRule {
            name: "deploy".into(),
            org: OrgId::generate(),
            user: UserId::generate(),
            issuer: "https://token.actions.githubusercontent.com".into(),
            audience: "https://api.example.com".into(),
            audiences: Vec::new(),
            claims: claims(&[("sub", "repo:acme/*:ref:refs/heads/main")]),
            permissions: vec!["queries:read".parse().unwrap()],
            max: Duration::from_secs(3600),
            tags: BTreeMap::new(),
            created: Micros(7),
            created_by: None,
        }
    }

    fn claims(claims: &[(&str, &str)]) -> BTreeMap<String, ClaimPattern> {
        claims.iter().map(|(name, pattern)| ((*name).to_owned(), pattern.parse().unwrap())).collect()
    }

    #[test]
    fn rule_says_whose_tokens_it_is_for() {
        assert_eq!(rule().validate(), Ok(()));
        for (of, expected) in [
            (claims(&[("sub", "*")]), Err(InvalidFederationRule::Owner)),
            (claims(&[("sub", "repo:*")]), Err(InvalidFederationRule::Owner)),
            (claims(&[("sub", "repo:*"), ("repository_owner", "acme*")]), Err(InvalidFederationRule::Owner)),
            (claims(&[("sub", "repo:*"), ("repository_owner", "acme")]), Ok(())),
            (claims(&[]), Err(InvalidFederationRule::NoSubject)),
            (claims(&[("ref", "refs/heads/main")]), Err(InvalidFederationRule::NoSubject)),
            (claims(&[("repository", "acme/*")]), Err(InvalidFederationRule::NoSubject)),
            (claims(&[("repository_id", "42")]), Ok(())),
            (claims(&[("repository_owner", "acme"), ("ref", "refs/heads/*")]), Ok(())),
            (claims(&[("", "42"), ("repository_id", "42")]), Err(InvalidFederationRule::Claims)),
        ] {
            assert_eq!(FederationRule { claims: of.clone(), ..rule() }.validate(), expected, "{of:?}");
        }
        let many = (0..17).map(|number| (format!("c{number}"), "x".parse().unwrap())).collect();
        assert_eq!(FederationRule { claims: many, ..rule() }.validate(), Err(InvalidFederationRule::Claims));
    }

    #[test]
    fn subject_of_an_unknown_form_needs_a_claim_that_names_the_owner() {
        let of_issuer = |issuer: &str, of| FederationRule { issuer: issuer.into(), claims: of, ..rule() }.validate();
        let github = "https://token.actions.githubusercontent.com";
        let enterprise = "https://token.actions.githubusercontent.com/acme";
        for issuer in [github, enterprise, "https://git.acme.example/_services/token", "https://ci.acme.example"] {
            for subject in [
                "ref:refs/heads/*",
                "environment:prod:*",
                "event_name:push:ref:refs/heads/*",
                "a/b/c/*",
                "job/x:*",
                "repo:",
            ] {
                let expected = if subject == "repo:" && issuer.ends_with("ci.acme.example") {
                    Ok(())
                } else {
                    Err(InvalidFederationRule::Owner)
                };
                assert_eq!(of_issuer(issuer, claims(&[("sub", subject)])), expected, "{issuer} {subject}");
                assert_eq!(of_issuer(issuer, claims(&[("sub", subject), ("repository_owner_id", "42")])), Ok(()));
            }
            assert_eq!(of_issuer(issuer, claims(&[("sub", "repository_owner:acme:ref:**")])), Ok(()));
        }
        let composed = claims(&[("sub", "ref:refs/heads/main")]);
        assert_eq!(of_issuer(github, composed.clone()), Err(InvalidFederationRule::Owner));
        assert_eq!(of_issuer(enterprise, composed.clone()), Err(InvalidFederationRule::Owner));
        assert_eq!(of_issuer("https://ci.acme.example", composed), Ok(()), "one subject of its own issuer");
    }

    #[test]
    fn fields_of_a_rule_are_bounded() {
        for name in ["", "Deploy", "de ploy", "a/b", &"a".repeat(41)] {
            let named = FederationRule { name: name.to_owned(), ..rule() };
            assert_eq!(named.validate(), Err(InvalidFederationRule::Name), "{name}");
        }
        let permissions = |names: &[&str]| names.iter().map(|name| name.parse().unwrap()).collect();
        for wrong in [permissions(&[]), permissions(&["b", "a"]), permissions(&["a", "a"])] {
            let rule = FederationRule { permissions: wrong, ..rule() };
            assert_eq!(rule.validate(), Err(InvalidFederationRule::Permissions));
        }
        for seconds in [0, 59, 12 * 3600 + 1] {
            let rule = FederationRule { max: Duration::from_secs(seconds), ..rule() };
            assert_eq!(rule.validate(), Err(InvalidFederationRule::Lifetime));
        }
        let tagged = |name: &str| FederationRule { tags: [(name.to_owned(), "v".to_owned())].into(), ..rule() };
        assert_eq!(tagged("team").validate(), Ok(()));
        assert_eq!(tagged("sub").validate(), Err(InvalidFederationRule::Tags));
        assert_eq!(tagged("a=b").validate(), Err(InvalidFederationRule::Tags));
        assert_eq!(FederationRule { issuer: String::new(), ..rule() }.validate(), Err(InvalidFederationRule::Issuer));
        let for_audiences =
            |audience: &str, audiences| FederationRule { audience: audience.into(), audiences, ..rule() };
        assert_eq!(for_audiences("a", vec!["b".to_owned(); 15]).validate(), Ok(()));
        for (audience, more) in [("a\n", vec![]), ("a", vec![String::new()]), ("a", vec!["b".to_owned(); 16])] {
            assert_eq!(for_audiences(audience, more).validate(), Err(InvalidFederationRule::Audience));
        }
    }

    #[test]
    fn all_claims_have_to_match() {
        let of = [("sub", "repo:acme/*:ref:refs/heads/main"), ("run_attempt", "1"), ("ref_protected", "true")];
        let rule = FederationRule { claims: claims(&of), ..rule() };
        let subject = "repo:acme/app:ref:refs/heads/main";
        for (token, mismatch) in [
            (json!({"sub": subject, "run_attempt": "1", "ref_protected": "true", "more": [1]}), None),
            (json!({"sub": subject, "run_attempt": 1, "ref_protected": true}), None),
            (json!({"sub": "repo:evil/app", "run_attempt": 1, "ref_protected": true}), Some("sub")),
            (json!({"sub": [subject], "run_attempt": 1, "ref_protected": true}), Some("sub")),
            (json!({"sub": subject, "run_attempt": 2, "ref_protected": true}), Some("run_attempt")),
            (json!({"sub": subject, "run_attempt": 1, "ref_protected": null}), Some("ref_protected")),
            (json!({"sub": subject, "run_attempt": 1}), Some("ref_protected")),
            (json!({}), Some("ref_protected")),
        ] {
            let token = token.as_object().unwrap();
            assert_eq!(rule.mismatch(token), mismatch, "{token:?}");
            assert_eq!(rule.matches(token), mismatch.is_none());
        }
    }

    #[test]
    fn record_with_an_unknown_field_is_refused() {
        let json = rule().to_json();
        let read: FederationRule = serde_json::from_str(&json).unwrap();
        assert_eq!(read.to_json(), json);
        let wider = json.replacen('{', r#"{"networks":["10.0.0.0/8"],"#, 1);
        assert!(serde_json::from_str::<FederationRule>(&wider).is_err(), "it could narrow");
    }
}
