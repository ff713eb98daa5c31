//! Trial of changes: a state in memory with some records of another one. What is changed in it is changed nowhere else.
//!
//! A dry run performs the operations themselves on such a state, so that it refuses what they refuse.

use std::collections::BTreeMap;

use super::bucket::Bucket;
use super::embedded::{Embedded, OpenError};
use super::import::{Import, ImportError, Importer};
use super::{Defaults, FederationRule, Key, KeyActors, KeyExport, Org, State, User};
use domain::clock::Micros;
use domain::identity::{OrgId, UserId};
use domain::key::{KeyDigest, KeyId};
use domain::management_token::ManagementToken;
use domain::quota::Quota;

/// Some records of a state: each with those that it names, a key with its user, a user with its organization.
#[derive(Debug, Default)]
#[allow(missing_docs, reason = "the records by their ids")]
pub struct Excerpt {
    pub orgs: BTreeMap<OrgId, Org>,
    pub users: BTreeMap<UserId, User>,
    pub rules: BTreeMap<(OrgId, String), FederationRule>,
    /// Keys, each with a digest by which it is found.
    pub keys: BTreeMap<KeyId, (Key, KeyDigest)>,
    pub token: Option<ManagementToken>,
}

/// The state of a trial could not be made.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the sources say what they are")]
pub enum TrialError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Import(#[from] ImportError),
}

impl State {
    /// A state in memory with these records, and with the configured limits of this one.
    ///
    /// # Errors
    /// [`TrialError`]; a record whose user or organization is missing.
    pub async fn trial(&self, excerpt: Excerpt, now: Micros) -> Result<Self, TrialError> {
        Self::of_excerpt(self.defaults(), excerpt, now).await
    }

    /// A state in memory with these records and these configured limits. The buckets of its keys are full.
    ///
    /// # Errors
    /// As [`State::trial`].
    pub async fn of_excerpt(defaults: Defaults, excerpt: Excerpt, now: Micros) -> Result<Self, TrialError> {
        let trial = Self::Embedded(Embedded::in_memory(defaults)?);
        let quotas = excerpt.quotas(&trial.defaults());
        let Excerpt { orgs, users, rules, keys, token } = excerpt;
        let tags: BTreeMap<_, _> = orgs.values().map(|org| (org.id, org.tag)).collect();
        let mut imports: Vec<Import> = orgs.into_values().map(Import::Org).collect();
        imports.extend(users.into_values().filter_map(|user| {
            let tag = *tags.get(&user.org)?;
            Some(Import::User { tag, user, creation: None })
        }));
        imports.extend(rules.into_values().filter_map(|rule| {
            let tag = *tags.get(&rule.org)?;
            Some(Import::Rule { tag, rule: Box::new(rule) })
        }));
        let exports = keys.into_values().zip(quotas).map(|((key, digest), quota)| export_of(key, digest, quota));
        imports.extend(exports.map(|export| Import::Key(Box::new(export))));
        imports.extend(token.map(|token| Import::Token { token: Box::new(token), now }));
        Importer(&trial).write(imports).await?;
        Ok(trial)
    }
}

impl Excerpt {
    /// The quotas in force of its keys, in their order.
    fn quotas(&self, defaults: &Defaults) -> Vec<Quota> {
        let in_force =
            |key: &Key| defaults.limits_of_key(key, self.users.get(&key.user), self.orgs.get(&key.org)).quota;
        self.keys.values().map(|(key, _)| in_force(key)).collect()
    }
}

/// A key as an import takes it, with a full bucket.
fn export_of(key: Key, digest: KeyDigest, quota: Quota) -> KeyExport {
    let bucket = Bucket::full(quota, key.created);
    KeyExport { key, digest, previous: None, replaced: Vec::new(), bucket, quota, actors: KeyActors::default() }
}
