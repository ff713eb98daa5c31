//! Usage of the caller's own key, which the gateway itself answers on routes with `serve: usage`.
//!
//! - The answer is about the credential of the request; no request can name another one.
//! - It costs a token, holds a slot and is recorded like any other request: it is bounded by the caller's limits.
//! - Counts by the hour come from the index of this gateway's journal. Few reads run at a time in the whole process,
//!   each on a thread for blocking work; when none can be made in time, the answer has no such counts.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONNECTION, CONTENT_TYPE};
use http::{HeaderValue, Response};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::Gateway;
use super::audit_facts::body_sent;
use super::caller_usage::{CallerUsage, Counts, counts};
use super::exchange::Exchange;
use super::guarded_body::GuardedBody;
use super::own_response::own;
use super::request::Arrival;
use super::response::vary_by_cookie;
use crate::admission::Route;
use domain::clock::Micros;
use domain::identity::{AuthMethod, OrgId, Principal};
use domain::key::KeyId;
use journal::audit::{Journal, KeyActivity, Outcome, StopSignal};

/// Reads of the journal at a time: they need the cores and the disk that requests need.
const CONCURRENT_READS: usize = 2;
/// Longest wait for the turn and the result of a read. A read takes milliseconds.
const READ_TIMEOUT: Duration = Duration::from_secs(2);

/// Turns to read the journal, for all workers.
#[derive(Clone, Debug)]
pub struct UsageReads(Arc<Semaphore>);

impl Default for UsageReads {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(CONCURRENT_READS)))
    }
}

impl Gateway {
    /// Answers with the usage of the caller, and ends the exchange.
    pub(super) async fn serve_usage(
        &self,
        arrival: &Arrival,
        route: &Route,
        mut exchange: Box<Exchange>,
        caller: Box<CallerUsage>,
    ) -> Response<GuardedBody> {
        let counts = self.read_counts(&caller.principal, arrival.time).await;
        let document = caller.document(counts, self.journal.gateway());
        let body = serde_json::to_vec(&document).expect("numbers and texts are JSON");
        let mut response = Response::new(Bytes::from(body));
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if caller.principal.method == AuthMethod::Session {
            vary_by_cookie(headers);
        }
        if let Some(granted) = exchange.caller() {
            granted.rate_limit.write(headers, &self.policies, &self.memory);
        }
        // A body that nothing has read would stand before the next request on this connection.
        if !exchange.upload.is_finished() {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        route.metrics.count_response(response.status());
        exchange.end(Outcome::Completed);
        exchange.status = Some(response.status());
        exchange.sent = body_sent(arrival, &response);
        own(response)
    }

    /// The counts of the current hour and day of a key; none for sessions, and when they cannot be read in time.
    async fn read_counts(&self, principal: &Principal, now: Micros) -> Option<(Counts, Counts)> {
        let key = principal.key_id.filter(|_| principal.method == AuthMethod::ApiKey)?;
        let read = read_activity(self.usage_reads.clone(), self.journal.clone(), (principal.org_id, key), now);
        match timeout(READ_TIMEOUT, read).await {
            Ok(Ok(activity)) => Some(counts(&activity, now)),
            Ok(Err(error)) => {
                tracing::debug!(%error, %key, "the usage of a key cannot be read from the journal's index");
                None
            }
            Err(_) => None,
        }
    }
}

/// Reads the activity of a key, when it is its turn. Dropping the future gives the turn up, or stops the read.
async fn read_activity(
    reads: UsageReads,
    journal: Journal,
    (org, key): (OrgId, KeyId),
    now: Micros,
) -> io::Result<KeyActivity> {
    let permit = reads.0.acquire_owned().await.map_err(io::Error::other)?;
    let stop = StopSignal::default();
    let _stop = stop.on_drop();
    let reading = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        journal.reader()?.with_stop(stop).activity(org, &[key], now)
    });
    let mut activity = reading.await.map_err(io::Error::other)??;
    activity.remove(&key).ok_or_else(|| io::Error::other("the key has no activity"))
}
