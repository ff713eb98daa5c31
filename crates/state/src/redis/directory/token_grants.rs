//! Grants of management tokens: a program makes no change after the revocation of its token was acknowledged.
//!
//! The record of a token and the records that it changes are in different hash slots, so that no transaction can look
//! at both. So a token has a grant in the slot of each organization that it changes, and the transaction of the change
//! requires the grant.
//!
//! - Before its first change there, the place is noted with the token, if that is live, and only then the grant is
//!   written, unless one is there.
//! - A revocation marks the token first. From then on no place is noted, so that it finds all of them; it replaces the
//!   grant in each, also one that is still to be written. Then it is acknowledged.
//! - A grant expires with its token, by the server's clock: so a program makes no change after that either, whatever
//!   the clock of its gateway says.

use std::collections::BTreeSet;

use redis::cmd;

use super::check::{Check, Record};
use super::commit_error::CommitError;
use super::management_tokens::ManagementTokens;
use super::orgs::Orgs;
use super::origin::{GRANT_FIELD, Grant, LIVE_GRANT, Origin};
use super::sessions::milliseconds;
use super::transaction::Transaction;
use super::transactions::Transactions;
use crate::change::Target;
use crate::{ActorName, Change, ChangeError, IdempotencyPlace, descendants};
use domain::clock::Micros;
use domain::key::OrgTag;
use domain::management_token::{ManagementToken, TokenId};
use redis_client::CommandError;

/// Value of a grant whose token is revoked.
const REVOKED: &str = "revoked";

/// Grants, over the transactions of one thread.
#[derive(Clone, Copy)]
pub(super) struct TokenGrants<'a>(pub(super) &'a Transactions);

impl TokenGrants<'_> {
    /// The grant of the token of a program for its change; none of people, and of a program that revokes its own token.
    ///
    /// # Errors
    /// [`ChangeError::TokenEnded`].
    pub(super) async fn require_for(self, actor: &ActorName, change: &Change) -> Result<Option<Grant>, CommitError> {
        match actor.token() {
            Some(token) if !change.revokes(token) => self.require(token, change).await.map(Some),
            _ => Ok(None),
        }
    }

    /// The place of the grant for a change, and of the record of its request.
    pub(super) async fn place_of(self, change: &Change) -> Result<IdempotencyPlace, CommitError> {
        let org = match (change.as_made(), change.target()) {
            (Change::CreateOrg(_), _) => return Ok(IdempotencyPlace::Installation),
            (Change::CreateToken(_) | Change::RevokeToken { .. }, _) => return Ok(IdempotencyPlace::Tokens),
            (Change::CreateKey { key, .. }, _) => return Ok(IdempotencyPlace::Org(key.id.tag())),
            (_, Some(Target::Key(key))) => return Ok(IdempotencyPlace::Org(key.tag())),
            (Change::CreateUser(user), _) => user.org,
            (Change::FederationRule(change), _) => change.org(),
            (_, Some(Target::Org(org) | Target::User(org, _))) => org,
            _ => unreachable!("checked by Change::once and Change::by"),
        };
        Orgs(self.0).require_tag(org).await.map(IdempotencyPlace::Org)
    }

    /// The grant of a token for a change, which is written at the first change in its place.
    ///
    /// # Errors
    /// [`ChangeError::TokenEnded`].
    async fn require(self, token: TokenId, change: &Change) -> Result<Grant, CommitError> {
        let place = self.place_of(change).await?;
        let name = self.0.shared.names.token_grant(place, token);
        // A failover may have brought the grant back.
        if self.0.shared.revocations.token_revoked(token).is_some() {
            return Err(ChangeError::TokenEnded(token).into());
        }
        match self.0.read_field(&name, GRANT_FIELD).await?.as_deref() {
            Some(LIVE_GRANT) => {}
            Some(_) => return Err(ChangeError::TokenEnded(token).into()),
            None => self.write(token, place, change.withdraws()).await?,
        }
        Ok(Grant { place, token })
    }

    /// Writes the grant for the first change in a place; for one that withdraws something also while the memory is
    /// full.
    async fn write(self, id: TokenId, place: IdempotencyPlace, withdraws: bool) -> Result<(), CommitError> {
        let ended = || CommitError::from(ChangeError::TokenEnded(id));
        let tokens = ManagementTokens(self.0);
        let now = self.0.now();
        let (record, token) = tokens.read(id).await?.filter(|(_, token)| token.is_live(now)).ok_or_else(ended)?;
        let expiry = expiry(&token);
        let names = &self.0.shared.names;
        let (mut transaction, places) = self.transaction_on(names.token_places(id), withdraws);
        let records = transaction.record(names.management_tokens());
        // Revoked meanwhile: the next attempt says so.
        transaction.check(Check::Equal(records, id.as_str(), &record), CommitError::Conflict);
        transaction.sadd(places, &place_text(place));
        transaction.pexpireat(places, expiry);
        self.0.commit(transaction).await?.into_replicas()?;
        let (mut transaction, grant) = self.transaction_on(names.token_grant(place, id), withdraws);
        transaction.check(Check::Free(grant, GRANT_FIELD, LIVE_GRANT), ended());
        transaction.hset_field(grant, GRANT_FIELD, LIVE_GRANT);
        transaction.pexpireat(grant, expiry);
        self.0.commit(transaction).await?.into_replicas().map(drop)
    }

    fn transaction_on(self, name: String, withdraws: bool) -> (Transaction<CommitError>, Record) {
        let (mut transaction, record) = self.0.transaction_on(name);
        if withdraws {
            transaction.allow_oom();
        }
        (transaction, record)
    }

    /// Revokes a token and its descendants. A revoked token creates none, so the list that is read after its revocation
    /// has all that it has made.
    pub(super) async fn revoke_with_descendants(
        self,
        id: TokenId,
        at: Micros,
        origin: Origin<'_>,
    ) -> Result<u32, CommitError> {
        let mut replicas = self.revoke_token(id, at, origin).await?;
        let mut ended = BTreeSet::new();
        loop {
            let found = descendants(&ManagementTokens(self.0).list().await?, id);
            let left: Vec<TokenId> = found.difference(&ended).copied().collect();
            if left.is_empty() {
                return Ok(replicas);
            }
            for token in left {
                ended.insert(token);
                match self.revoke_token(token, at, Origin::default()).await {
                    // Expired, and removed meanwhile.
                    Err(CommitError::Final(ChangeError::NoToken(_))) => {}
                    reached => replicas = replicas.min(reached?),
                }
            }
        }
    }

    /// Revokes a token, and takes all its grants away.
    pub(super) async fn revoke_token(self, id: TokenId, at: Micros, origin: Origin<'_>) -> Result<u32, CommitError> {
        let (token, replicas) = ManagementTokens(self.0).mark_revoked(id, at, origin).await?;
        Ok(self.take_away(&token).await?.min(replicas))
    }

    async fn take_away(self, token: &ManagementToken) -> Result<u32, CommitError> {
        let names = &self.0.shared.names;
        let read = cmd("SMEMBERS").arg(names.token_places(token.id)).to_owned();
        let places: Vec<String> = self.0.client.query(&read).await?;
        let mut replicas = u32::MAX;
        for place in places {
            let place = parse_place(&place)?;
            let (mut transaction, grant) = self.0.transaction_on::<CommitError>(names.token_grant(place, token.id));
            transaction.allow_oom();
            transaction.hset_field(grant, GRANT_FIELD, REVOKED);
            transaction.pexpireat(grant, expiry(token));
            replicas = replicas.min(self.0.commit(transaction).await?.into_replicas()?);
        }
        Ok(replicas)
    }
}

/// The time at which the grants of a token are forgotten, in milliseconds.
fn expiry(token: &ManagementToken) -> u64 {
    milliseconds(token.expires)
}

fn place_text(place: IdempotencyPlace) -> String {
    match place {
        IdempotencyPlace::Installation => "orgs".to_owned(),
        IdempotencyPlace::Tokens => "tokens".to_owned(),
        IdempotencyPlace::Org(tag) => format!("org:{tag}"),
    }
}

fn parse_place(text: &str) -> Result<IdempotencyPlace, CommandError> {
    let tag = || text.strip_prefix("org:")?.parse::<OrgTag>().ok();
    Ok(match text {
        "orgs" => IdempotencyPlace::Installation,
        "tokens" => IdempotencyPlace::Tokens,
        _ => IdempotencyPlace::Org(tag().ok_or(CommandError::UnexpectedReply)?),
    })
}
