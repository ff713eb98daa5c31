//! Audit of a demo with two gateways: what the journals of both say, read as `keygate audit export` and `audit verify`
//! read them.

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::path::Path;

use uuid::Uuid;

use super::numbers::{AuditNumbers, RevokedAudit};
use domain::key::KeyId;
use domain::refusal::Refusal;
use journal::audit::{Filter, Outcome, Reader, RecordKind};

/// Content of the journals.
#[derive(Default)]
pub(super) struct Audit {
    /// Ids of all records of requests.
    ids: HashSet<Uuid>,
    /// Uses of each key by outcome.
    uses: BTreeMap<KeyId, BTreeMap<&'static str, u64>>,
    /// Defects that the verification found.
    pub(super) defects: u64,
}

impl Audit {
    /// Adds a journal, which no gateway writes any more: an open use in it is a defect.
    pub(super) fn add(&mut self, journal: &Path) -> io::Result<()> {
        let reader = Reader::open(journal)?;
        let filter = Filter { kind: Some(RecordKind::Request), ..Filter::default() };
        reader.export(&filter, &mut |record| {
            self.ids.insert(record.id);
            if let Some(key) = record.key_id {
                *self.uses.entry(key).or_default().entry(record.outcome.name()).or_default() += record.uses();
            }
            Ok(())
        })?;
        let report = reader.verify()?;
        self.defects += report.problem_count + report.open;
        Ok(())
    }

    /// Number of these requests that have no record.
    pub(super) fn count_unrecorded<'a>(&self, requests: impl IntoIterator<Item = &'a Uuid>) -> u64 {
        requests.into_iter().filter(|id| !self.ids.contains(id)).count() as u64
    }

    /// Uses of the load's key.
    pub(super) fn of_load(&self, key: KeyId) -> AuditNumbers {
        let [completed, aborted, rate_limited, other] =
            self.split(key, [Outcome::Completed, Outcome::Aborted, Outcome::Refused(Refusal::RateLimited)]);
        AuditNumbers { completed, aborted, rate_limited, other }
    }

    /// Uses of the revoked key.
    pub(super) fn of_revoked(&self, key: KeyId) -> RevokedAudit {
        let [completed, terminated, revoked, other] =
            self.split(key, [Outcome::Completed, Outcome::Terminated, Outcome::Refused(Refusal::Revoked)]);
        RevokedAudit { completed, terminated, revoked, other }
    }

    /// Uses of a key with each of three outcomes, and with any other.
    fn split(&self, key: KeyId, outcomes: [Outcome; 3]) -> [u64; 4] {
        let none = BTreeMap::new();
        let uses = self.uses.get(&key).unwrap_or(&none);
        let [first, second, third] = outcomes.map(|outcome| uses.get(outcome.name()).copied().unwrap_or_default());
        let all: u64 = uses.values().sum();
        [first, second, third, all - first - second - third]
    }
}
