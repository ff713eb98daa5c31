//! Report of an import, and findings of a comparison.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::difference::has_other_digests;
use crate::StateRecord;
use domain::budget::BudgetSubject;
use domain::counted::counted;
use domain::identity::{OrgId, UserId};
use domain::key::{KeyId, OrgTag};
use domain::management_token::TokenId;

/// Result of an import.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Organizations.
    pub orgs: Count,
    /// Users, removed ones too.
    pub users: Count,
    /// Keys, revoked ones too, and session quota keys.
    pub keys: Count,
    /// Digests that keys have or had.
    pub digests: Count,
    /// Federation rules.
    #[serde(default)]
    pub rules: Count,
    /// Management tokens, revoked ones too.
    #[serde(default)]
    pub tokens: Count,
    /// Subjects of budgets with what they have spent.
    #[serde(default)]
    pub spent: Count,
    /// Management tokens that were not copied because they have expired.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub expired: u64,
    /// Organizations suspended, users removed, withdrawn or suspended, and keys and management tokens revoked because
    /// they are so in the file.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub withdrawn: u64,
    /// Records that were not copied because their organization or their user was not.
    pub left_out: LeftOut,
    /// Records that differ from those on the target, or whose place another one has there. Nothing was changed, but for
    /// withdrawals.
    pub conflicts: Vec<Finding>,
}

/// Number of records that were copied, and of those that existed before and are equal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "each field is what its type says")]
pub struct Count {
    pub copied: u64,
    pub already_there: u64,
}

/// Number of records that were left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "each field is what its type says")]
pub struct LeftOut {
    pub users: u64,
    pub keys: u64,
    #[serde(default)]
    pub rules: u64,
    #[serde(default)]
    pub tokens: u64,
    #[serde(default)]
    pub spent: u64,
}

/// A record, and its mismatch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// The record.
    #[serde(flatten)]
    pub record: Record,
    /// The mismatch.
    pub problem: Mismatch,
}

/// A record of the directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(tag = "record", content = "id", rename_all = "snake_case")]
#[allow(missing_docs, reason = "each is what its name says")]
pub enum Record {
    Org(OrgId),
    User(UserId),
    Key(KeyId),
    /// The id of its organization, a slash, and its name.
    Rule(String),
    Token(TokenId),
    Spent(BudgetSubject),
}

/// Mismatch between a record of the source and the target. It serializes as its text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    /// Another organization has its tag.
    #[error("another organization has its tag: {0}")]
    TagTaken(OrgId),
    /// It has another tag.
    #[error("it is there already, with another tag: {}", .0.as_str())]
    OtherTag(OrgTag),
    /// Another organization has its name.
    #[error("another organization has its name, {name}: {by}")]
    NameTaken {
        /// The name.
        name: String,
        /// Id of the record that has it.
        by: String,
    },
    /// Another user has its address.
    #[error("another user of the organization has its address, {email}: {by}")]
    EmailTaken {
        /// The address.
        email: String,
        /// Id of the record that has it.
        by: String,
    },
    /// Another key has one of its digests.
    #[error("another key has, or had, one of its digests: {0}")]
    DigestTaken(KeyId),
    /// Another management token has its digest.
    #[error("another token has its digest: {0}")]
    SecretTaken(TokenId),
    /// There are as many management tokens as there may be.
    #[error("there are {} already; those that expire make room", counted(.0, "token"))]
    TooManyTokens(u32),
    /// The user who is responsible for a service cannot be.
    #[error("the user who is responsible for it is a service, or one of another organization: {0}")]
    Responsible(UserId),
    /// The other record differs in these fields.
    #[error("it is there, and is not the same: {}", .0.join(", "))]
    Differs(Vec<String>),
    /// Its organization or its user is not on the target.
    #[error("its organization or its user is not there")]
    OwnerMissing,
    /// The text of a mismatch that a gateway reported.
    #[error("{0}")]
    Reported(String),
    /// The other export, or the target, lacks it.
    #[error("it is missing")]
    Missing,
}

impl Report {
    /// Returns true when every record is on the target now.
    pub fn is_complete(&self) -> bool {
        self.conflicts.is_empty() && self.left_out == LeftOut::default()
    }

    /// Returns whether the target was changed.
    pub(super) fn has_changes(&self) -> bool {
        let counts = [self.orgs, self.users, self.keys, self.digests, self.rules, self.tokens, self.spent];
        counts.iter().any(|count| count.copied > 0) || self.withdrawn > 0
    }

    /// Returns whether a key was found to be another one than the target has under its id, or to have another secret.
    pub(super) fn has_other_digests(&self, key: KeyId) -> bool {
        let record = Record::Key(key);
        self.conflicts.iter().any(|finding| finding.record == record && finding.problem.is_of_other_digests())
    }

    /// Adds the counts and findings of another part.
    pub fn add(&mut self, other: Self) {
        let counts = [
            (&mut self.orgs, other.orgs),
            (&mut self.users, other.users),
            (&mut self.keys, other.keys),
            (&mut self.digests, other.digests),
            (&mut self.rules, other.rules),
            (&mut self.tokens, other.tokens),
            (&mut self.spent, other.spent),
        ];
        for (count, more) in counts {
            count.copied += more.copied;
            count.already_there += more.already_there;
        }
        self.expired += other.expired;
        self.withdrawn += other.withdrawn;
        self.left_out.users += other.left_out.users;
        self.left_out.keys += other.left_out.keys;
        self.left_out.rules += other.left_out.rules;
        self.left_out.tokens += other.left_out.tokens;
        self.left_out.spent += other.left_out.spent;
        self.conflicts.extend(other.conflicts);
    }
}

impl Mismatch {
    /// Returns whether a key conflicts with another one, or with one that has another secret.
    pub(super) fn is_of_other_digests(&self) -> bool {
        matches!(self, Self::Differs(fields) if has_other_digests(fields))
    }
}

impl Record {
    /// The id of a record; of more digests, that of their key.
    pub(super) fn of(record: &StateRecord) -> Self {
        match record {
            StateRecord::Org(org) => Self::Org(org.id),
            StateRecord::User(user) => Self::User(user.user.id),
            StateRecord::Key(key) => Self::Key(key.key.id),
            StateRecord::Digests(key, _) => Self::Key(*key),
            StateRecord::Rule(rule) => Self::rule(rule.org, &rule.name),
            StateRecord::Token(token) => Self::Token(token.id),
            StateRecord::Spent(spent) => Self::Spent(spent.subject),
        }
    }

    /// A federation rule.
    pub fn rule(org: OrgId, name: &str) -> Self {
        Self::Rule(format!("{org}/{name}"))
    }
}

impl Count {
    pub(super) fn add_one(&mut self, existed: bool) {
        *(if existed { &mut self.already_there } else { &mut self.copied }) += 1;
    }
}

impl Serialize for Mismatch {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Mismatch {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::Reported)
    }
}

pub(super) fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let problem = &self.problem;
        match &self.record {
            Record::Org(id) => write!(f, "organization {id}: {problem}"),
            Record::User(id) => write!(f, "user {id}: {problem}"),
            Record::Key(id) => write!(f, "key {id}: {problem}"),
            Record::Rule(id) => write!(f, "rule {id}: {problem}"),
            Record::Token(id) => write!(f, "token {id}: {problem}"),
            Record::Spent(subject) => write!(f, "budget counter {subject}: {problem}"),
        }
    }
}
