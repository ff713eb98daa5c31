//! Requests that admission denied: recorded, counted and answered.
//!
//! - A denied use of an existing key or session is in the audit like any other use. Of a key that is denied again and
//!   again, most uses are counted in one record for each second.
//! - After many denials in a row, the connection closes.
//! - All 401 of keys count against the limit of the address, and beyond it all of them are 429: a thief cannot tell a
//!   key that exists and is refused from one that does not exist.
//! - Attempts with unknown keys are recorded at a bounded rate; too many of them from one address are not even
//!   recorded.
//! - A request without a credential is no use of a key and has no record.

use bytes::Bytes;
use http::Response;
use http::request::Parts;

use super::Gateway;
use super::audit_facts::{AuditTexts, body_sent};
use super::guarded_body::GuardedBody;
use super::own_response::{own, reject};
use super::rejection::Rejection;
use super::request::Arrival;
use crate::admission::{Denial, Route};
use domain::clock;
use domain::identity::AuthMethod;
use domain::refusal::Refusal;
use journal::audit::{Outcome, UseEnd};

impl Gateway {
    /// Records a denial and answers it.
    pub(super) async fn refuse(
        &self,
        arrival: &Arrival,
        head: &Parts,
        route: &Route,
        denial: &Denial,
    ) -> Response<GuardedBody> {
        let is_invalid_key = is_invalid_key(denial);
        let excess = if is_invalid_key { self.bad_keys.count(arrival.client.ip, arrival.time).err() } else { None };
        let rejection = match excess {
            Some(seconds) => Rejection::with_retry_after(Refusal::TooManyAttempts, seconds),
            None => Rejection::of_denial(denial, head, route, &self.settings.credentials),
        };
        let mut response = rejection.respond_to(arrival);
        self.metrics.attempts_refused.inc_by(u64::from(excess.is_some()));
        if is_invalid_key || denial.principal.is_some() {
            arrival.connection.count_refusal(arrival.version, &mut response);
        }
        let is_recorded = excess.is_none() || denial.principal.is_some();
        if let Some(outcome) = Outcome::of_refusal(denial.refusal).filter(|_| is_recorded)
            && !self.record_denial(arrival, head, route, denial, end(arrival, &response, outcome)).await
        {
            // Without a record of the use there is no answer that depends on the key.
            let rejection = rejection.replaced_by(Refusal::AuditUnavailable);
            return reject(arrival, &rejection, &route.metrics);
        }
        route.metrics.count_response(response.status());
        own(response)
    }

    /// Writes the audit record of a denied use; false when the journal cannot take it and the use must not be answered.
    async fn record_denial(
        &self,
        arrival: &Arrival,
        head: &Parts,
        route: &Route,
        denial: &Denial,
        end: UseEnd,
    ) -> bool {
        let texts = AuditTexts::new(head, route, &self.settings.credentials);
        let opening = texts.opening(arrival, head, denial.principal.as_deref());
        let recorded = match denial.principal {
            Some(_) => self.journal.record_refusal(&opening, end).await,
            None => Ok(self.journal.record_unknown_key(&opening, end)),
        };
        arrival.note(|facts| {
            facts.is_audited = matches!(recorded, Ok(true));
            // That of the record, where the answer is the one to too many attempts.
            facts.outcome = denial.refusal.row().outcome;
        });
        recorded.is_ok()
    }
}

/// Returns whether a key was presented that does not exist, or does not authenticate its caller any more.
fn is_invalid_key(denial: &Denial) -> bool {
    let is_session = denial.principal.as_ref().is_some_and(|principal| principal.method == AuthMethod::Session);
    !is_session && denial.refusal.is_of_invalid_key()
}

fn end(arrival: &Arrival, response: &Response<Bytes>, outcome: Outcome) -> UseEnd {
    UseEnd {
        outcome,
        status: Some(response.status().as_u16()),
        duration_us: clock::now().since(arrival.time),
        request_bytes: 0,
        response_bytes: body_sent(arrival, response),
    }
}
