//! Index of web sessions: by id, by person and by organization, all in one hash slot, so that one script keeps it.
//!
//! - Sorted sets by the times at which the sessions end. An entry whose time is over is removed by a later sign-in.
//! - The set of a person bounds the person's sessions: it is checked by the script that adds to it.

use std::time::Duration;

use redis::cmd;

use super::check::{Check, Record};
use super::commit_error::CommitError;
use super::transaction::Transaction;
use super::transactions::{Transactions, parse_ids};
use crate::redis::record_names::{hex, token_digest};
use crate::{ChangeError, Session};
use domain::clock::Micros;
use domain::identity::{OrgId, SessionId};
use domain::session::TokenDigest;
use redis_client::CommandError;

/// Index entries that one sign-in removes at most from each list: more than it adds, and few enough to take no time.
const MAX_SWEPT: usize = 16;
/// Sessions that one script or command touches.
const BATCH: usize = 64;
/// Time after which the sets of a person and an organization expire when no session is added: longer than any session.
const SET_LIFETIME: Duration = Duration::from_secs(91 * 24 * 3600);

/// Index of sessions, over the transactions of one thread.
#[derive(Clone, Copy)]
pub(crate) struct SessionIndex<'a>(pub(crate) &'a Transactions);

impl SessionIndex<'_> {
    /// Adds a session to the index, if its person has room for one more.
    pub(super) async fn add(self, session: &Session, digest: &TokenDigest) -> Result<u32, CommitError> {
        let id = session.id.to_string();
        let hex = hex(digest.as_bytes());
        let limit = self.0.bounds().sessions_per_person;
        let mut transaction = self.0.transaction();
        let [index, ends] = self.add_index(&mut transaction);
        let of_person = transaction.record(self.0.shared.names.sessions_of_person(&session.person));
        transaction.check(Check::Free(index, &id, &hex), ChangeError::Taken("id"));
        transaction.check(Check::FewerScored(of_person, limit, &id), ChangeError::TooManySessions(limit));
        transaction.sweep(ends, index, MAX_SWEPT);
        transaction.hset_field(index, &id, &hex);
        transaction.zadd(ends, session.expires.0, &id);
        for set in self.sets_of(&mut transaction, session) {
            transaction.prune(set, MAX_SWEPT);
            transaction.zadd(set, session.expires.0, &id);
            transaction.pexpire(set, SET_LIFETIME);
        }
        self.0.commit(transaction).await?.into_replicas()
    }

    /// The sets of a session's person and organizations.
    fn sets_of<F>(self, transaction: &mut Transaction<F>, session: &Session) -> Vec<Record> {
        let names = &self.0.shared.names;
        let of_orgs = session.memberships.iter().map(|membership| names.sessions_of_org(membership.org));
        [names.sessions_of_person(&session.person)]
            .into_iter()
            .chain(of_orgs)
            .map(|name| transaction.record(name))
            .collect()
    }

    /// Removes a session from the index; `session` is its record, if it is known.
    pub(super) async fn remove(self, id: SessionId, session: Option<&Session>) -> Result<(), CommitError> {
        let text = id.to_string();
        let mut transaction = self.0.transaction::<CommitError>();
        transaction.allow_oom();
        let [index, ends] = self.add_index(&mut transaction);
        transaction.hdel(index, &[&text]);
        transaction.zrem(ends, &text);
        if let Some(session) = session {
            for set in self.sets_of(&mut transaction, session) {
                transaction.zrem(set, &text);
            }
        }
        Ok(self.0.commit(transaction).await.map(drop)?)
    }

    /// Removes a session from the set of an organization.
    pub(super) async fn remove_membership(self, id: SessionId, org: OrgId) -> Result<(), CommitError> {
        let name = self.0.shared.names.sessions_of_org(org);
        let (mut transaction, of_org) = self.0.transaction_on::<CommitError>(name);
        transaction.allow_oom();
        transaction.zrem(of_org, &id.to_string());
        Ok(self.0.commit(transaction).await.map(drop)?)
    }

    /// Adds the two records of the index by id to a transaction: digests by id, and ends.
    fn add_index<F>(self, transaction: &mut Transaction<F>) -> [Record; 2] {
        let names = &self.0.shared.names;
        transaction.records([names.sessions(), names.session_ends()])
    }

    /// The digest of the session with this id.
    pub(super) async fn find_digest(self, id: SessionId) -> Result<Option<TokenDigest>, CommandError> {
        let hex = self.0.read_field(&self.0.shared.names.sessions(), &id.to_string()).await?;
        hex.map(|hex| token_digest(&hex).ok_or(CommandError::UnexpectedReply)).transpose()
    }

    /// Removes sessions without a record from a set. Returns their number.
    pub(super) async fn remove_from_set(
        self,
        name: &str,
        sessions: impl Iterator<Item = &SessionId>,
    ) -> Result<usize, CommandError> {
        let mut query = cmd("ZREM");
        query.arg(name);
        for id in sessions {
            query.arg(id.to_string());
        }
        self.0.client.query(&query).await
    }

    /// The digests of all sessions, read in pieces.
    pub(super) async fn read_digests(self) -> Result<Vec<TokenDigest>, CommandError> {
        let name = self.0.shared.names.sessions();
        let mut cursor = String::from("0");
        let mut digests = std::collections::HashSet::new();
        loop {
            let (next, fields): (String, Vec<String>) =
                self.0.client.query(cmd("HSCAN").arg(&name).arg(&cursor).arg("COUNT").arg(BATCH)).await?;
            for digest in fields.iter().skip(1).step_by(2) {
                digests.insert(token_digest(digest).ok_or(CommandError::UnexpectedReply)?);
            }
            if next == "0" {
                return Ok(digests.into_iter().collect());
            }
            cursor = next;
        }
    }

    /// The ids of the sessions of a set that have not reached their end, in pieces: those from the `read`-th on.
    pub(super) async fn read_set(self, name: &str, now: Micros, read: usize) -> Result<Vec<SessionId>, CommandError> {
        let mut query = cmd("ZRANGEBYSCORE");
        query.arg(name).arg(format!("({}", now.0)).arg("+inf").arg("LIMIT").arg(read).arg(BATCH);
        parse_ids(self.0.client.query(&query).await?)
    }
}
