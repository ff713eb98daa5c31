//! Checks of open exchanges against the directory, where the revocation log says too little: behind a gap, when a
//! session may have expired, and when a rotation names neither the secret nor one that it can tell to be older.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use tokio::time::sleep;

use super::exchange_slots::SlotId;
use super::open_exchanges::OpenExchanges;
use domain::clock;
use domain::identity::Principal;
use state::{CredentialId, CredentialStatus, State, Unavailable, Validity};

/// Time that exchanges have to end by themselves before they are checked: most are over by then.
const GRACE: Duration = Duration::from_millis(200);
/// Pause before checks are repeated that failed.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// Credentials that are checked at a time: decisions share the connections.
const CONCURRENT_CHECKS: usize = 16;

/// Credential to be checked, and the exchanges that were admitted with it.
struct Check {
    principal: Arc<Principal>,
    validity: Validity,
    exchanges: Vec<SlotId>,
}

impl OpenExchanges {
    /// Checks exchanges when they are to be checked, for as long as the worker runs. While the state is unavailable,
    /// they go on, and are checked when it is back.
    pub(super) async fn run_checks(&self, state: &State) {
        loop {
            self.0.check_requested.notified().await;
            sleep(GRACE).await;
            while !self.check_all(state).await {
                sleep(RETRY_INTERVAL).await;
            }
        }
    }

    /// Checks all exchanges that are to be checked. Returns false when some could not be checked.
    async fn check_all(&self, state: &State) -> bool {
        let checks = self.take_checks();
        let failed = stream::iter(checks)
            .map(async |check| {
                let now = state.time(clock::now());
                let status = state.check_credential(&check.principal, &check.validity, now).await;
                self.settle(check, status)
            })
            .buffer_unordered(CONCURRENT_CHECKS)
            .fold(Vec::new(), async |mut failed, exchanges| {
                failed.extend(exchanges);
                failed
            })
            .await;
        let all_settled = failed.is_empty();
        self.0.unchecked.borrow_mut().extend(failed);
        all_settled
    }

    /// Takes the exchanges that are to be checked and still open, by their credentials.
    fn take_checks(&self) -> Vec<Check> {
        let ids = std::mem::take(&mut *self.0.unchecked.borrow_mut());
        let mut slots = self.0.slots.borrow_mut();
        let mut checks: HashMap<CredentialId, Check> = HashMap::new();
        for id in ids {
            slots.with(id, |exchange| {
                let check = checks.entry(exchange.validity.credential()).or_insert_with(|| Check {
                    principal: Arc::clone(&exchange.principal),
                    validity: exchange.validity,
                    exchanges: Vec::new(),
                });
                check.exchanges.push(id);
            });
        }
        checks.into_values().collect()
    }

    /// Ends the exchanges of a credential that is no longer valid. Returns those that have to be checked again.
    fn settle(&self, check: Check, status: Result<CredentialStatus, Unavailable>) -> Vec<SlotId> {
        match status {
            Ok(CredentialStatus::Revoked(reason)) => {
                check.exchanges.into_iter().for_each(|id| self.0.terminate(id, reason));
            }
            Ok(CredentialStatus::Valid(until)) => {
                check.exchanges.into_iter().for_each(|id| self.0.extend(id, until));
            }
            Err(error) => {
                tracing::debug!(%error, "cannot check whether the credential of an open exchange is valid");
                return check.exchanges;
            }
        }
        Vec::new()
    }
}
