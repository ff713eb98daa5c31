//! One change to the directory, with retries.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use tokio::time::{sleep, timeout};

use super::change_steps::{ChangeSteps, ChangeWrite};
use super::commit_error::CommitError;
use super::federation::FederationRules;
use super::idempotency::{IdempotencyRecords, Once};
use super::keys::Keys;
use super::management_tokens::ManagementTokens;
use super::orgs::Orgs;
use super::origin::Origin;
use super::plans::Plans;
use super::read_records::{Lookup, ReadRecords};
use super::revocation_log::LogWriter;
use super::sessions::Sessions;
use super::tickets::Tickets;
use super::token_grants::TokenGrants;
use super::transactions::Transactions;
use super::users::Users;
use crate::plan::{self, Planned};
use crate::redis::identity::IdentityRecord;
use crate::redis::record_codec::new_version;
use crate::{Change, ChangeError, IdempotentRequest, StorageError, Unavailable};

/// Changes, over the transactions of one thread.
#[derive(Clone, Copy)]
pub(crate) struct Changes<'a>(pub(crate) &'a Transactions);

impl Changes<'_> {
    /// Makes one change durable and effective. See [`crate::State::change`].
    ///
    /// # Errors
    /// [`ChangeError`]. After `Unavailable` it may have been made; after `NotReplicated` it was.
    pub(crate) async fn change(self, change: Change) -> Result<(), ChangeError> {
        let durability = self.0.shared.settings.durability;
        let mut steps = ChangeSteps::begin(durability, Instant::now());
        let mark = new_mark(&change)?;
        let mut locator = None;
        loop {
            let attempt = timeout(steps.limit, self.change_once(&change, &mark, &mut locator, steps.is_retry)).await;
            let Ok(result) = attempt else {
                return Err(ChangeError::Unavailable(StorageError::Redis(Unavailable::TimedOut)));
            };
            match steps.after_attempt(result, durability, Instant::now()) {
                ControlFlow::Break(result) => return result,
                ControlFlow::Continue(Duration::ZERO) => {}
                // Not all at the same time.
                ControlFlow::Continue(pause) => sleep(pause.mul_f64(random_fraction())).await,
            }
        }
    }

    /// Makes a change once, and logs what it has revoked. Returns the number of replicas that have both.
    async fn change_once(
        self,
        change: &Change,
        mark: &str,
        locator: &mut Option<String>,
        is_retry: bool,
    ) -> Result<u32, CommitError> {
        let Some(changes) = IdentityRecord(self.0).verify_or_create().await? else {
            return Err(ChangeError::lost().into());
        };
        // An earlier attempt whose reply was lost may have removed what it is found by.
        if locator.is_none() {
            *locator = LogWriter(self.0).locator(change).await?;
        }
        let mut replicas = u32::MAX;
        for write in ChangeWrite::ORDER {
            let reached = match write {
                ChangeWrite::Records => self.write(change, Origin { mark, ..Origin::default() }, is_retry).await?,
                ChangeWrite::Log => LogWriter(self.0).append(change, locator.as_deref(), changes).await?,
            };
            replicas = replicas.min(reached);
        }
        Ok(replicas)
    }

    /// Writes a change once: for a person within the bounds, for the operator without. Returns the number of replicas
    /// that have it.
    async fn write(self, change: &Change, origin: Origin<'_>, is_retry: bool) -> Result<u32, CommitError> {
        match change {
            Change::ByActor { actor, is_imported: true, change: made } => {
                let origin = Origin { actor: Some(actor), ..origin };
                Box::pin(self.write(made, origin, is_retry)).await
            }
            Change::ByActor { actor, is_imported: false, change: made } => {
                let grant = TokenGrants(self.0).require_for(actor, made).await?;
                Box::pin(self.write(made, Origin { grant, ..origin.within(change) }, is_retry)).await
            }
            Change::IfMatch { change, .. } if change.target().is_none() => Err(ChangeError::Stale.into()),
            Change::ByPerson { person, change: made } => {
                let mut records = ReadRecords::default();
                let standing =
                    Plans(self.0).complete(&mut records, |records| plan::require_person(*person, made, records)).await;
                let standing = standing.map(|()| &records);
                Box::pin(self.write_with_standing(made, standing, origin.within(change), is_retry)).await
            }
            Change::ByFederation { exchange, change: made } => {
                let mut records = ReadRecords::default();
                let standing = Plans(self.0)
                    .complete(&mut records, |records| plan::require_service(&exchange.rule, records))
                    .await;
                let standing = standing.map(|()| &records);
                Box::pin(self.write_with_standing(made, standing, origin.within(change), is_retry)).await
            }
            Change::IfMatch { change: made, .. } => Box::pin(self.write(made, origin.within(change), is_retry)).await,
            Change::Once { request, change } => Box::pin(self.write_recorded(request, change, origin, is_retry)).await,
            made => self.write_made(made, origin, is_retry).await,
        }
    }

    /// Plans a change, and writes it as it was planned.
    async fn write_made(self, change: &Change, origin: Origin<'_>, is_retry: bool) -> Result<u32, CommitError> {
        let mut records = ReadRecords::default();
        if let Some(replicas) = self.confirm_earlier(change, &mut records, is_retry).await? {
            return Ok(replicas);
        }
        let planned = Plans(self.0).complete(&mut records, |records| plan::plan(change, records)).await?;
        let records = &records;
        match &planned {
            Planned::NewOrg(org) => Orgs(self.0).create(org, origin).await,
            Planned::Org(org) => Orgs(self.0).update(org, change, records, origin).await,
            Planned::NewUser(user) => Users(self.0).create(user, records, origin).await,
            Planned::User(user) => Users(self.0).update(user, change, records, origin).await,
            Planned::NewKey(key, digest) => Keys(self.0).create((key, digest), records, origin).await,
            Planned::PatchedKey(key, patch) => Keys(self.0).patch(key, patch, records, origin).await,
            Planned::RevokedKey(key, at) => Keys(self.0).revoke(key, *at, records, origin).await,
            Planned::RotatedKey(key, rotation) => Keys(self.0).rotate(key, rotation, records, origin).await,
            Planned::Rule(change) => FederationRules(self.0).change(change, records, origin, is_retry).await,
            Planned::NewSession(session, digest) => Sessions(self.0).create(session, digest, is_retry).await,
            Planned::Session(session) => Sessions(self.0).update(session, change, records).await,
            Planned::EndOfSession(session) => Sessions(self.0).end(*session).await,
            Planned::NewToken(token) => ManagementTokens(self.0).create_in_room(token, origin, is_retry).await,
            Planned::EndOfToken(token, at) => TokenGrants(self.0).revoke_with_descendants(*token, *at, origin).await,
            Planned::UseOfToken(token, last, expires) => {
                ManagementTokens(self.0).write_use(*token, last, *expires).await
            }
            Planned::Ticket { digest, content, expires, source } => {
                Tickets(self.0).put(digest, content, *expires, *source).await
            }
        }
    }

    /// Confirms what an earlier attempt wrote whose reply was lost, where the plan would refuse to make it again.
    async fn confirm_earlier(
        self,
        change: &Change,
        records: &mut ReadRecords,
        is_retry: bool,
    ) -> Result<Option<u32>, CommitError> {
        match change {
            Change::RemoveUser { org, user, at } if is_retry => {
                Plans(self.0).read(records, Lookup::User(*org, *user)).await?;
                Users(self.0).confirm_removal((*org, *user), *at, records).await
            }
            Change::RotateKey { key, digest, at, .. } => {
                Plans(self.0).read(records, Lookup::Key(*key)).await?;
                Keys(self.0).confirm_rotation(*key, (digest, *at), records).await
            }
            _ => Ok(None),
        }
    }

    /// Writes the change of a person or of an exchange, with the standing that was found for them at this moment.
    async fn write_with_standing(
        self,
        change: &Change,
        standing: Result<&ReadRecords, CommitError>,
        origin: Origin<'_>,
        is_retry: bool,
    ) -> Result<u32, CommitError> {
        let standing = match standing {
            // An earlier attempt may have made it, while there was the right to.
            Err(CommitError::Final(_)) if is_retry => {
                return Err(ChangeError::Unavailable(StorageError::Redis(Unavailable::TimedOut)).into());
            }
            standing => standing?,
        };
        self.write(change, Origin { standing: Some(standing), ..origin }, is_retry).await
    }

    /// Makes the change of a request with an idempotency key, with the record of the request.
    async fn write_recorded(
        self,
        request: &IdempotentRequest,
        change: &Change,
        origin: Origin<'_>,
        is_retry: bool,
    ) -> Result<u32, CommitError> {
        let records = IdempotencyRecords(self.0);
        let once = Once { request, place: TokenGrants(self.0).place_of(change).await?, now: self.0.now() };
        if let Some(replicas) = records.resolve(once, origin.mark).await? {
            return match change.as_made() {
                // Made again, so that this gateway keeps the revocation.
                Change::RevokeKey { .. } | Change::RemoveUser { .. } => {
                    self.write(change, Origin { etag: None, ..origin }, true).await
                }
                _ => Ok(replicas),
            };
        }
        let entered = records.enter(once, change.withdraws(), origin.mark).await;
        if let Err(CommitError::Final(ChangeError::TooManyIdempotencyKeys(_))) = entered
            && change.withdraws()
        {
            // Made without a record: the bound of its token is no reason to refuse a withdrawal.
            return self.write(change, origin, is_retry).await;
        }
        entered?;
        let made = self.write(change, Origin { once: Some(once), ..origin }, is_retry).await;
        match made {
            Err(CommitError::Final(refused)) => records.resolve_refused(once, refused, origin.mark).await,
            // After any other error the change may have been made, or is tried again.
            made => made,
        }
    }
}

/// At least a half, and less than 1; 1 without randomness.
fn random_fraction() -> f64 {
    getrandom::u32().map_or(1.0, |random| 0.5 + f64::from(random) / f64::from(u32::MAX) / 2.0)
}

/// The mark of a change. See [`Origin::mark`].
fn new_mark(change: &Change) -> Result<String, ChangeError> {
    if !change.has_conditions() {
        return Ok(String::new());
    }
    new_version().map_err(|error| {
        tracing::error!(%error, "the operating system gave no randomness for a change");
        ChangeError::Unavailable(StorageError::Redis(Unavailable::Overloaded))
    })
}
