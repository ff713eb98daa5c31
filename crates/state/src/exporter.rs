//! Export of a state as a sequence of records, some at a time: what a backup and a migration read.
//!
//! - The order is the same for all variants of the state: the organizations in the order of their creation; then, for
//!   each of them, its users in the order of their creation, its federation rules by their names, and its keys in the
//!   order of their ids; at the end the management tokens in the order of their creation. Some organizations, users or
//!   keys are followed by what those of them have spent that are the subject of a budget.
//! - Memory is bounded by the ids and the rules of one organization, and by all tokens, which are few; on Redis, where
//!   no list has all keys, by 48 bytes for each digest.
//! - A record is consistent in itself. One that is changed during the export is in it as before or after the change,
//!   and one that is created meanwhile may be missing.
//! - Tokens of a CI that were exchanged, and idempotency records, are left out: they are forgotten soon.
//! - Web sessions and tickets are left out. An ended session leaves nothing behind by which another state could know
//!   that it has ended: to import it would bring it back.

use std::collections::VecDeque;
use std::sync::Arc;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};

use super::{
    FederationRule, KeyExport, Org, SpentExport, State, StorageError, TokenPosition, Unavailable, UserExport, redis,
};
use crate::spending::Spending;
use domain::budget::{BudgetSubject, MAX_UNITS};
use domain::identity::{OrgId, UserId};
use domain::key::{KeyDigest, KeyId, OrgTag};
use domain::management_token::ManagementToken;

/// Records that are read together.
const CHUNK: usize = 256;

/// A record of a state.
#[derive(Clone, Debug)]
pub enum StateRecord {
    /// An organization.
    Org(Org),
    /// A user.
    User(Box<UserExport>),
    /// A key.
    Key(Box<KeyExport>),
    /// More digests that a key had, where they are too many for its own record.
    Digests(KeyId, Vec<KeyDigest>),
    /// A federation rule.
    Rule(Box<FederationRule>),
    /// A management token.
    Token(Box<ManagementToken>),
    /// Spending of the subject of a budget.
    Spent(SpentExport),
}

/// Reads all records of a state, in their order.
pub struct Exporter<'a> {
    state: &'a State,
    source: Source<'a>,
    /// The steps that are left, the next one first.
    steps: VecDeque<Step>,
}

enum Source<'a> {
    Embedded(&'a super::Embedded),
    Redis(redis::export::Reader<'a>),
}

/// A step of an export: one that lists ids is replaced by those that read their records.
enum Step {
    Orgs(Vec<Arc<Org>>),
    ListUsers(Arc<Org>),
    Users(Arc<Org>, Vec<UserId>),
    ListRules(Arc<Org>),
    ListKeys(Arc<Org>),
    Keys(Vec<KeyId>),
    ListTokens,
    /// Records that were read with their list.
    Records(Vec<StateRecord>),
}

impl<'a> Exporter<'a> {
    /// Begins an export. On Redis this reads the index of digests.
    ///
    /// # Errors
    /// [`StorageError`].
    pub async fn begin(state: &'a State) -> Result<Self, StorageError> {
        let source = match state {
            State::Embedded(state) => Source::Embedded(state),
            State::Redis(state) => Source::Redis(state.export_reader().await.map_err(StorageError::Redis)?),
        };
        let orgs = state.orgs().await.map_err(StorageError::Redis)?;
        let orgs: Vec<Arc<Org>> = orgs.into_iter().map(Arc::new).collect();
        let mut steps: VecDeque<Step> = orgs.chunks(CHUNK).map(|chunk| Step::Orgs(chunk.to_vec())).collect();
        for org in orgs {
            steps.extend([Step::ListUsers(Arc::clone(&org)), Step::ListRules(Arc::clone(&org)), Step::ListKeys(org)]);
        }
        steps.push_back(Step::ListTokens);
        Ok(Self { state, source, steps })
    }

    /// Reads the next records; none when all were read.
    ///
    /// # Errors
    /// [`StorageError`]; the export cannot go on then.
    pub async fn next(&mut self) -> Result<Option<Vec<StateRecord>>, StorageError> {
        while let Some(step) = self.steps.pop_front() {
            let records = match step {
                Step::Orgs(orgs) => {
                    let records = orgs.iter().map(|org| StateRecord::Org(Org::clone(org))).collect();
                    self.with_spent(records, orgs.iter().map(|org| (org.tag, org.id, BudgetSubject::Org(org.id))))
                        .await?
                }
                Step::ListUsers(org) => {
                    let ids = self.user_ids(&org).await?;
                    self.read_next(&ids, |chunk| Step::Users(Arc::clone(&org), chunk));
                    continue;
                }
                Step::Users(org, ids) => self.users(&org, &ids).await?,
                Step::ListRules(org) => {
                    let rules = self.state.federation_rules(org.id).await.map_err(StorageError::Redis)?;
                    let records: Vec<_> = rules.into_iter().map(|rule| StateRecord::Rule(Box::new(rule))).collect();
                    self.read_next(&records, Step::Records);
                    continue;
                }
                Step::ListKeys(org) => {
                    let ids = self.key_ids(&org).await?;
                    self.read_next(&ids, Step::Keys);
                    continue;
                }
                Step::Keys(ids) => self.keys(&ids).await?,
                Step::ListTokens => {
                    let mut tokens = self.state.management_tokens().await.map_err(StorageError::Redis)?;
                    tokens.sort_unstable_by_key(|token| TokenPosition::from(token));
                    let records: Vec<_> = tokens.into_iter().map(|token| StateRecord::Token(Box::new(token))).collect();
                    self.read_next(&records, Step::Records);
                    continue;
                }
                Step::Records(records) => records,
            };
            if !records.is_empty() {
                return Ok(Some(records));
            }
        }
        Ok(None)
    }

    /// Has the records with these ids read next, in this order, or the records themselves.
    fn read_next<I: Clone>(&mut self, ids: &[I], step: impl Fn(Vec<I>) -> Step) {
        for chunk in ids.chunks(CHUNK).rev() {
            self.steps.push_front(step(chunk.to_vec()));
        }
    }

    async fn user_ids(&self, org: &Org) -> Result<Vec<UserId>, StorageError> {
        match &self.source {
            Source::Embedded(state) => Ok(state.exported_user_ids(org.id)),
            Source::Redis(reader) => reader.user_ids(org).await.map_err(StorageError::Redis),
        }
    }

    async fn users(&self, org: &Org, ids: &[UserId]) -> Result<Vec<StateRecord>, StorageError> {
        let users = match &self.source {
            Source::Embedded(state) => state.exported_users(ids).await?,
            Source::Redis(reader) => reader.users(org, ids).await.map_err(StorageError::Redis)?,
        };
        let records = users.into_iter().map(|user| StateRecord::User(Box::new(user))).collect();
        self.with_spent(records, ids.iter().map(|id| (org.tag, org.id, BudgetSubject::User(*id)))).await
    }

    async fn key_ids(&self, org: &Org) -> Result<Vec<KeyId>, StorageError> {
        match &self.source {
            Source::Embedded(state) => state.exported_key_ids(org.id, org.tag).await,
            Source::Redis(reader) => Ok(reader.key_ids(org.tag)),
        }
    }

    async fn keys(&self, ids: &[KeyId]) -> Result<Vec<StateRecord>, StorageError> {
        let (mut keys, spent): (Vec<KeyExport>, Vec<Spending>) = match &self.source {
            Source::Embedded(state) => {
                let keys = state.exported_keys(ids).await?;
                let spent = keys.iter().map(|key| state.spending_of(BudgetSubject::Key(key.key.id))).collect();
                (keys, spent)
            }
            // Read with the record: a command for each key takes a fifth of the time of an export.
            Source::Redis(reader) => reader.keys(ids).await.map_err(StorageError::Redis)?.into_iter().unzip(),
        };
        keys.iter_mut().for_each(|key| key.replaced.sort_unstable_by_key(|digest| *digest.as_bytes()));
        let ids: Vec<KeyId> = keys.iter().map(|key| key.key.id).collect();
        let actors = match &self.source {
            Source::Embedded(state) => state.read_key_actors(&ids).await?,
            Source::Redis(reader) => reader.actors(&ids).await.map_err(StorageError::Redis)?,
        };
        keys.iter_mut().zip(actors).for_each(|(key, actors)| key.actors = actors);
        let subjects = keys.iter().map(|KeyExport { key, .. }| (key.org, BudgetSubject::Key(key.id)));
        let spent = subjects.zip(spent).filter_map(|((org, subject), spent)| spent_record(org, subject, spent));
        let spent: Vec<StateRecord> = spent.collect();
        Ok(keys.into_iter().map(|key| StateRecord::Key(Box::new(key))).chain(spent).collect())
    }

    /// The records, and after them what these subjects have spent, as far as they have.
    async fn with_spent(
        &self,
        mut records: Vec<StateRecord>,
        subjects: impl Iterator<Item = (OrgTag, OrgId, BudgetSubject)>,
    ) -> Result<Vec<StateRecord>, StorageError> {
        let read = subjects.map(async |(tag, org, subject)| {
            let spending = self.state.spending_of(tag, subject).await?;
            Ok::<_, Unavailable>(spent_record(org, subject, spending))
        });
        let spent: Vec<_> = stream::iter(read).buffered(CHUNK).try_collect().await.map_err(StorageError::Redis)?;
        records.extend(spent.into_iter().flatten());
        Ok(records)
    }
}

/// The record of a subject that has spent anything.
fn spent_record(org: OrgId, subject: BudgetSubject, spending: Spending) -> Option<StateRecord> {
    // A response may cost more than is left: an import takes no more units than a budget has at most.
    let units = spending.used().min(MAX_UNITS);
    let spent = SpentExport { subject, org, start: spending.start, units };
    (spending != Spending::default()).then_some(StateRecord::Spent(spent))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::embedded::{Embedded, Settings};
    use crate::import::{Import, Importer};
    use crate::{Org, User};
    use domain::clock::Micros;
    use domain::identity::OrgId;
    use domain::key::OrgTag;
    use domain::quota::Quota;

    #[tokio::test]
    async fn records_come_in_the_order_of_their_creation_across_chunks() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state.db");
        let settings = Settings { path, quota: Quota::DEFAULT, concurrent: 1, plans: crate::LimitPlans::NONE };
        let state = State::Embedded(Embedded::open(&settings).unwrap());
        let created = Micros(1);
        let mut expected = Vec::new();
        let mut imports = Vec::new();
        for name in ["one", "two"] {
            let id = OrgId::generate();
            let tag = OrgTag::generate().unwrap();
            expected.push(id.to_string());
            imports.push(Import::Org(Org::new(id, tag, name, created)));
        }
        let users: Vec<Import> = imports.iter().flat_map(|import| users_of(import, 2 * CHUNK + 1)).collect();
        expected.extend(users.iter().filter_map(|import| match import {
            Import::User { user, .. } => Some(user.id.to_string()),
            _ => None,
        }));
        Importer(&state).write(imports).await.unwrap();
        Importer(&state).write(users).await.unwrap();

        let mut exporter = Exporter::begin(&state).await.unwrap();
        let mut found = Vec::new();
        while let Some(records) = exporter.next().await.unwrap() {
            assert!(records.len() <= CHUNK);
            found.extend(records.iter().map(|record| match record {
                StateRecord::Org(org) => org.id.to_string(),
                StateRecord::User(user) => user.user.id.to_string(),
                other => panic!("{other:?}"),
            }));
        }
        assert_eq!(found, expected);
    }

    fn users_of(org: &Import, count: usize) -> Vec<Import> {
        let Import::Org(Org { id: org, tag, .. }) = *org else { panic!("an organization") };
        let user = |number| User::new(UserId::generate(), org, format!("{number}@example.com"), Micros(1));
        (0..count).map(|number| Import::User { tag, user: user(number), creation: None }).collect()
    }
}
