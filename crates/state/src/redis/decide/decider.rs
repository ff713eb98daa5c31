//! The decider: decides requests, with retries, within the deadline.

use std::sync::Arc;

use arc_swap::ArcSwap;
use futures_util::{StreamExt as _, stream};
use tokio::time::timeout;

use super::call_outcome::{CallOutcome, DecideError};
use super::decide_call::DecideCall;
use super::decide_codec::{DecideReply, Decided, Evaluation, encode_read};
use super::key_cache::{CachedKey, KeyCache};
use super::late_answer::LateAnswer;
use super::local_refusal;
use super::shared::DeciderShared;
use crate::redis::active_defaults::ActiveDefaults;
use crate::redis::digest_index::find_key;
use crate::redis::record_codec::StoredRecords;
use crate::redis::record_names::org_slot;
use crate::redis::revocations::KeptRevocations;
use crate::redis::scripts::Scripts;
use crate::redis::settings::{OnUnavailable, Settings};
use crate::redis::slots::{Permit, SlotLeases};
use crate::{Admitted, DecideRequest, Decision, Permit as StatePermit, Unavailable};
use domain::clock::{self, Micros};
use domain::key::KeyId;
use domain::quota::RateLimitStatus;
use domain::refusal::Refusal;
use redis_client::{CommandError, RedisClient};

/// Attempts at one decision while the records keep changing. More means that they change all the time.
const MAX_ATTEMPTS: usize = 5;
/// Keys whose unreported uses are reported at a time.
const CONCURRENT_REPORTS: usize = 256;

/// Decides requests, for one thread.
pub(crate) struct Decider {
    pub(super) shared: Arc<DeciderShared>,
    pub(super) client: RedisClient,
}

impl Decider {
    /// A decider with an empty cache.
    pub(crate) fn new(
        settings: Arc<Settings>,
        scripts: Arc<Scripts>,
        slots: Arc<SlotLeases>,
        defaults: Arc<ArcSwap<ActiveDefaults>>,
        revocations: Arc<KeptRevocations>,
        client: RedisClient,
    ) -> Self {
        let shared = DeciderShared::new(settings, scripts, slots, KeyCache::new(defaults, revocations));
        Self { shared: Arc::new(shared), client }
    }

    /// The same decider with another client: for another thread.
    pub(crate) fn with_client(&self, client: RedisClient) -> Self {
        Self { shared: Arc::clone(&self.shared), client }
    }

    /// Decides one request within the deadline; offline if Redis is unavailable and the settings allow it.
    ///
    /// # Errors
    /// [`Unavailable`]. When a reply was late or lost, a token may have been taken; a slot never stays taken.
    pub(crate) async fn decide(&self, request: DecideRequest<'_>) -> Result<Decision, Unavailable> {
        let settings = &self.shared.settings;
        let may_admit_offline = matches!(settings.on_unavailable, OnUnavailable::KnownKeys { .. });
        let late_answer = may_admit_offline.then(Arc::<LateAnswer>::default);
        let result = timeout(settings.deadline, self.decide_with_retry(request, late_answer.as_ref())).await;
        let unavailable = match result {
            Ok(Ok(decision)) => return Ok(decision),
            // Redis answered, so an offline decision would be wrong. The next request is decided normally.
            Ok(Err(error @ DecideError::Fenced)) => return Err((&error).into()),
            Ok(Err(error)) => (&error).into(),
            Err(_) => Unavailable::TimedOut,
        };
        self.decide_offline(&request, late_answer.as_deref()).ok_or(unavailable)
    }

    /// Ends all local verdicts: a change of the directory was made.
    pub(crate) fn end_verdicts(&self) {
        self.shared.end_verdicts();
    }

    /// Decides one request without regard to the deadline. A key that is not cached, or whose records have changed,
    /// takes one more round trip. What is rare is boxed: the future of a decision stays small.
    async fn decide_with_retry(
        &self,
        request: DecideRequest<'_>,
        late_answer: Option<&Arc<LateAnswer>>,
    ) -> Result<Decision, DecideError> {
        let (shared, epoch) = (&self.shared, self.shared.verdict_epoch());
        let unknown = Decision::Denied { refusal: Refusal::Unknown, principal: None, rate_limit: None };
        let mut cached = shared.cache.lookup(request.digest);
        for attempt in 1..=MAX_ATTEMPTS {
            let found = match cached {
                Some(key) => Some(key),
                None => Box::pin(self.read_key(&request)).await?,
            };
            let Some(key) = found else { return Ok(unknown) };
            if let Some(decision) = self.refuse_locally(&key, &request, epoch) {
                return Ok(decision);
            }
            let evaluation = key.refusal(&request).map_or(Evaluation::Allowed, Evaluation::Refused);
            let call = DecideCall::new(shared, &self.client, &key, evaluation, request.now, late_answer);
            cached = match call.await? {
                CallOutcome::Admitted(decided, permit) => return Ok(admitted(&key, &decided, permit)),
                CallOutcome::Refused(decided, refusal) => return Ok(refused(&key, &request, &decided, refusal, epoch)),
                CallOutcome::StaleDenial(decided) => {
                    if attempt == MAX_ATTEMPTS || !Box::pin(self.releases_arrive(&key)).await {
                        return Ok(denied(&key, &decided, Refusal::TooManyInFlight));
                    }
                    Some(key)
                }
                CallOutcome::Stale(fresh) => Some(shared.cache.insert(request.digest, *fresh)),
                CallOutcome::LeaseInDoubt if self.resync(&key).await? => Some(key),
                // The organization is gone, and its keys with it.
                CallOutcome::LeaseInDoubt => return Ok(unknown),
                CallOutcome::Unknown => {
                    shared.cache.remove(request.digest);
                    None
                }
            };
        }
        Err(DecideError::Contended)
    }

    /// Resyncs the lease of a key. Returns false when the organization is gone.
    async fn resync(&self, key: &CachedKey) -> Result<bool, CommandError> {
        Box::pin(self.shared.slots.resync(&self.client, &key.lease)).await
    }

    /// Waits until releases in flight have reached Redis. Those that take longer than a quarter of the deadline might
    /// as well be taken slots.
    async fn releases_arrive(&self, key: &CachedKey) -> bool {
        timeout(self.shared.settings.deadline / 4, key.lease.wait_for_report()).await.is_ok()
    }

    /// A refusal by a local verdict, where verdicts are as exact as the decisions.
    fn refuse_locally(&self, key: &CachedKey, request: &DecideRequest<'_>, epoch: u64) -> Option<Decision> {
        self.shared.settings.may_refuse_locally().then(|| local_refusal::refuse(key, request, epoch)).flatten()
    }

    /// Reads the key of a digest into the cache: by the id that the presented key contains, else by the digest index.
    async fn read_key(&self, request: &DecideRequest<'_>) -> Result<Option<Arc<CachedKey>>, CommandError> {
        let insert = |records: StoredRecords| {
            let cached = self.shared.cached_key(request.digest, &records);
            self.shared.cache.insert(request.digest, cached)
        };
        // The id is not authenticated: only the digest says that the presented key is this one.
        if let Some(id) = request.id
            && let Some(records) = self.read_records(id).await?
            && (records.key.digest == *request.digest || records.key.previous == Some(*request.digest))
        {
            return Ok(Some(insert(records)));
        }
        let Some(id) = find_key(&self.client, &self.shared.names, request.digest).await? else { return Ok(None) };
        Ok(self.read_records(id).await?.map(insert))
    }

    /// Reads the records of a key, its organization and its user, in one round trip.
    pub(super) async fn read_records(&self, id: KeyId) -> Result<Option<StoredRecords>, CommandError> {
        let shared = &self.shared;
        let (key, org) = (shared.names.key(id), shared.names.org(id.tag()));
        let request = encode_read();
        let keys: [&[u8]; 2] = [key.as_bytes(), org.as_bytes()];
        let arguments: [&[u8]; 2] = [&shared.slots.gateway_id, &request];
        let reply = self.client.run(org_slot(id.tag()), &shared.scripts.decide, &keys, &arguments).await?;
        match DecideReply::decode(reply)? {
            DecideReply::Stale(records) => Ok(Some(*records)),
            DecideReply::Unknown => Ok(None),
            DecideReply::Decided(_) | DecideReply::Unregistered => Err(CommandError::UnexpectedReply),
        }
    }

    /// The rate-limit status of a key. Takes nothing.
    pub(crate) async fn rate_limit_status(
        &self,
        id: KeyId,
        now: Micros,
    ) -> Result<Option<RateLimitStatus>, DecideError> {
        let Some(records) = self.read_records(id).await? else { return Ok(None) };
        let cached = self.shared.cached_key(&records.key.digest, &records);
        self.read_status(Arc::new(cached), now).await
    }

    /// Reads the rate-limit status of a cached key, and reports its unreported uses. Takes nothing.
    async fn read_status(&self, key: Arc<CachedKey>, now: Micros) -> Result<Option<RateLimitStatus>, DecideError> {
        let mut key = key;
        for _ in 0..MAX_ATTEMPTS {
            let call = DecideCall::new(&self.shared, &self.client, &key, Evaluation::StatusOnly, now, None);
            match call.finish().await? {
                CallOutcome::Refused(decided, _) => return Ok(Some(decided.rate_limit_status(&key))),
                CallOutcome::Stale(fresh) => key = Arc::from(fresh),
                CallOutcome::Unknown => return Ok(None),
                CallOutcome::Admitted(..) | CallOutcome::StaleDenial(_) | CallOutcome::LeaseInDoubt => {
                    return Err(CommandError::UnexpectedReply.into());
                }
            }
        }
        Err(DecideError::Contended)
    }

    /// Steady time since which the server of a key is not connected; `None` while it is.
    pub(super) fn down_since(&self, key: &CachedKey) -> Option<Micros> {
        self.client.down_since(key.lease.hash_slot)
    }

    /// Reports the uses that were admitted offline, if Redis is available again.
    pub(crate) async fn flush_unreported(&self) {
        if !self.client.is_up() || self.client.shared().is_out_of_memory() {
            return;
        }
        let report = async |key: Arc<CachedKey>| {
            // A key that is gone has no record to count uses in. Otherwise uses can be left: the report may have
            // failed, or more uses may have been added meanwhile.
            let gone = matches!(self.read_status(Arc::clone(&key), clock::now()).await, Ok(None));
            if !gone && key.usage.unreported().is_some() {
                self.shared.add_unreported_key(&key);
            }
        };
        let keys = self.shared.take_unreported_keys();
        stream::iter(keys).for_each_concurrent(CONCURRENT_REPORTS, report).await;
    }
}

fn admitted(key: &CachedKey, decided: &Decided, permit: Permit) -> Decision {
    key.verdict.clear();
    Decision::Admitted(Admitted {
        principal: Arc::clone(&key.principal),
        rate_limit: decided.rate_limit_status(key),
        number: decided.uses,
        permit: StatePermit::Redis(permit),
        provisional: false,
        validity: key.validity(),
    })
}

/// A refusal by Redis, which counts towards a local verdict.
fn refused(key: &CachedKey, request: &DecideRequest<'_>, decided: &Decided, refusal: Refusal, epoch: u64) -> Decision {
    local_refusal::add_refusal(key, request, decided, refusal, epoch);
    denied(key, decided, refusal)
}

/// Callers that are not authenticated learn nothing about the key's limits.
fn denied(key: &CachedKey, decided: &Decided, refusal: Refusal) -> Decision {
    let rate_limit = refusal.is_of_authenticated_caller().then(|| decided.rate_limit_status(key));
    Decision::Denied { refusal, principal: Some(Arc::clone(&key.principal)), rate_limit }
}
