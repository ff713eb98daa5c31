//! What a copy tells: how far it is, what it has done, and what was wrong.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Serialize, Serializer};

use crate::identity::{OrgId, UserId};
use crate::key::{KeyId, OrgTag};

/// How far a copy is; to be looked at by whoever waits for it.
#[derive(Debug, Default)]
pub struct Progress {
    verifying: AtomicU64,
    done: AtomicU64,
    all: AtomicU64,
}

/// What a copy does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It writes what is missing.
    Copying,
    /// It reads everything back.
    Verifying,
}

/// What a copy has done.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    /// Organizations.
    pub orgs: Count,
    /// Users, removed ones too.
    pub users: Count,
    /// Keys, revoked ones too, and session quota keys.
    pub keys: Count,
    /// Digests that keys have or had.
    pub digests: Count,
    /// Keys that were there with fewer uses, and took over uses and bucket.
    pub caught_up: u64,
    /// What was not copied because the organization or the user that it belongs to was not.
    pub left_out: LeftOut,
    /// What could not be copied, because something else is where it belongs. Nothing of that was changed.
    pub in_the_way: Vec<Finding>,
    /// What was not as it should be when all was read back.
    pub differences: Vec<Finding>,
}

/// How many records were copied, and how many were there before and are the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "each field is what its type says")]
pub struct Count {
    pub copied: u64,
    pub already_there: u64,
}

/// How many records were left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "each field is what its type says")]
pub struct LeftOut {
    pub users: u64,
    pub keys: u64,
}

/// A record, and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Which.
    #[serde(flatten)]
    pub record: Record,
    /// What.
    pub problem: Mismatch,
}

/// A record of the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(tag = "record", content = "id", rename_all = "snake_case")]
#[allow(missing_docs, reason = "each is what its name says")]
pub enum Record {
    Org(OrgId),
    User(UserId),
    Key(KeyId),
}

/// What is wrong with a record. It serializes as its text.
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
        /// Who has it.
        by: String,
    },
    /// Another user has its address.
    #[error("another user of the organization has its address, {email}: {by}")]
    EmailTaken {
        /// The address.
        email: String,
        /// Who has it.
        by: String,
    },
    /// Another key has one of its digests.
    #[error("another key has, or had, one of its digests: {0}")]
    DigestTaken(KeyId),
    /// There is a record with its id and another content.
    #[error("it is there already, and is not the same: {}", .0.join(", "))]
    Differs(Vec<&'static str>),
    /// It is not there after all.
    #[error("it is missing")]
    Missing,
    /// It is not once in the list of its organization.
    #[error("it is {0} times in the list that it should be in once")]
    Listed(usize),
    /// It is not among the keys of its user.
    #[error("it is not among the keys of its user")]
    NotAmongUsers,
    /// A digest does not lead to it.
    #[error("one of its digests does not lead to it")]
    NotFound,
}

impl Progress {
    pub(super) fn begin(&self, phase: Phase, all: u64) {
        self.verifying.store(u64::from(phase == Phase::Verifying), Ordering::Relaxed);
        self.done.store(0, Ordering::Relaxed);
        self.all.store(all, Ordering::Relaxed);
    }

    pub(super) fn advance(&self, records: usize) {
        self.done.fetch_add(records as u64, Ordering::Relaxed);
    }

    /// What it does, how many records it has done, and of how many.
    pub fn look(&self) -> (Phase, u64, u64) {
        let verifying = self.verifying.load(Ordering::Relaxed) != 0;
        let phase = if verifying { Phase::Verifying } else { Phase::Copying };
        (phase, self.done.load(Ordering::Relaxed), self.all.load(Ordering::Relaxed))
    }
}

impl Report {
    /// Whether everything is there, and as it was.
    pub fn is_complete(&self) -> bool {
        self.in_the_way.is_empty() && self.differences.is_empty()
    }

    pub(super) fn add(&mut self, other: Self) {
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
