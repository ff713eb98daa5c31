//! Deciding while Redis is unavailable: recently confirmed keys are admitted against this gateway's share.
//!
//! - The share of a bucket is what flows in from the outage on, divided by the number of gateways (`share`).
//! - The share of the slots: what the gateway held when it noticed the outage, and its portion of the slots
//!   that were free by Redis's last answer about the organization; of one slot, if none was free. So all gateways
//!   together exceed the limit by at most one slot, and by those that others acquired after a gateway's last answer.
//!   The slots of a gateway that is cut off alone are given to others when its lease ends.
//!   A key with a limit of its own has the same shares of its slots, by Redis's last answer about the key.
//! - The cached records decide: a revocation made meanwhile is not seen. `max_staleness` bounds for how long.
//! - A key with a budget is not decided: nobody knows what the others spend meanwhile.
//! - A gateway that never reached Redis knows no keys, and one that joined a moment ago admits none until all others
//!   have seen it (`slots::membership`).
//! - The uses are reported to Redis once it is available again, each once, except those that Redis admitted itself with
//!   a late reply (`late_answer`). If that reply was lost, this is unknown: the use is reported, which errs on the side
//!   of the limit.

use std::sync::Arc;

use super::exact_share::{ExactShare, Taken};
use super::key_cache::CachedKey;
use super::late_answer::LateAnswer;
use super::shared::DeciderShared;
use crate::redis::settings::OnUnavailable;
use crate::{Admitted, DecideRequest, Decision, Permit};
use domain::clock::Micros;

impl DeciderShared {
    /// Decides without Redis at `now`, in steady time; `None` when the settings, the age of the cached key or the place
    /// among the gateways forbid it. `down_since` gives the steady time since which the server of a key is not
    /// connected, if it is not.
    pub fn decide_offline(
        &self,
        request: &DecideRequest<'_>,
        late_answer: Option<&LateAnswer>,
        down_since: impl FnOnce(&CachedKey) -> Option<Micros>,
        now: Micros,
    ) -> Option<Decision> {
        let OnUnavailable::KnownKeys { max_staleness } = self.settings.on_unavailable else {
            return None;
        };
        // Nobody knows how much others spend meanwhile: a budget has no share.
        let key = self.cache.lookup_offline(request.digest).filter(|key| key.budget.is_none())?;
        if key.confirmed().after(max_staleness) < now {
            return None;
        }
        self.count_missing_plan(&key);
        let refusal = key.refusal_at(request);
        let principal = Arc::clone(&key.principal);
        if let Some(refusal) = refusal {
            return Some(Decision::Denied { refusal, principal: Some(principal), rate_limit: None });
        }
        Some(match self.take_exact(&key, request.cost.tokens(), down_since(&key), now)? {
            Ok((permits, rate_limit, number)) => {
                // While the reply of Redis is still awaited, the awaiting task decides whether to report the use.
                if late_answer.is_none_or(LateAnswer::admit_locally) {
                    self.record_unreported(&key, request.cost.tokens());
                }
                let permit = Permit::Redis(permits);
                let validity = key.validity();
                Decision::Admitted(Admitted { principal, rate_limit, number, permit, validity, provisional: true })
            }
            Err((refusal, rate_limit)) => {
                Decision::Denied { refusal, principal: Some(principal), rate_limit: Some(rate_limit) }
            }
        })
    }

    /// Takes tokens and slots of the exact share; `None` when this gateway has none, or its share never has so many
    /// tokens.
    fn take_exact(&self, key: &CachedKey, cost: u32, down_since: Option<Micros>, now: Micros) -> Option<Taken> {
        let CachedKey { usage, lease, slots, quota, concurrent, .. } = key;
        let slots = slots.as_deref();
        let share = ExactShare { usage, lease, slots, quota: *quota, concurrent: *concurrent };
        share.take(cost, down_since, now, |since| self.slots.portion(since))
    }
}
