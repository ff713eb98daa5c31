//! Refusals: every reason for which the gateway itself answers a request, in one table.
//!
//! A row holds all that a refusal means outside of the decision itself: the response, the audit outcome, the metrics
//! and the value on the wire to Redis. To add a refusal, add its row; then return it where the request is refused.
//!
//! - Unknown keys, and known ones that are not valid, get the same answer, so that a caller cannot probe for keys. The
//!   audit record and the metrics tell them apart. Only a wrong checksum is told, which needs no look-up.

mod row;

use crate::identity::AuthMethod;

pub use row::{Answer, Limit, Row};
use row::{
    INSUFFICIENT_SCOPE, REALM, SESSION_ENDED, answer, invalid_key, invalid_key_with, invalid_request, quota_exceeded,
    row, row_of,
};

/// Declares [`Refusal`] and its table from the rows below.
macro_rules! refusals {
    ($($(#[$doc:meta])+ $name:ident => $row:expr;)+) => {
        /// Reason for which the gateway itself answers a request.
        ///
        /// The state checks in the order from [`Refusal::Unknown`] to [`Refusal::TooManyInFlight`]. From
        /// [`Refusal::OrgSuspended`] on, the caller is authenticated.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Refusal {
            $($(#[$doc])+ $name,)+
        }

        impl Refusal {
            /// All refusals, in the order of the table.
            pub const ALL: &[Self] = &[$(Self::$name),+];
        }

        static TABLE: [Row; Refusal::ALL.len()] = [$($row),+];
    };
}

refusals! {
    /// The request has no credential, or one of another scheme than Bearer.
    NoCredential => Row {
        auth_result: Some("missing"),
        ..row(401, "unauthenticated", "This request needs an API key: send it as 'Authorization: Bearer <API_KEY>'.")
            .challenge(REALM)
    };
    /// The request has several fields that may carry a key.
    RepeatedCredential => invalid_request("There is more than one credential: send the API key once, in one field.");
    /// The request has a field for the key, but no key in it.
    EmptyToken => invalid_request("The API key is empty.");
    /// The request has several session cookies.
    RepeatedSession => invalid_request("There is more than one session cookie.");
    /// The request has a session cookie and the method by which audit records of management are known.
    ReservedMethod => invalid_request("A session may not be used with this method.");
    /// The session has ended, or never existed.
    NoSession => Row { auth_result: Some("no_session"), ..row_of(SESSION_ENDED) };
    /// The request has a session cookie and is unsafe, but no page of the gateway's origin sent it.
    CrossSite => Row {
        auth_result: Some("cross_site"),
        ..row(403, "cross_site_request", "A session may only be used by pages of this origin, and this request does \
            not say that it comes from one.")
    };

    /// No key has this digest.
    Unknown => Row { outcome: Some("unknown"), auth_result: Some("unknown"), redis_code: Some(1), ..invalid_key() };
    /// The credential cannot be a key: its length, its characters or its checksum are wrong.
    MalformedKey => Row {
        outcome: Some("unknown"), auth_result: Some("malformed"),
        ..invalid_key_with("This is not a complete API key. Check that all of its characters were copied.")
    };
    /// The key was revoked.
    Revoked => Row { outcome: Some("revoked"), auth_result: Some("revoked"), redis_code: Some(2), ..invalid_key() };
    /// The secret was replaced by a rotation and its overlap is over.
    Expired => Row { outcome: Some("expired"), auth_result: Some("expired"), redis_code: Some(3), ..invalid_key() };
    /// The key's user was removed.
    UserRemoved => Row {
        outcome: Some("user_removed"), auth_result: Some("user_removed"), redis_code: Some(4), ..invalid_key()
    };
    /// The key's user is suspended.
    UserSuspended => Row {
        outcome: Some("user_suspended"), auth_result: Some("user_suspended"), redis_code: Some(12), ..invalid_key()
    };
    /// The key has expired by its policy.
    KeyExpired => Row {
        outcome: Some("key_expired"), auth_result: Some("key_expired"), redis_code: Some(13), ..invalid_key()
    };
    /// The key is disabled.
    KeyDisabled => Row {
        outcome: Some("key_disabled"), auth_result: Some("key_disabled"), redis_code: Some(14), ..invalid_key()
    };
    /// The client's address is in none of the key's networks.
    AddressRefused => Row {
        outcome: Some("address_refused"), auth_result: Some("address_refused"), redis_code: Some(15), ..invalid_key()
    };
    /// The organization is suspended.
    OrgSuspended => Row {
        outcome: Some("org_suspended"), auth_result: Some("org_suspended"), redis_code: Some(5),
        ..row(403, "insufficient_scope", "Your organization is suspended. Ask the operator of this service.")
            .challenge(INSUFFICIENT_SCOPE)
    };
    /// The user lacks the permission that the route requires. The response's challenge names it.
    Forbidden => Row {
        outcome: Some("forbidden"), auth_result: Some("forbidden"), redis_code: Some(6),
        ..row(403, "insufficient_scope", "This key, or its user, does not have the permission that the request needs.")
            .challenge(INSUFFICIENT_SCOPE)
    };
    /// No route leads to this method and path.
    NotFound => Row {
        outcome: Some("not_found"), auth_result: Some("ok"), redis_code: Some(11),
        ..row(404, "not_found", "There is nothing here for this method and path.")
    };
    /// No route leads to this path, which servers read in different ways.
    AmbiguousPath => Row {
        outcome: Some("not_found"), auth_result: Some("ok"),
        ..row(404, "ambiguous_path", "Servers read this path in different ways.")
    };
    /// The request costs more tokens than the key's bucket ever holds.
    CostOverLimit => Row {
        outcome: Some("cost_over_limit"), auth_result: Some("ok"), redis_code: Some(17),
        ..row(403, "cost_over_limit", "This request costs more than the limit of this API key ever allows at once. Ask \
            for a higher limit.")
    };
    /// The bucket of the key, or of the user's sessions, has fewer tokens than the request costs.
    RateLimited => Row {
        outcome: Some("rate_limited"), redis_code: Some(7),
        session_answer: Some(answer(429, "rate_limited", "You have used up the requests of your sessions. Wait for \
            the seconds in Retry-After, then retry with exponential backoff.")),
        ..quota_exceeded(Limit::Rate, "rate_limited", "This API key has used up its requests. Wait for the \
            seconds in Retry-After, then retry with exponential backoff.")
    };
    /// The budget of the key, its user or its organization has less left than the request costs.
    QuotaExhausted => Row {
        outcome: Some("quota_exhausted"), redis_code: Some(18),
        ..quota_exceeded(Limit::Budget, "quota_exhausted", "The budget of this period is used up. Wait for the seconds \
            in Retry-After, then retry with exponential backoff; or ask for a larger budget.")
    };
    /// The key has no slot of its own left.
    KeyTooManyInFlight => Row {
        outcome: Some("too_many_in_flight"), redis_code: Some(16),
        ..quota_exceeded(Limit::KeyConcurrency, "too_many_in_flight", "This API key has as many requests in flight as \
            it may. Wait for the seconds in Retry-After, then retry with exponential backoff.")
    };
    /// The organization has no slot left.
    TooManyInFlight => Row {
        outcome: Some("too_many_in_flight"), redis_code: Some(8),
        ..quota_exceeded(Limit::Concurrency, "too_many_in_flight", "Your organization has as many requests in flight \
            as it may. Wait for the seconds in Retry-After, then retry with exponential backoff.")
    };
    /// Too many requests with invalid keys came from the client's address.
    TooManyAttempts => Row {
        closes_connection: true,
        ..row(429, "too_many_attempts", "Too many invalid API keys came from your address. Valid keys are not \
            affected. Wait for the seconds in Retry-After, then retry with exponential backoff.")
    };

    /// Too many requests without a key came from the client's address.
    AddressLimited => row(429, "address_limited", "Too many requests without an API key came from your address. Wait \
        for the seconds in Retry-After, then retry with exponential backoff.");
    /// The gateway serves as many requests without a key as it may.
    PublicBusy => Row {
        retries_soon: true,
        ..row(503, "public_busy", "The gateway has as many requests without an API key in flight as it may. Try again \
            soon.")
    };

    /// The head is malformed or ambiguous, or the body broke off.
    MalformedRequest => Row {
        outcome: Some("client_error"), closes_connection: true,
        ..row(400, "malformed_request", "This is not a well-formed HTTP request.")
    };
    /// Another proxy's question lacks a fact of the request, or has one twice.
    MalformedDecision => row(400, "malformed_decision", "The proxy in front does not say which request it has: its \
        configuration is not that of the gateway's documentation.");
    /// The request expects something other than `100-continue`.
    ExpectationFailed => Row {
        closes_connection: true,
        ..row(417, "expectation_failed", "This request expects something other than 100-continue.")
    };
    /// The head has too many or too large fields.
    HeadTooLarge => Row {
        closes_connection: true,
        ..row(431, "head_too_large", "The header fields of this request are too many or too large.")
    };
    /// Path and query are too long.
    TargetTooLong => Row {
        closes_connection: true,
        ..row(414, "target_too_long", "The path and query of this request are too long.")
    };
    /// The body is too large.
    BodyTooLarge => Row {
        outcome: Some("client_error"), closes_connection: true,
        ..row(413, "body_too_large", "The body of this request is too large.")
    };
    /// The head or the body came too slowly.
    RequestTimeout => Row {
        outcome: Some("client_error"), closes_connection: true,
        ..row(408, "request_timeout", "This request did not arrive in time.")
    };

    /// The gateway panicked.
    InternalError => Row {
        outcome: Some("internal_error"), closes_connection: true,
        ..row(500, "internal_error", "The gateway failed. The request may or may not have been carried out.")
    };
    /// The state did not decide.
    StateUnavailable => Row {
        retries_soon: true,
        problem_type: "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",
        ..row(503, "state_unavailable", "API keys cannot be checked at the moment. Try again soon.")
    };
    /// The audit record could not be written.
    AuditUnavailable => Row {
        retries_soon: true,
        ..row(503, "audit_unavailable", "This request cannot be recorded at the moment, so it is not served. Try again \
            soon.")
    };
    /// No endpoint of the upstream could be reached.
    UpstreamUnavailable => Row {
        outcome: Some("upstream_error"), retries_soon: true,
        ..row(503, "upstream_unavailable", "The service behind this gateway cannot be reached at the moment, so it has \
            not executed the request. Try again soon.")
    };
    /// No connection to the upstream became free in time, or too many requests waited for one.
    UpstreamBusy => Row {
        outcome: Some("upstream_error"), retries_soon: true,
        ..row(503, "upstream_unavailable",
            "The service behind this gateway has too many requests at the moment, so it has not executed this one. Try \
             again soon.")
    };
    /// The upstream closed the connection early, or its response is invalid.
    UpstreamFailed => Row {
        outcome: Some("upstream_error"),
        ..row(502, "upstream_failed",
            "The service behind this gateway broke off or answered badly. It may have executed the request.")
    };
    /// The upstream refused to begin with the request, which cannot be sent again.
    UpstreamRefused => Row {
        outcome: Some("upstream_error"),
        ..row(502, "upstream_failed",
            "The service behind this gateway refused to begin with the request, so it has not executed it.")
    };
    /// The upstream did not respond in time.
    UpstreamTimeout => Row {
        outcome: Some("upstream_error"),
        ..row(504, "upstream_timeout",
            "The service behind this gateway did not answer in time. It may have executed the request.")
    };
    /// No endpoint of the upstream could be connected to in time.
    UpstreamConnectTimeout => Row {
        outcome: Some("upstream_error"),
        ..row(504, "upstream_timeout",
            "The service behind this gateway could not be connected to in time, so it has not executed the request.")
    };
}

impl Refusal {
    /// The refusal's row of the table.
    pub fn row(self) -> &'static Row {
        &TABLE[self as usize]
    }

    /// Response to a caller who authenticated by this method.
    pub fn answer(self, method: AuthMethod) -> &'static Answer {
        let row = self.row();
        match (method, &row.session_answer) {
            (AuthMethod::Session, Some(answer)) => answer,
            _ => &row.answer,
        }
    }

    /// True for a refusal of a key that does not exist, or does not authenticate its caller.
    pub fn is_of_invalid_key(self) -> bool {
        use Refusal::{
            AddressRefused, Expired, KeyDisabled, KeyExpired, MalformedKey, Revoked, Unknown, UserRemoved,
            UserSuspended,
        };
        matches!(
            self,
            Unknown
                | MalformedKey
                | Revoked
                | Expired
                | UserRemoved
                | UserSuspended
                | KeyExpired
                | KeyDisabled
                | AddressRefused
        )
    }

    /// True for a refusal by the state that tells who the caller is: the key or session itself is good.
    pub fn is_of_authenticated_caller(self) -> bool {
        use Refusal::{
            AmbiguousPath, CostOverLimit, Forbidden, KeyTooManyInFlight, NotFound, OrgSuspended, QuotaExhausted,
            RateLimited, TooManyInFlight,
        };
        matches!(
            self,
            OrgSuspended
                | Forbidden
                | NotFound
                | AmbiguousPath
                | CostOverLimit
                | RateLimited
                | QuotaExhausted
                | KeyTooManyInFlight
                | TooManyInFlight
        )
    }

    /// True for a failure of an admitted request of which the upstream was sent nothing.
    pub fn is_before_sending(self) -> bool {
        use Refusal::{AuditUnavailable, UpstreamBusy, UpstreamConnectTimeout, UpstreamUnavailable};
        matches!(self, AuditUnavailable | UpstreamUnavailable | UpstreamBusy | UpstreamConnectTimeout)
    }

    /// Refusal with this code on the wire to Redis.
    pub fn from_redis(code: u64) -> Option<Self> {
        Self::ALL.iter().copied().find(|refusal| refusal.row().redis_code == Some(code))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Status, code, audit outcome, result in `auth_total`, and code in Redis.
    type Wire = (Refusal, u16, &'static str, Option<&'static str>, Option<&'static str>, Option<u64>);

    #[rustfmt::skip]
    const WIRE: [Wire; 44] = [
        (Refusal::NoCredential, 401, "unauthenticated", None, Some("missing"), None),
        (Refusal::RepeatedCredential, 400, "invalid_request", None, Some("malformed"), None),
        (Refusal::EmptyToken, 400, "invalid_request", None, Some("malformed"), None),
        (Refusal::RepeatedSession, 400, "invalid_request", None, Some("malformed"), None),
        (Refusal::ReservedMethod, 400, "invalid_request", None, Some("malformed"), None),
        (Refusal::NoSession, 401, "invalid_session", None, Some("no_session"), None),
        (Refusal::CrossSite, 403, "cross_site_request", None, Some("cross_site"), None),
        (Refusal::Unknown, 401, "invalid_token", Some("unknown"), Some("unknown"), Some(1)),
        (Refusal::MalformedKey, 401, "invalid_token", Some("unknown"), Some("malformed"), None),
        (Refusal::Revoked, 401, "invalid_token", Some("revoked"), Some("revoked"), Some(2)),
        (Refusal::Expired, 401, "invalid_token", Some("expired"), Some("expired"), Some(3)),
        (Refusal::UserRemoved, 401, "invalid_token", Some("user_removed"), Some("user_removed"), Some(4)),
        (Refusal::UserSuspended, 401, "invalid_token", Some("user_suspended"), Some("user_suspended"), Some(12)),
        (Refusal::KeyExpired, 401, "invalid_token", Some("key_expired"), Some("key_expired"), Some(13)),
        (Refusal::KeyDisabled, 401, "invalid_token", Some("key_disabled"), Some("key_disabled"), Some(14)),
        (Refusal::AddressRefused, 401, "invalid_token", Some("address_refused"), Some("address_refused"), Some(15)),
        (Refusal::OrgSuspended, 403, "insufficient_scope", Some("org_suspended"), Some("org_suspended"), Some(5)),
        (Refusal::Forbidden, 403, "insufficient_scope", Some("forbidden"), Some("forbidden"), Some(6)),
        (Refusal::NotFound, 404, "not_found", Some("not_found"), Some("ok"), Some(11)),
        (Refusal::AmbiguousPath, 404, "ambiguous_path", Some("not_found"), Some("ok"), None),
        (Refusal::CostOverLimit, 403, "cost_over_limit", Some("cost_over_limit"), Some("ok"), Some(17)),
        (Refusal::RateLimited, 429, "rate_limited", Some("rate_limited"), Some("ok"), Some(7)),
        (Refusal::QuotaExhausted, 429, "quota_exhausted", Some("quota_exhausted"), Some("ok"), Some(18)),
        (Refusal::KeyTooManyInFlight, 429, "too_many_in_flight", Some("too_many_in_flight"), Some("ok"), Some(16)),
        (Refusal::TooManyInFlight, 429, "too_many_in_flight", Some("too_many_in_flight"), Some("ok"), Some(8)),
        (Refusal::TooManyAttempts, 429, "too_many_attempts", None, None, None),
        (Refusal::AddressLimited, 429, "address_limited", None, None, None),
        (Refusal::PublicBusy, 503, "public_busy", None, None, None),
        (Refusal::MalformedRequest, 400, "malformed_request", Some("client_error"), None, None),
        (Refusal::MalformedDecision, 400, "malformed_decision", None, None, None),
        (Refusal::ExpectationFailed, 417, "expectation_failed", None, None, None),
        (Refusal::HeadTooLarge, 431, "head_too_large", None, None, None),
        (Refusal::TargetTooLong, 414, "target_too_long", None, None, None),
        (Refusal::BodyTooLarge, 413, "body_too_large", Some("client_error"), None, None),
        (Refusal::RequestTimeout, 408, "request_timeout", Some("client_error"), None, None),
        (Refusal::InternalError, 500, "internal_error", Some("internal_error"), None, None),
        (Refusal::StateUnavailable, 503, "state_unavailable", None, None, None),
        (Refusal::AuditUnavailable, 503, "audit_unavailable", None, None, None),
        (Refusal::UpstreamUnavailable, 503, "upstream_unavailable", Some("upstream_error"), None, None),
        (Refusal::UpstreamBusy, 503, "upstream_unavailable", Some("upstream_error"), None, None),
        (Refusal::UpstreamFailed, 502, "upstream_failed", Some("upstream_error"), None, None),
        (Refusal::UpstreamRefused, 502, "upstream_failed", Some("upstream_error"), None, None),
        (Refusal::UpstreamTimeout, 504, "upstream_timeout", Some("upstream_error"), None, None),
        (Refusal::UpstreamConnectTimeout, 504, "upstream_timeout", Some("upstream_error"), None, None),
    ];

    fn refusals_with(has: impl Fn(&Row) -> bool) -> Vec<Refusal> {
        Refusal::ALL.iter().copied().filter(|refusal| has(refusal.row())).collect()
    }

    #[test]
    fn wire_values_are_those_of_the_contract() {
        let wire = Refusal::ALL.iter().map(|refusal| {
            let row = refusal.row();
            let Answer { status, code, .. } = row.answer;
            (*refusal, status.as_u16(), code, row.outcome, row.auth_result, row.redis_code)
        });
        assert_eq!(wire.collect::<Vec<_>>(), WIRE);
        assert_eq!(Refusal::from_redis(5), Some(Refusal::OrgSuspended));
        assert_eq!(Refusal::from_redis(0), None);
    }

    #[test]
    fn session_answers_differ_where_the_contract_says_so() {
        use Refusal::{
            AddressRefused, Expired, KeyDisabled, KeyExpired, MalformedKey, RateLimited, Revoked, Unknown, UserRemoved,
            UserSuspended,
        };
        let differing = refusals_with(|row| row.session_answer.is_some());
        let of_users = [Unknown, MalformedKey, Revoked, Expired, UserRemoved, UserSuspended];
        let of_policies = [KeyExpired, KeyDisabled, AddressRefused];
        assert_eq!(differing, [&of_users[..], &of_policies, &[RateLimited]].concat());
        let answer = Revoked.answer(AuthMethod::Session);
        assert_eq!((answer.status.as_u16(), answer.code, answer.challenge), (401, "invalid_session", Some(REALM)));
        let [session, key] = [AuthMethod::Session, AuthMethod::ApiKey].map(|method| RateLimited.answer(method));
        assert_eq!((session.status, session.code), (key.status, key.code));
    }

    #[test]
    fn refusals_of_invalid_keys_have_one_answer_but_for_a_wrong_checksum() {
        let invalid: Vec<Refusal> =
            Refusal::ALL.iter().copied().filter(|refusal| refusal.is_of_invalid_key()).collect();
        assert_eq!(invalid, refusals_with(|row| row.answer.code == "invalid_token"));
        for refusal in invalid {
            let answers = [refusal, Refusal::Unknown].map(|refusal| refusal.row().answer.detail);
            assert_eq!(answers[0] == answers[1], refusal != Refusal::MalformedKey, "{refusal:?}");
        }
    }

    #[test]
    fn every_429_asks_for_exponential_backoff() {
        let answers = Refusal::ALL
            .iter()
            .flat_map(|refusal| [AuthMethod::ApiKey, AuthMethod::Session].map(|method| refusal.answer(method)));
        let mut limited = 0;
        for answer in answers.filter(|answer| answer.status.as_u16() == 429) {
            assert!(answer.detail.contains("Retry-After, then retry with exponential backoff"), "{}", answer.detail);
            limited += 1;
        }
        assert_eq!(limited, 12);
    }

    #[test]
    fn response_fields_are_those_of_the_contract() {
        use Refusal::{
            AuditUnavailable, BodyTooLarge, ExpectationFailed, HeadTooLarge, InternalError, KeyTooManyInFlight,
            MalformedRequest, PublicBusy, QuotaExhausted, RateLimited, RequestTimeout, StateUnavailable, TargetTooLong,
            TooManyAttempts, TooManyInFlight, UpstreamBusy, UpstreamUnavailable,
        };
        let soon = [PublicBusy, StateUnavailable, AuditUnavailable, UpstreamUnavailable, UpstreamBusy];
        assert_eq!(refusals_with(|row| row.retries_soon), soon);
        let closing = [TooManyAttempts, MalformedRequest, ExpectationFailed, HeadTooLarge, TargetTooLong];
        let closing = [&closing[..], &[BodyTooLarge, RequestTimeout, InternalError]].concat();
        assert_eq!(refusals_with(|row| row.closes_connection), closing);
        let types = |end| refusals_with(|row| row.problem_type.ends_with(end));
        assert_eq!(types("#quota-exceeded"), [RateLimited, QuotaExhausted, KeyTooManyInFlight, TooManyInFlight]);
        assert_eq!(types("#temporary-reduced-capacity"), [StateUnavailable]);
        assert_eq!(types("about:blank").len(), Refusal::ALL.len() - 5);
        let errors = |error: &str| refusals_with(|row| row.answer.challenge.is_some_and(|text| text.contains(error)));
        assert_eq!(errors("error=").len(), 15);
        assert_eq!(errors("error=\"invalid_token\"").len(), 9);
        assert_eq!(errors("error=\"insufficient_scope\""), [Refusal::OrgSuspended, Refusal::Forbidden]);
        assert_eq!(errors("realm").len(), 17);
    }
}
