//! Facts of a request for its audit record: the beginning, and the size of a response of the gateway itself.

use std::borrow::Cow;

use bytes::Bytes;
use http::header::USER_AGENT;
use http::request::Parts;
use http::{HeaderValue, Response};

use super::request::Arrival;
use crate::admission::Route;
use domain::budget::Cost;
use domain::head_fields::CredentialFields;
use domain::identity::{AuthMethod, Principal};
use journal::audit::Use;
use platform::telemetry::access_log::redact_credentials;

/// Texts of a request in its audit record.
pub(super) struct AuditTexts<'a> {
    /// The route's name, else `METHOD /path`.
    action: Cow<'a, str>,
    /// Path; with the query string where the route says so, without the values of parameters for keys.
    path: Cow<'a, str>,
}

impl<'a> AuditTexts<'a> {
    pub(super) fn new(head: &'a Parts, route: &'a Route, credentials: &CredentialFields) -> Self {
        let action = match &route.name {
            Some(name) => name.into(),
            None => format!("{} {}", head.method, head.uri.path()).into(),
        };
        let query = head.uri.query().filter(|_| route.query_in_audit);
        // A key of another system is known by its place alone.
        let redacted = query.and_then(|query| redact_credentials(query, credentials));
        let path = match (redacted, query) {
            (Some(redacted), _) => format!("{}?{redacted}", head.uri.path()).into(),
            (None, Some(_)) => head.uri.path_and_query().map_or("/", |target| target.as_str()).into(),
            (None, None) => head.uri.path().into(),
        };
        Self { action, path }
    }

    /// Beginning of the audit record, for a request that took nothing.
    pub(super) fn opening<'b>(&'b self, arrival: &Arrival, head: &'b Parts, principal: Option<&Principal>) -> Use<'b> {
        Use {
            id: arrival.id,
            time: arrival.time,
            number: None,
            key_id: principal.and_then(|principal| principal.key_id),
            user_id: principal.map(|principal| principal.user_id),
            org_id: principal.map(|principal| principal.org_id),
            auth_method: principal.map_or(AuthMethod::ApiKey, |principal| principal.method),
            ip: Some(arrival.client.ip),
            user_agent: head.headers.get(USER_AGENT).map(HeaderValue::as_bytes),
            action: &self.action,
            method: head.method.as_str(),
            path: &self.path,
            provisional: false,
            cost: Cost::ONE,
            budget: None,
            trace_id: arrival.trace_id(),
        }
    }
}

/// Bytes of body that are sent with a response of the gateway itself.
pub(super) fn body_sent(arrival: &Arrival, response: &Response<Bytes>) -> u64 {
    if arrival.is_head { 0 } else { response.body().len() as u64 }
}
