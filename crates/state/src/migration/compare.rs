//! Comparison of two exports: every record of the first is in the second, and is the same there.
//!
//! - The second export is the later one, as after a move to a state from which gateways serve already: a key with more
//!   uses there was used since, and neither its bucket nor its Last Used is compared.
//! - A management token that has expired may have left the second export, and is not compared.
//! - Records that only the second export has are counted, and are no difference.

use std::collections::BTreeMap;
use std::io::BufRead;

use serde::Serialize;

use super::file::{FileError, Reader};
use super::report::{Finding, Mismatch, Record};
use super::{keys, orgs, rules, tokens, users};
use crate::{CreationBucket, FederationRule, KeyEvent, KeyExport, Org, StateRecord, UserExport};
use domain::clock::Micros;
use domain::identity::{OrgId, UserId};
use domain::key::KeyId;
use domain::management_token::{ManagementToken, TokenId};

/// The records of an export by their ids: some 700 bytes for each key.
#[derive(Default)]
pub struct Records {
    orgs: BTreeMap<OrgId, Org>,
    users: BTreeMap<UserId, UserExport>,
    keys: BTreeMap<KeyId, KeyExport>,
    rules: BTreeMap<(OrgId, String), FederationRule>,
    tokens: BTreeMap<TokenId, ManagementToken>,
}

/// Result of a comparison.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Comparison {
    /// Records that are the same in both.
    pub same: u64,
    /// Keys that were used after the first export, and are the same in everything else.
    pub used_since: u64,
    /// Records that only the second export has.
    pub only_in_second: u64,
    /// Records that the second export lacks or has otherwise.
    pub differences: Vec<Finding>,
}

/// A record that is the same in both exports.
enum Sameness {
    Entirely,
    /// But for later uses.
    UsedSince,
}

impl Records {
    /// An organization.
    pub fn org(&self, id: OrgId) -> Option<&Org> {
        self.orgs.get(&id)
    }

    /// A user, who may be removed.
    pub fn user(&self, id: UserId) -> Option<&UserExport> {
        self.users.get(&id)
    }

    /// A key.
    pub fn key(&self, id: KeyId) -> Option<&KeyExport> {
        self.keys.get(&id)
    }

    /// A federation rule of an organization.
    pub fn rule(&self, org: OrgId, name: &str) -> Option<&FederationRule> {
        self.rules.get(&(org, name.to_owned()))
    }

    /// A management token.
    pub fn token(&self, id: TokenId) -> Option<&ManagementToken> {
        self.tokens.get(&id)
    }

    /// Reads a whole file, and checks it like an import.
    ///
    /// # Errors
    /// The first error of the file.
    pub fn read(input: impl BufRead) -> Result<Self, FileError> {
        let (mut reader, _) = Reader::begin(input)?;
        let mut records = Self::default();
        while let Some(record) = reader.next_record()? {
            records.add(record);
        }
        Ok(records)
    }

    fn add(&mut self, record: StateRecord) {
        match record {
            StateRecord::Org(org) => drop(self.orgs.insert(org.id, org)),
            StateRecord::User(user) => drop(self.users.insert(user.user.id, *user)),
            StateRecord::Key(key) => drop(self.keys.insert(key.key.id, *key)),
            StateRecord::Digests(key, digests) => {
                if let Some(key) = self.keys.get_mut(&key) {
                    key.replaced.extend(digests);
                }
            }
            StateRecord::Rule(rule) => drop(self.rules.insert((rule.org, rule.name.clone()), *rule)),
            StateRecord::Token(token) => drop(self.tokens.insert(token.id, *token)),
        }
    }

    /// The tokens that have not expired.
    fn live_tokens(&self, now: Micros) -> impl Iterator<Item = &ManagementToken> {
        self.tokens.values().filter(move |token| now < token.expires)
    }

    fn count(&self, now: Micros) -> usize {
        let tokens = self.live_tokens(now).count();
        self.orgs.len() + self.users.len() + self.keys.len() + self.rules.len() + tokens
    }
}

/// Compares two exports. Buckets are compared as of `now`, and tokens that have expired by then are left out.
pub fn compare(first: &Records, second: &Records, now: Micros) -> Comparison {
    let mut comparison = Comparison::default();
    for (id, org) in &first.orgs {
        comparison.add(Record::Org(*id), second.orgs.get(id), |found| entirely(orgs::differences(org, found)));
    }
    for (id, user) in &first.users {
        comparison.add(Record::User(*id), second.users.get(id), |found| entirely(user_differences(user, found)));
    }
    for (id, key) in &first.keys {
        comparison.add(Record::Key(*id), second.keys.get(id), |found| compare_keys(key, found, now));
    }
    for (name, rule) in &first.rules {
        let found = second.rules.get(name);
        comparison.add(Record::of_rule(rule), found, |found| entirely(rules::differences(rule, found)));
    }
    for token in first.live_tokens(now) {
        let found = second.tokens.get(&token.id);
        comparison.add(Record::Token(token.id), found, |found| entirely(tokens::differences(token, found)));
    }
    let found = first.count(now) - comparison.count_missing();
    comparison.only_in_second = second.count(now).saturating_sub(found) as u64;
    comparison
}

impl Comparison {
    fn add<T>(
        &mut self,
        record: Record,
        found: Option<&T>,
        compare: impl FnOnce(&T) -> Result<Sameness, Vec<&'static str>>,
    ) {
        let problem = match found.map(compare) {
            Some(Ok(Sameness::Entirely)) => return self.same += 1,
            Some(Ok(Sameness::UsedSince)) => return self.used_since += 1,
            Some(Err(fields)) => Mismatch::Differs(fields),
            None => Mismatch::Missing,
        };
        self.differences.push(Finding { record, problem });
    }

    fn count_missing(&self) -> usize {
        self.differences.iter().filter(|finding| finding.problem == Mismatch::Missing).count()
    }
}

fn entirely(differences: Vec<&'static str>) -> Result<Sameness, Vec<&'static str>> {
    if differences.is_empty() { Ok(Sameness::Entirely) } else { Err(differences) }
}

fn user_differences(first: &UserExport, second: &UserExport) -> Vec<&'static str> {
    let mut differences = users::differences(&first.user, &second.user);
    let time = |creation: Option<CreationBucket>| creation.map(|creation| creation.bucket.at);
    let created_since = time(second.creation) > time(first.creation);
    if first.creation != second.creation && !created_since {
        differences.push("bucket of key creation");
    }
    differences
}

fn compare_keys(first: &KeyExport, second: &KeyExport, now: Micros) -> Result<Sameness, Vec<&'static str>> {
    let mut differences = keys::differences(first, second);
    if first.digests().any(|digest| second.digests().all(|other| other != digest)) {
        differences.push("digests");
    }
    differences.extend(actor_differences(first, second));
    if first.key.uses < second.key.uses {
        return entirely(differences).map(|_| Sameness::UsedSince);
    }
    if first.key.uses > second.key.uses {
        differences.push("uses");
    }
    if first.key.last_used != second.key.last_used {
        differences.push("last used");
    }
    let quota = second.quota;
    if first.bucket_under(quota, now).refill(quota, now) != second.bucket.refill(quota, now) {
        differences.push("bucket");
    }
    entirely(differences)
}

/// The known actors of the first key that the second one does not have.
fn actor_differences(first: &KeyExport, second: &KeyExport) -> impl Iterator<Item = &'static str> {
    let is_other = |event: &KeyEvent| first.actor(*event).is_some_and(|actor| second.actor(*event) != Some(actor));
    KeyEvent::ALL.into_iter().filter(is_other).map(|event| match event {
        KeyEvent::Created => "created by",
        KeyEvent::Rotated => "rotated by",
        KeyEvent::Revoked => "revoked by",
    })
}
