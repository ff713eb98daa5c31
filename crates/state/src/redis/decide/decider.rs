//! The decider: decides requests, with retries, within the deadline.

use std::ops::ControlFlow;
use std::sync::Arc;

use futures_util::{StreamExt as _, stream};
use tokio::time::timeout;

use super::decide_call::DecideCall;
use super::decide_codec::DecideError;
use super::decide_codec::{Evaluation, decode_read, encode_read};
use super::key_cache::CachedKey;
use super::late_answer::LateAnswer;
use super::shared::DeciderShared;
use super::steps::{DecisionSteps, Next, Step, after_status_call};
use crate::near_budgets::NearBudgets;
use crate::redis::digest_index::find_key;
use crate::redis::record_codec::StoredRecords;
use crate::redis::settings::OnUnavailable;
use crate::redis::slot_numbers::org_slot;
use crate::{DecideRequest, Decision, Unavailable};
use domain::clock::{self, Micros};
use domain::key::KeyId;
use domain::quota::RateLimitStatus;
use redis_client::{CommandError, Fault, RedisClient};

/// Keys whose unreported uses are reported at a time.
const CONCURRENT_REPORTS: usize = 256;

/// Decides requests, for one thread.
pub(crate) struct Decider {
    pub(super) shared: Arc<DeciderShared>,
    pub(super) client: RedisClient,
}

impl Decider {
    /// A decider that asks the servers of a client.
    pub(crate) fn new(shared: DeciderShared, client: RedisClient) -> Self {
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
            Ok(Err(error)) if !error.allows_offline() => return Err((&error).into()),
            Ok(Err(error)) => {
                self.note_failure(&request, &error);
                (&error).into()
            }
            Err(_) => {
                self.shared.health.note_failure(Fault::Late, clock::steady());
                Unavailable::TimedOut
            }
        };
        let down_since = |key: &CachedKey| self.client.down_since(key.lease.hash_slot);
        let late_answer = late_answer.as_deref();
        self.shared.decide_offline(&request, late_answer, down_since, clock::steady()).ok_or(unavailable)
    }

    /// Decisions about keys of plans that the configuration does not have.
    pub(crate) fn missing_plan_decisions(&self) -> u64 {
        self.shared.missing_plan_decisions()
    }

    /// The budgets that decisions have found nearly spent.
    pub(crate) fn near_budgets(&self) -> &NearBudgets {
        &self.shared.near
    }

    /// The fault for which Redis decides nothing now; none while it does.
    pub(crate) fn fault(&self) -> Option<Fault> {
        let of_connection = || (!self.client.is_up()).then(|| self.client.fault(None, &CommandError::Unreachable));
        if self.client.shared().is_out_of_memory() {
            return Some(Fault::OutOfMemory);
        }
        self.shared.health.fault(clock::steady()).or_else(of_connection)
    }

    /// The faults that decisions meet now, also at some servers of a Cluster only; each once.
    pub(crate) fn faults(&self) -> Vec<Fault> {
        let mut faults = self.shared.health.faults(clock::steady());
        faults.extend(self.fault().filter(|fault| !faults.contains(fault)));
        faults
    }

    #[cold]
    fn note_failure(&self, request: &DecideRequest<'_>, error: &DecideError) {
        let slot = request.id.map(|id| org_slot(id.tag()));
        let fault = match error {
            DecideError::Command(error) => self.client.fault(slot, error),
            DecideError::Contended | DecideError::Fenced => Fault::Overloaded,
        };
        self.shared.health.note_failure(fault, clock::steady());
    }

    /// Ends all local verdicts: a change of the directory was made.
    pub(crate) fn end_verdicts(&self) {
        self.shared.end_verdicts();
    }

    /// Performs the steps of one decision, without regard to the deadline. What is rare is boxed: the future of a
    /// decision stays small.
    async fn decide_with_retry(
        &self,
        request: DecideRequest<'_>,
        late_answer: Option<&Arc<LateAnswer>>,
    ) -> Result<Decision, DecideError> {
        let shared = &self.shared;
        let request = &request;
        let (mut steps, first) = DecisionSteps::begin(shared, request);
        let mut step = match first {
            Next::Continue(step) => step,
            Next::Break(result) => return result,
        };
        loop {
            let next = match step {
                Step::Read => {
                    let found = Box::pin(self.find_records(request)).await?;
                    steps.after_read(shared, request, found.as_ref(), clock::steady())
                }
                Step::Call(key, evaluation) => {
                    let call = DecideCall::new(shared, &self.client, &key, evaluation, request.now, late_answer);
                    let outcome = call.await?;
                    steps.after_call(shared, request, key, outcome)
                }
                Step::Resync(key, lease) => {
                    let exists = Box::pin(shared.slots.resync(&self.client, &lease)).await?;
                    steps.after_resync(shared, request, key, exists)
                }
                Step::AwaitReleases(key, decided) => {
                    let longest = shared.settings.longest_wait_for_releases();
                    let reported = decided.exhausted_lease(&key).wait_for_report();
                    let arrived = Box::pin(timeout(longest, reported)).await.is_ok();
                    steps.after_releases(shared, request, (key, decided), arrived)
                }
            };
            step = match next {
                Next::Continue(step) => step,
                Next::Break(result) => return result,
            };
        }
    }

    /// Reads the records of a digest: by the id that the presented key contains, else by the digest index.
    async fn find_records(&self, request: &DecideRequest<'_>) -> Result<Option<StoredRecords>, CommandError> {
        // The id is not authenticated: only the digest says that the presented key is this one.
        if let Some(id) = request.id
            && let Some(records) = self.read_records(id).await?
            && (records.key.digest == *request.digest || records.key.previous == Some(*request.digest))
        {
            return Ok(Some(records));
        }
        match find_key(&self.client, &self.shared.names, request.digest).await? {
            Some(id) => self.read_records(id).await,
            None => Ok(None),
        }
    }

    /// Reads the records of a key, its organization and its user, in one round trip.
    pub(super) async fn read_records(&self, id: KeyId) -> Result<Option<StoredRecords>, CommandError> {
        let shared = &self.shared;
        let key = shared.names.key(id);
        let org = shared.names.org(id.tag());
        let request = encode_read();
        let keys: [&[u8]; 2] = [key.as_bytes(), org.as_bytes()];
        let arguments: [&[u8]; 2] = [&shared.slots.gateway_id, &request];
        let reply = self.client.run(org_slot(id.tag()), &shared.scripts.decide, &keys, &arguments).await?;
        decode_read(reply)
    }

    /// The rate-limit status of a key. Takes nothing.
    pub(crate) async fn rate_limit_status(
        &self,
        id: KeyId,
        now: Micros,
    ) -> Result<Option<RateLimitStatus>, DecideError> {
        let Some(records) = self.read_records(id).await? else { return Ok(None) };
        let cached = self.shared.cached_key(&records.key.digest, &records, clock::steady());
        Ok(self.read_status(Arc::new(cached), now).await?.map(|(status, _)| status))
    }

    /// Reads the rate-limit status of a cached key, and reports its unreported uses. Takes nothing. Returns the entry
    /// by the current records as well; none of a key that is gone.
    async fn read_status(
        &self,
        key: Arc<CachedKey>,
        now: Micros,
    ) -> Result<Option<(RateLimitStatus, Arc<CachedKey>)>, DecideError> {
        let mut key = key;
        let mut attempts = 0;
        loop {
            let call = DecideCall::new(&self.shared, &self.client, &key, Evaluation::StatusOnly, now, None);
            match after_status_call(&mut attempts, call.finish().await?)? {
                ControlFlow::Continue(fresh) => key = fresh,
                ControlFlow::Break(decided) => {
                    return Ok(decided.map(|decided| (decided.rate_limit_status(&key, 1), key)));
                }
            }
        }
    }

    /// Reports the uses that were admitted offline, if Redis is available again. Returns the keys among them that were
    /// disabled meanwhile for being unused.
    pub(crate) async fn flush_unreported(&self) -> Vec<KeyId> {
        if !self.client.is_up() || self.client.shared().is_out_of_memory() {
            return Vec::new();
        }
        let report = async |key: Arc<CachedKey>| {
            let reported = self.read_status(Arc::clone(&key), clock::now()).await;
            self.shared.end_report(&key, matches!(reported, Ok(None)));
            let (_, current) = reported.ok().flatten()?;
            current.key_id().filter(|_| current.is_disabled_as_unused())
        };
        let keys = self.shared.take_unreported_keys();
        let disabled: Vec<Option<KeyId>> =
            stream::iter(keys).map(report).buffer_unordered(CONCURRENT_REPORTS).collect().await;
        disabled.into_iter().flatten().collect()
    }
}
