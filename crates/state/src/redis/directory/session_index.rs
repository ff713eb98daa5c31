//! Index of web sessions: by id, by person and by organization, all in one hash slot, so that one script keeps it.
//!
//! - Sorted sets by the times at which the sessions end. An entry whose time is over is removed by a later sign-in.
//! - The set of a person bounds the person's sessions: it is checked by the script that adds to it.
//! - Earlier versions indexed sessions by id only. Those are added to the sets once, by the first gateway that needs them.

use std::sync::atomic::Ordering;
use std::time::Duration;

use redis::{FromRedisValue as _, Value, cmd};

use super::commit_error::CommitError;
use super::records::{Directory, parse_ids, read_each};
use super::transaction::{Check, Record, Transaction};
use crate::redis::record_names::{hex, sessions_slot, token_digest};
use crate::{ChangeError, Session};
use domain::clock::{self, Micros};
use domain::identity::{OrgId, PersonId, SessionId};
use domain::session::TokenDigest;
use redis_client::CommandError;

/// Index entries that one sign-in removes at most from each list: more than it adds, and few enough to take no time.
const MAX_SWEPT: usize = 16;
/// Sessions that one script or command touches.
const BATCH: usize = 64;
/// Time after which the sets of a person and an organization expire when no session is added: longer than any session.
const SET_LIFETIME: Duration = Duration::from_secs(91 * 24 * 3600);

impl Directory {
    /// Adds a session to the index, if its person has room for one more.
    pub(super) async fn index_session(&self, session: &Session, digest: &TokenDigest) -> Result<u32, CommitError> {
        self.update_session_index().await?;
        let (id, hex, names) = (session.id.to_string(), hex(digest.as_bytes()), &self.shared.names);
        let limit = self.bounds().sessions_per_person;
        let mut transaction = self.transaction();
        let [index, ends] = self.add_index(&mut transaction);
        let of_person = transaction.record(names.sessions_of_person(&session.person()));
        transaction.check(Check::Free(index, &id, &hex), ChangeError::Taken("id"));
        transaction.check(Check::FewerScored(of_person, limit, &id), ChangeError::TooManySessions(limit));
        transaction.sweep(ends, index, MAX_SWEPT);
        transaction.set_field(index, &id, &hex);
        transaction.add_scored(ends, session.expires.0, &id);
        self.add_to_sets(&mut transaction, session);
        self.commit(sessions_slot(), transaction).await?.into_replicas()
    }

    /// Adds a session to the sets of its person and its organizations.
    fn add_to_sets<F>(&self, transaction: &mut Transaction<F>, session: &Session) {
        let id = session.id.to_string();
        // Never in the past, also for an old session.
        let expiry = clock::now().max(session.created).after(SET_LIFETIME).0 / 1000;
        for set in self.session_sets(transaction, session) {
            transaction.prune(set, MAX_SWEPT);
            transaction.add_scored(set, session.expires.0, &id);
            transaction.expire(set, expiry);
        }
    }

    /// The sets of a session's person and organizations.
    fn session_sets<F>(&self, transaction: &mut Transaction<F>, session: &Session) -> Vec<Record> {
        let names = &self.shared.names;
        let of_orgs = session.memberships.iter().map(|membership| names.sessions_of_org(membership.org));
        [names.sessions_of_person(&session.person())]
            .into_iter()
            .chain(of_orgs)
            .map(|name| transaction.record(name))
            .collect()
    }

    /// Removes a session from the index; `session` is its record, if it is known.
    pub(super) async fn unindex_session(&self, id: SessionId, session: Option<&Session>) -> Result<(), CommitError> {
        let text = id.to_string();
        let mut transaction = self.withdrawal::<CommitError>();
        let [index, ends] = self.add_index(&mut transaction);
        transaction.unset(index, &[&text]);
        transaction.remove_scored(ends, &text);
        if let Some(session) = session {
            for set in self.session_sets(&mut transaction, session) {
                transaction.remove_scored(set, &text);
            }
        }
        Ok(self.commit(sessions_slot(), transaction).await.map(drop)?)
    }

    /// Removes a session from the set of an organization.
    pub(super) async fn unindex_membership(&self, id: SessionId, org: OrgId) -> Result<(), CommitError> {
        let mut transaction = self.transaction::<CommitError>();
        let of_org = transaction.record(self.shared.names.sessions_of_org(org));
        transaction.remove_scored(of_org, &id.to_string());
        Ok(self.commit(sessions_slot(), transaction).await.map(drop)?)
    }

    /// Adds the two records of the index by id to a transaction: digests by id, and ends.
    fn add_index<F>(&self, transaction: &mut Transaction<F>) -> [Record; 2] {
        let names = &self.shared.names;
        [names.sessions(), names.session_ends()].map(|name| transaction.record(name))
    }

    /// The live sessions of members of an organization, oldest first.
    pub(crate) async fn list_sessions_of_org(&self, org: OrgId, now: Micros) -> Result<Vec<Session>, CommandError> {
        self.update_session_index().await?;
        let mut sessions = self.read_session_set(&self.shared.names.sessions_of_org(org), now).await?;
        // One whose membership was ended is in the set until its entry is removed.
        let is_member = |session: &Session| session.memberships.iter().any(|membership| membership.org == org);
        sessions.retain(|session| session.is_live(now) && is_member(session));
        Ok(sessions)
    }

    /// The sessions of a person, oldest first, also unused ones. Entries of sessions that are gone are removed.
    pub(crate) async fn list_sessions_of_person(&self, person: &PersonId) -> Result<Vec<Session>, CommandError> {
        self.update_session_index().await?;
        self.read_session_set(&self.shared.names.sessions_of_person(person), clock::now()).await
    }

    /// The sessions of a set that have not reached their end, in pieces; the oldest first.
    async fn read_session_set(&self, name: &str, now: Micros) -> Result<Vec<Session>, CommandError> {
        let (mut sessions, mut read) = (Vec::new(), 0);
        loop {
            let mut query = cmd("ZRANGEBYSCORE");
            query.arg(name).arg(format!("({}", now.0)).arg("+inf").arg("LIMIT").arg(read).arg(BATCH);
            let ids: Vec<SessionId> = parse_ids(self.client.send(sessions_slot(), &query).await?)?;
            if ids.is_empty() {
                sessions.sort_by_key(|session: &Session| (session.created, session.id));
                return Ok(sessions);
            }
            read += ids.len();
            let found = read_each(ids.iter().copied().map(async |id| self.read_session_by_id(id).await)).await?;
            if found.len() < ids.len() {
                let gone = ids.iter().filter(|id| found.iter().all(|session| session.id != **id));
                read -= self.remove_from_set(name, gone).await?;
            }
            sessions.extend(found);
        }
    }

    async fn read_session_by_id(&self, id: SessionId) -> Result<Option<Session>, CommandError> {
        match self.find_session_digest(id).await? {
            Some(digest) => self.read_session(&digest).await,
            None => Ok(None),
        }
    }

    /// Removes sessions without a record from a set. Returns their number.
    async fn remove_from_set(
        &self,
        name: &str,
        sessions: impl Iterator<Item = &SessionId>,
    ) -> Result<usize, CommandError> {
        let mut query = cmd("ZREM");
        query.arg(name);
        for id in sessions {
            query.arg(id.to_string());
        }
        let removed = self.client.send(sessions_slot(), &query).await?;
        usize::from_redis_value(removed).map_err(|_| CommandError::UnexpectedReply)
    }

    /// The digests of all sessions, read in pieces.
    pub(super) async fn read_session_digests(&self) -> Result<Vec<TokenDigest>, CommandError> {
        let (mut cursor, mut digests) = (String::from("0"), std::collections::HashSet::new());
        loop {
            let mut query = cmd("HSCAN");
            query.arg(self.shared.names.sessions()).arg(&cursor).arg("COUNT").arg(BATCH);
            let reply = self.client.send(sessions_slot(), &query).await?;
            let (next, fields) =
                <(String, Vec<String>)>::from_redis_value(reply).map_err(|_| CommandError::UnexpectedReply)?;
            for digest in fields.iter().skip(1).step_by(2) {
                digests.insert(token_digest(digest).ok_or(CommandError::UnexpectedReply)?);
            }
            if next == "0" {
                return Ok(digests.into_iter().collect());
            }
            cursor = next;
        }
    }

    /// Adds the sessions that an earlier version indexed by id only to the sets of their persons and organizations. This is
    /// done once for a deployment, and may be done by several gateways at the same time.
    async fn update_session_index(&self) -> Result<(), CommandError> {
        if self.shared.sessions_indexed.load(Ordering::Acquire) {
            return Ok(());
        }
        let (names, slot) = (&self.shared.names, sessions_slot());
        let mut query = cmd("EXISTS");
        query.arg(names.sessions_indexed());
        if self.client.send(slot, &query).await? == Value::Int(0) {
            for batch in self.read_session_digests().await?.chunks(BATCH) {
                let sessions =
                    read_each(batch.iter().copied().map(async |digest| self.read_session(&digest).await)).await?;
                let mut transaction = self.transaction::<()>();
                sessions.iter().for_each(|session| self.add_to_sets(&mut transaction, session));
                if !transaction.is_empty() {
                    self.commit_without_replicas(slot, transaction).await?;
                }
            }
            let mut query = cmd("SET");
            query.arg(names.sessions_indexed()).arg(1);
            self.client.send(slot, &query).await?;
        }
        self.shared.sessions_indexed.store(true, Ordering::Release);
        Ok(())
    }
}
