//! Management tokens: records in one hash, by id, with a sorted set of the times at which they expire; their last uses
//! in another, with a set of its own.

use std::collections::BTreeSet;

use redis::cmd;

use super::check::{Check, Record};
use super::commit_error::CommitError;
use super::origin::Origin;
use super::transaction::Transaction;
use super::transactions::{Transactions, parse_ids};
use crate::ChangeError;
use crate::management_tokens::{MAX_TOKENS, MAX_TOKENS_OF_ORG, earliest_revoked};
use domain::clock::{self, Micros};
use domain::management_token::{ManagementToken, TokenId, TokenUse};
use redis_client::CommandError;

/// Expired tokens that the creation of one removes at most.
const MAX_SWEPT: usize = 64;

/// Management tokens, over the transactions of one thread.
#[derive(Clone, Copy)]
pub(crate) struct ManagementTokens<'a>(pub(crate) &'a Transactions);

impl ManagementTokens<'_> {
    /// The token with this id.
    pub(crate) async fn find(self, id: TokenId) -> Result<Option<ManagementToken>, CommandError> {
        Ok(self.read(id).await?.map(|(_, token)| token))
    }

    /// The same, with the record as it is stored.
    pub(super) async fn read(self, id: TokenId) -> Result<Option<(String, ManagementToken)>, CommandError> {
        let record = self.0.read_field(&self.0.shared.names.management_tokens(), id.as_str()).await?;
        let Some(record) = record else { return Ok(None) };
        let mut token = parse(&record)?;
        // A failover may have brought a token back whose revocation this process knows.
        token.revoked = token.revoked.or_else(|| self.0.shared.revocations.token_revoked(id));
        Ok(Some((record, token)))
    }

    /// All tokens: [`MAX_TOKENS`] at most.
    pub(crate) async fn list(self) -> Result<Vec<ManagementToken>, CommandError> {
        let name = self.0.shared.names.management_tokens();
        let records: Vec<String> = self.0.client.query(cmd("HVALS").arg(name)).await?;
        records.iter().map(|record| parse(record)).collect()
    }

    /// Creates a token. Where there is no room, the records of revoked tokens give way to it.
    pub(super) async fn create_in_room(
        self,
        token: &ManagementToken,
        origin: Origin<'_>,
        is_retry: bool,
    ) -> Result<u32, CommitError> {
        match self.create(token, origin, is_retry).await {
            Err(CommitError::Final(ChangeError::TooManyTokens(limit))) if self.make_room(token, limit).await? => {
                Err(CommitError::Conflict)
            }
            created => created,
        }
    }

    /// Makes room where a bound is reached: in that of an organization, tokens that are not live are counted no longer,
    /// and their records stay; else the record that was revoked first is removed. Returns whether there is room now.
    async fn make_room(self, token: &ManagementToken, limit: u32) -> Result<bool, CommitError> {
        // Before the records: a token that is counted has one.
        let counted = self.counted(token).await?;
        let now = clock::now();
        let tokens = self.list().await?;
        let mut transaction = self.0.transaction::<CommitError>();
        let used = if limit == MAX_TOKENS_OF_ORG {
            let live = tokens.iter().filter(|other| other.org == token.org && other.is_live(now));
            let live: BTreeSet<TokenId> = live.map(|other| other.id).collect();
            let of_org = self.ends_of_org(&mut transaction, token);
            for (of_org, gone) in
                of_org.into_iter().flat_map(|of_org| counted.difference(&live).map(move |id| (of_org, id)))
            {
                transaction.zrem(of_org, gone.as_str());
            }
            live.len()
        } else {
            let oldest = earliest_revoked(&tokens).filter(|_| tokens.len() >= limit as usize);
            let [records, ends] = self.records(&mut transaction);
            if let Some(oldest) = oldest {
                let of_org = self.ends_of_org(&mut transaction, oldest);
                transaction.hdel(records, &[oldest.id.as_str()]);
                [Some(ends), of_org].into_iter().flatten().for_each(|ends| transaction.zrem(ends, oldest.id.as_str()));
            }
            tokens.len() - usize::from(oldest.is_some())
        };
        if !transaction.is_empty() {
            self.0.commit_without_replicas(transaction).await?.into_replicas()?;
        }
        // Others may have made the room, or taken it.
        Ok(used < limit as usize)
    }

    /// The tokens that count in the bound of the organization of a token.
    async fn counted(self, token: &ManagementToken) -> Result<BTreeSet<TokenId>, CommandError> {
        let Some(org) = token.org else { return Ok(BTreeSet::new()) };
        let read = cmd("ZRANGE").arg(self.0.shared.names.management_token_ends_of(org)).arg(0).arg(-1).to_owned();
        Ok(parse_ids(self.0.client.query(&read).await?)?.into_iter().collect())
    }

    /// Creates a token, and removes some that have expired.
    async fn create(self, token: &ManagementToken, origin: Origin<'_>, is_retry: bool) -> Result<u32, CommitError> {
        let id = token.id.as_str();
        let json = token_json(token);
        let mut transaction = self.0.transaction();
        origin.write_record(&mut transaction, &self.0.shared.names, || CommitError::Conflict);
        let [records, ends] = self.records(&mut transaction);
        // A change whose reply was lost has written the record already.
        let is_free = if is_retry { Check::Free(records, id, &json) } else { Check::NoField(records, id) };
        transaction.check(is_free, ChangeError::Taken("id").into());
        let of_org = self.ends_of_org(&mut transaction, token);
        for (ends, limit) in of_org.map(|of_org| (of_org, MAX_TOKENS_OF_ORG)).into_iter().chain([(ends, MAX_TOKENS)]) {
            transaction.check(Check::FewerScored(ends, limit, id), ChangeError::TooManyTokens(limit).into());
        }
        write(&mut transaction, token, &json, [records, ends], of_org);
        self.0.commit(transaction).await?.into_replicas()
    }

    /// Adds the creation of a token from another state to a transaction, which creates no other one, and the removal of
    /// some that have expired. The bound of its organization is that of the other state.
    pub(crate) fn add_import(self, transaction: &mut Transaction<CommitError>, token: &ManagementToken) {
        let id = token.id.as_str();
        let [records, ends] = self.records(transaction);
        let of_org = self.ends_of_org(transaction, token);
        transaction.check(Check::NoField(records, id), CommitError::Conflict);
        transaction.check(Check::FewerScored(ends, MAX_TOKENS, id), CommitError::Conflict);
        write(transaction, token, &token_json(token), [records, ends], of_org);
    }

    /// Marks a token as revoked, and returns it. Of several revocations the first stands.
    pub(super) async fn mark_revoked(
        self,
        id: TokenId,
        at: Micros,
        origin: Origin<'_>,
    ) -> Result<(ManagementToken, u32), CommitError> {
        let (found, mut token) = self.read(id).await?.ok_or(ChangeError::NoToken(id))?;
        token.revoked = token.revoked.or(Some(at));
        let mut transaction = self.0.transaction();
        transaction.allow_oom();
        origin.write_record(&mut transaction, &self.0.shared.names, || CommitError::Conflict);
        let [records, _] = self.records(&mut transaction);
        transaction.check(Check::Equal(records, id.as_str(), &found), CommitError::Conflict);
        transaction.hset_field(records, id.as_str(), &token_json(&token));
        let replicas = self.0.commit(transaction).await?.into_replicas()?;
        Ok((token, replicas))
    }

    /// Writes the last use of a token, and removes some of tokens that have expired. It waits for no replicas: a use
    /// that is lost is written again by the next one.
    pub(super) async fn write_use(self, id: TokenId, last: &TokenUse, expires: Micros) -> Result<u32, CommitError> {
        let names = &self.0.shared.names;
        let mut transaction = self.0.transaction::<CommitError>();
        let [uses, ends] = transaction.records([names.token_uses(), names.token_use_ends()]);
        transaction.sweep(ends, uses, MAX_SWEPT);
        transaction.hset_field(uses, id.as_str(), &serde_json::to_string(last).expect("a use is a time and text"));
        transaction.zadd(ends, expires.0, id.as_str());
        self.0.commit_without_replicas(transaction).await?.into_replicas()
    }

    /// The last uses of tokens, in their order.
    pub(crate) async fn uses(self, tokens: &[TokenId]) -> Result<Vec<Option<TokenUse>>, CommandError> {
        if tokens.is_empty() {
            return Ok(Vec::new());
        }
        let ids: Vec<&str> = tokens.iter().map(TokenId::as_str).collect();
        let read = cmd("HMGET").arg(self.0.shared.names.token_uses()).arg(ids).to_owned();
        let found: Vec<Option<String>> = self.0.client.query(&read).await?;
        let parse = |record: String| serde_json::from_str(&record).map_err(|_| CommandError::UnexpectedReply);
        found.into_iter().map(|record| record.map(parse).transpose()).collect()
    }

    fn records<F>(self, transaction: &mut Transaction<F>) -> [Record; 2] {
        let names = &self.0.shared.names;
        transaction.records([names.management_tokens(), names.management_token_ends()])
    }

    /// The expiry times of the tokens of this one's organization; none for a token of all organizations.
    fn ends_of_org<F>(self, transaction: &mut Transaction<F>, token: &ManagementToken) -> Option<Record> {
        token.org.map(|org| transaction.record(self.0.shared.names.management_token_ends_of(org)))
    }
}

/// Writes a new token, and removes some that have expired.
fn write<F>(
    transaction: &mut Transaction<F>,
    token: &ManagementToken,
    json: &str,
    [records, ends]: [Record; 2],
    of_org: Option<Record>,
) {
    let id = token.id.as_str();
    transaction.sweep(ends, records, MAX_SWEPT);
    transaction.hset_field(records, id, json);
    transaction.zadd(ends, token.expires.0, id);
    if let Some(of_org) = of_org {
        transaction.prune(of_org, MAX_SWEPT);
        transaction.zadd(of_org, token.expires.0, id);
    }
}

fn parse(record: &str) -> Result<ManagementToken, CommandError> {
    serde_json::from_str(record).map_err(|_| CommandError::UnexpectedReply)
}

/// The record of a token.
pub(crate) fn token_json(token: &ManagementToken) -> String {
    serde_json::to_string(token).expect("a token is text, numbers and lists of them")
}
