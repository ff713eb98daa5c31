//! Preflights of listed origins: they cost no token and no slot and have no record, and the bucket of their address
//! bounds them. Other requests with `OPTIONS` are requests like all.

use bytes::Bytes;
use http::request::Parts;
use http::{Response, StatusCode};

use super::Gateway;
use super::guarded_body::GuardedBody;
use super::own_response::{own, reject};
use super::rejection::Rejection;
use super::request::Arrival;
use crate::admission::preflight_method;
use domain::refusal::Refusal;

impl Gateway {
    /// Answers a preflight of a listed origin; none when the request is another one.
    pub(super) fn answer_preflight(&self, arrival: &Arrival, head: &Parts) -> Option<Response<GuardedBody>> {
        let cors = arrival.cors.as_ref().filter(|cors| cors.is_listed())?;
        let method = preflight_method(head)?;
        let route = self.admission.find_route_for(head, &method);
        arrival.note_admission(head, route, &self.settings.credentials, || None);
        if let Err(seconds) = self.public.count(arrival.client.ip, arrival.time) {
            let rejection = Rejection::with_retry_after(Refusal::AddressLimited, seconds);
            return Some(reject(arrival, &rejection, &route.metrics));
        }
        let mut response = Response::new(Bytes::new());
        *response.status_mut() = StatusCode::NO_CONTENT;
        cors.write_preflight(response.headers_mut(), &self.admission.methods_for(head, method));
        route.metrics.count_response(response.status());
        Some(own(response))
    }
}
