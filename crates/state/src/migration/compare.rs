//! Comparison of two exports: every record of the first is in the second, and is the same there.
//!
//! - The second export is the later one, as after a move to a state from which gateways serve already: a key with more
//!   uses there was used since, and neither its bucket nor its Last Used is compared. So were the subjects of budgets
//!   that have spent otherwise there, unless what they have spent began earlier.
//! - A management token that has expired may have left the second export, and is not compared.
//! - Records that only the second export has are counted, and are no difference.

use std::collections::BTreeMap;
use std::io::BufRead;

use serde::Serialize;

use super::difference::{Sameness, compare_records};
use super::file::{FileError, Reader};
use super::report::{Finding, Mismatch, Record};
use crate::{Excerpt, StateRecord};
use domain::clock::Micros;

/// The records of an export by their ids: some 700 bytes for each key.
#[derive(Default)]
pub struct Records(BTreeMap<Record, StateRecord>);

/// Result of a comparison.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Comparison {
    /// Records that are the same in both.
    pub same: u64,
    /// Keys and budgets that were used after the first export, and are the same in everything else.
    pub used_since: u64,
    /// Records that only the second export has.
    pub only_in_second: u64,
    /// Records that the second export lacks or has otherwise.
    pub differences: Vec<Finding>,
}

impl Records {
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

    /// The record with an id.
    pub fn find(&self, record: &Record) -> Option<&StateRecord> {
        self.0.get(record)
    }

    /// The organizations, users and keys, each key with the digest of its current secret.
    pub fn into_excerpt(self) -> Excerpt {
        let mut excerpt = Excerpt::default();
        for record in self.0.into_values() {
            match record {
                StateRecord::Org(org) => drop(excerpt.orgs.insert(org.id, org)),
                StateRecord::User(export) => drop(excerpt.users.insert(export.user.id, export.user)),
                StateRecord::Key(export) => drop(excerpt.keys.insert(export.key.id, (export.key, export.digest))),
                StateRecord::Digests(..) | StateRecord::Rule(_) | StateRecord::Token(_) | StateRecord::Spent(_) => {}
            }
        }
        excerpt
    }

    fn add(&mut self, record: StateRecord) {
        let id = Record::of(&record);
        match record {
            StateRecord::Digests(_, digests) => {
                if let Some(StateRecord::Key(key)) = self.0.get_mut(&id) {
                    key.replaced.extend(digests);
                }
            }
            record => drop(self.0.insert(id, record)),
        }
    }

    /// All records but the tokens that have expired.
    fn live(&self, now: Micros) -> impl Iterator<Item = (&Record, &StateRecord)> {
        self.0.iter().filter(move |(_, record)| match record {
            StateRecord::Token(token) => now < token.expires,
            _ => true,
        })
    }
}

/// Compares two exports. Buckets are compared as of `now`, and tokens that have expired by then are left out.
pub fn compare(first: &Records, second: &Records, now: Micros) -> Comparison {
    let mut comparison = Comparison::default();
    for (id, record) in first.live(now) {
        let problem = match second.find(id).map(|found| compare_records(record, found, now)) {
            Some(Ok(Sameness::Entirely)) => {
                comparison.same += 1;
                continue;
            }
            Some(Ok(Sameness::UsedSince)) => {
                comparison.used_since += 1;
                continue;
            }
            Some(Err(fields)) => Mismatch::Differs(fields),
            None => Mismatch::Missing,
        };
        comparison.differences.push(Finding { record: id.clone(), problem });
    }
    comparison.only_in_second = second.live(now).filter(|(id, _)| first.find(id).is_none()).count() as u64;
    comparison
}
