//! Progress and report of a migration.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use domain::identity::{OrgId, UserId};
use domain::key::{KeyId, OrgTag};

/// Progress of a migration, to be read while it runs.
#[derive(Debug, Default)]
pub struct Progress {
    verifying: AtomicU64,
    done: AtomicU64,
    all: AtomicU64,
}

/// Phase of a migration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Missing records are written.
    Copying,
    /// All records are read back and compared.
    Verifying,
}

/// Result of a migration.
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
    /// Keys that existed with fewer uses, and took over uses and bucket of the source.
    pub caught_up: u64,
    /// Organizations suspended, users removed and keys revoked because they are so in the source.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub withdrawn: u64,
    /// Existing records that differ in fields of which none is the stricter, and that stayed as they were.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<Finding>,
    /// Records that were not copied because their organization or their user was not.
    pub left_out: LeftOut,
    /// Records that were not copied because of a conflict with a record on the target, which was not changed.
    pub in_the_way: Vec<Finding>,
    /// Records that differed from the source when they were read back.
    pub differences: Vec<Finding>,
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "record", content = "id", rename_all = "snake_case")]
#[allow(missing_docs, reason = "each is what its name says")]
pub enum Record {
    Org(OrgId),
    User(UserId),
    Key(KeyId),
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
    /// The record on the target differs in these fields.
    #[error("it is there already, and is not the same: {}", .0.join(", "))]
    Differs(Vec<&'static str>),
    /// The target's values of these fields stay.
    #[error("it is there already, and keeps what it has there: {}", .0.join(", "))]
    Kept(Vec<&'static str>),
    /// Its organization or its user is not on the target.
    #[error("its organization or its user is not there")]
    OwnerMissing,
    /// The text of a mismatch that a gateway reported.
    #[error("{0}")]
    Reported(String),
    /// The target lacks it.
    #[error("it is missing")]
    Missing,
    /// The list of its organization has it this number of times, not once.
    #[error("it is {0} times in the list that it should be in once")]
    Listed(usize),
    /// The set of its user's keys lacks it.
    #[error("it is not among the keys of its user")]
    NotAmongUsers,
    /// One of its digests does not lead to it.
    #[error("one of its digests does not lead to it")]
    NotFound,
}

impl Progress {
    /// Begins a phase of this many records.
    pub fn begin(&self, phase: Phase, all: u64) {
        self.verifying.store(u64::from(phase == Phase::Verifying), Ordering::Relaxed);
        self.done.store(0, Ordering::Relaxed);
        self.all.store(all, Ordering::Relaxed);
    }

    /// Counts records that are done.
    pub fn advance(&self, records: usize) {
        self.done.fetch_add(records as u64, Ordering::Relaxed);
    }

    /// The phase, the number of records done in it, and the number of all records.
    pub fn look(&self) -> (Phase, u64, u64) {
        let verifying = self.verifying.load(Ordering::Relaxed) != 0;
        let phase = if verifying { Phase::Verifying } else { Phase::Copying };
        (phase, self.done.load(Ordering::Relaxed), self.all.load(Ordering::Relaxed))
    }
}

impl Report {
    /// Returns true when there was neither a conflict nor a difference.
    pub fn is_complete(&self) -> bool {
        self.in_the_way.is_empty() && self.differences.is_empty()
    }

    /// Notes fields that stayed as they were.
    pub(super) fn keep(&mut self, record: Record, fields: Vec<&'static str>) {
        if !fields.is_empty() {
            self.kept.push(Finding { record, problem: Mismatch::Kept(fields) });
        }
    }

    /// Adds the counts and findings of another part.
    pub fn add(&mut self, other: Self) {
        let counts = [
            (&mut self.orgs, other.orgs),
            (&mut self.users, other.users),
            (&mut self.keys, other.keys),
            (&mut self.digests, other.digests),
        ];
        for (count, more) in counts {
            count.copied += more.copied;
            count.already_there += more.already_there;
        }
        self.caught_up += other.caught_up;
        self.withdrawn += other.withdrawn;
        self.kept.extend(other.kept);
        self.left_out.users += other.left_out.users;
        self.left_out.keys += other.left_out.keys;
        self.in_the_way.extend(other.in_the_way);
        self.differences.extend(other.differences);
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

fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let problem = &self.problem;
        match self.record {
            Record::Org(id) => write!(f, "organization {id}: {problem}"),
            Record::User(id) => write!(f, "user {id}: {problem}"),
            Record::Key(id) => write!(f, "key {id}: {problem}"),
        }
    }
}
