//! The file of `keygate apply`: what organizations, users, permissions, keys and limits are to be.
//!
//! - Its size and its depth are bounded, and it has no aliases and no tags: a small file stays small.
//! - Unknown fields are errors with their line; so are records that are in it twice, and every value that an operation
//!   would refuse: the functions of the operations check all of them before the first change.
//! - A field that is absent is left as it is. `null` where a limit is expected means the configured one.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;

use crate::cli::expiry::FixedExpiry;
use ::control::management::{NewFederationRule, OrgPolicyUpdate, duration_text, given};
use domain::identity::Permission;
use domain::key::KeyId;
use domain::key::policy::Network;
use domain::names;
use platform::settings::Outline;
use state::ClaimPattern;

/// A whole file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Document {
    #[serde(default)]
    pub(super) organizations: Vec<OrgSpec>,
}

/// An organization, named by its name.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OrgSpec {
    pub(super) name: String,
    pub(super) suspended: Option<bool>,
    #[serde(default, deserialize_with = "given::deserialize")]
    pub(super) concurrent: Option<Option<u32>>,
    #[serde(default)]
    pub(super) policy: OrgPolicyUpdate,
    #[serde(default)]
    pub(super) users: Vec<UserSpec>,
    #[serde(default)]
    pub(super) federation_rules: Vec<RuleSpec>,
    #[serde(default)]
    pub(super) keys: Vec<KeySpec>,
}

/// A user: a person, named by the email address, or a service, named by its name.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct UserSpec {
    pub(super) email: Option<String>,
    pub(super) service: Option<String>,
    /// Email address of the person who is responsible for a service.
    pub(super) responsible: Option<String>,
    pub(super) permissions: Option<Vec<Permission>>,
    pub(super) suspended: Option<bool>,
    #[serde(default)]
    pub(super) removed: bool,
}

/// A federation rule, named by its name; all of it but `audiences`, `max` and `tags`, unless it is removed.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RuleSpec {
    pub(super) name: String,
    /// Name of the service whose keys it makes.
    #[serde(default)]
    pub(super) user: String,
    #[serde(default)]
    pub(super) issuer: String,
    #[serde(default)]
    pub(super) audience: String,
    pub(super) audiences: Option<Vec<String>>,
    #[serde(default)]
    pub(super) claims: BTreeMap<String, ClaimPattern>,
    #[serde(default)]
    pub(super) permissions: Vec<Permission>,
    #[serde(default, with = "duration_text::option")]
    pub(super) max: Option<Duration>,
    pub(super) tags: Option<BTreeMap<String, String>>,
    #[serde(default)]
    pub(super) removed: bool,
}

/// A key, named by the SHA-256 of its secret or, when it exists, by its id. One that was made offline has both.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct KeySpec {
    pub(super) id: Option<KeyId>,
    pub(super) sha256: Option<String>,
    pub(super) user: Option<String>,
    pub(super) name: Option<String>,
    #[serde(default, deserialize_with = "given::deserialize")]
    pub(super) limits: Option<Option<LimitSpec>>,
    /// This and the others of the policy: absent as it is, `null` cleared, else the whole value.
    #[serde(default, deserialize_with = "given::deserialize")]
    pub(super) permissions: Option<Option<Vec<Permission>>>,
    #[serde(default, deserialize_with = "given::deserialize")]
    pub(super) expires: Option<Option<FixedExpiry>>,
    #[serde(default, deserialize_with = "given::deserialize")]
    pub(super) networks: Option<Option<Vec<Network>>>,
    #[serde(default, deserialize_with = "given::deserialize")]
    pub(super) concurrent: Option<Option<u32>>,
    #[serde(default, deserialize_with = "given::deserialize")]
    pub(super) tags: Option<Option<BTreeMap<String, String>>>,
    pub(super) disabled: Option<bool>,
    #[serde(default)]
    pub(super) revoked: bool,
}

/// Limits of a key.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LimitSpec {
    pub(super) requests: u32,
    #[serde(with = "duration_text")]
    pub(super) per: Duration,
    /// Without one, as many as `requests`.
    pub(super) burst: Option<u32>,
}

impl Document {
    /// Parses a text, YAML, or JSON, which is YAML as well; with the places of its values.
    pub(super) fn parse(text: &str) -> Result<(Self, Outline), String> {
        // First by the parser of settings, which bounds depth and knows no aliases: what the next
        // one reads is harmless.
        let outline = Outline::parse(text)?;
        let document = serde_yaml::from_str(text).map_err(|error| error.to_string())?;
        Ok((document, outline))
    }

    /// Writes names and handles as the operations do, so that they are compared with those of the state.
    pub(super) fn normalize(&mut self) {
        for org in &mut self.organizations {
            for name in org.keys.iter_mut().filter_map(|key| key.name.as_mut()).chain([&mut org.name]) {
                *name = name.trim().to_owned();
            }
            let of_users =
                org.users.iter_mut().flat_map(|user| [&mut user.email, &mut user.service, &mut user.responsible]);
            let of_keys = org.keys.iter_mut().map(|key| &mut key.user);
            let of_rules = org.federation_rules.iter_mut().map(|rule| &mut rule.user);
            for handle in of_users.chain(of_keys).flatten().chain(of_rules) {
                *handle = names::normalize_handle(handle);
            }
        }
    }
}

impl UserSpec {
    /// The email address or the name of the service. The file was checked to have one of them.
    pub(super) fn handle(&self) -> String {
        self.email.as_deref().or(self.service.as_deref()).map(names::normalize_handle).unwrap_or_default()
    }
}

impl RuleSpec {
    /// The rule that the file wants.
    pub(super) fn to_rule(&self) -> NewFederationRule {
        let mut permissions = self.permissions.clone();
        permissions.sort_unstable();
        permissions.dedup();
        NewFederationRule {
            name: self.name.clone(),
            user: self.user.clone(),
            issuer: self.issuer.clone(),
            audience: self.audience.clone(),
            audiences: self.audiences.clone().unwrap_or_default(),
            claims: self.claims.clone(),
            permissions,
            max: self.max,
            tags: self.tags.clone().unwrap_or_default(),
        }
    }
}

impl KeySpec {
    /// The digest in lower case, and the id: those of the two that are given.
    pub(super) fn references(&self) -> impl Iterator<Item = String> {
        self.digest().into_iter().chain(self.id.map(|id| id.to_string()))
    }

    /// The digest in lower case.
    pub(super) fn digest(&self) -> Option<String> {
        self.sha256.as_ref().map(|digest| digest.to_ascii_lowercase())
    }

    /// The key as messages name it.
    pub(super) fn shown(&self) -> String {
        let reference = self.id.map(|id| id.to_string()).or_else(|| self.name.clone());
        reference.unwrap_or_else(|| self.sha256.clone().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGEST: &str = "d6ca0a5d362fdab49bbf5e6e0a6f03e8f281d6476eef09cf9c1989804e9aea03";

    #[test]
    fn file_is_read_as_yaml_and_as_json() {
        let yaml = format!(
            "organizations:\n  - name: acme\n    concurrent: null\n    users: [{{ email: a@b }}]\n    keys:\n      - \
             {{ sha256: {DIGEST}, name: k, user: a@b, limits: {{ requests: 5, per: 1m }} }}\n"
        );
        let json = format!(
            r#"{{"organizations":[{{"name":"acme","concurrent":null,"users":[{{"email":"a@b"}}],
               "keys":[{{"sha256":"{DIGEST}","name":"k","user":"a@b","limits":{{"requests":5,"per":"1m"}}}}]}}]}}"#
        );
        for text in [yaml, json] {
            let (document, _) = Document::parse(&text).unwrap();
            let org = &document.organizations[0];
            assert_eq!((org.concurrent, org.suspended), (Some(None), None));
            let limits = org.keys[0].limits.unwrap().unwrap();
            assert_eq!((limits.requests, limits.per, limits.burst), (5, Duration::from_secs(60), None));
            assert!(org.users[0].permissions.is_none());
        }
        assert!(
            Document::parse("").is_ok_and(|(document, _)| document.organizations.is_empty())
                || Document::parse("").is_err()
        );
    }

    #[test]
    fn errors_name_their_line() {
        let unknown = Document::parse("organizations:\n  - name: acme\n    users:\n      - emial: a@b\n").unwrap_err();
        assert!(unknown.contains("emial") && unknown.contains("line 4"), "{unknown}");
        let twice = Document::parse("organizations:\n  - name: acme\n    name: globex\n").unwrap_err();
        assert!(twice.contains("name") && twice.contains("line"), "{twice}");
        let wrong = Document::parse("organizations:\n  - name: acme\n    suspended: maybe\n").unwrap_err();
        assert!(wrong.contains("line 3"), "{wrong}");
    }

    #[test]
    fn small_files_stay_small() {
        let bomb = "a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\norganizations: *c\n";
        assert!(Document::parse(bomb).unwrap_err().contains("aliases are not supported"));
        let nested = |depth| Document::parse(&format!("organizations: {}{}", "[".repeat(depth), "]".repeat(depth)));
        assert!(nested(40).unwrap_err().contains("nested too deeply"));
        // The parser has a bound of its own, and a text of its own.
        assert!(nested(100_000).is_err());
    }
}
