//! Problems of the API (`application/problem+json`, RFC 9457): the responses with errors of management.

use bytes::Bytes;
use http::header::{ALLOW, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, Response, StatusCode};
use uuid::Uuid;

use super::mount::Mount;
use super::response::build;
use crate::json_input::add_accept_patch;
use crate::management::ManagementError;
use domain::problem::{self, ABOUT_BLANK, Problem, ProblemTypes, sentence};

/// The response to the call with this id, at a mount, with a problem of its type. Logs failures of the server.
pub(crate) fn problem(types: &ProblemTypes, id: Uuid, mount: Mount, error: &ManagementError) -> Response<Bytes> {
    // A token that was revoked during a call is refused as one that was revoked before.
    let error = if matches!(error, ManagementError::TokenEnded) { &ManagementError::TokenUnknown } else { error };
    let (status, code) = error.row().status_and_code();
    // The operator has the causes in the answer.
    if status.is_server_error() && mount != Mount::Socket {
        let cause = error.in_full();
        tracing::warn!(request_id = %id, code, cause, "a call of the management API failed");
    }
    let problem = Problem::new(status, code, detail(error, mount)).with_request_id(id.to_string());
    let problem = Problem { kind: types.link(code, ABOUT_BLANK), ..problem };
    let mut response = build(status, problem::MEDIA_TYPE, problem.to_json());
    let headers = response.headers_mut();
    if let Some(seconds) = error.retry_after() {
        headers.insert(RETRY_AFTER, seconds.into());
    }
    if let ManagementError::MethodNotAllowed(methods) = error {
        headers.insert(ALLOW, HeaderValue::try_from(methods.as_str()).expect("methods are visible ASCII"));
    }
    if let Some(challenge) = mount.challenge().filter(|_| status == StatusCode::UNAUTHORIZED) {
        headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
    }
    add_accept_patch(headers, matches!(error, ManagementError::PatchMediaType));
    response
}

/// The `detail`, as sentences: with all causes for the operator, and without the inside of the gateway for people.
fn detail(error: &ManagementError, mount: Mount) -> String {
    match mount {
        Mount::Socket => sentence(&error.in_full()),
        Mount::Network => sentence(&error.to_string()),
        Mount::Browser => error.for_people(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::super::document;
    use super::*;
    use crate::management::{ManagementError as Error, Row};
    use domain::key::KeyId;
    use domain::key::policy::InvalidKeyPolicy;
    use domain::management_token::TokenScope;
    use domain::names::{InvalidEmail, InvalidName};
    use domain::page::{InvalidCursor, InvalidPageLimit};
    use state::{InvalidFederationRule, Unavailable};

    /// Errors of the transport, sent before the API sees a request.
    const TRANSPORT: [(u16, &str); 3] = [(400, "malformed_request"), (414, "target_too_long"), (431, "head_too_large")];

    /// Errors of rows that no call to a path that there is, by a method that it supports, is answered with.
    const NOT_OF_CALLS: [(u16, &str); 16] = [
        (405, "method_not_allowed"),
        // Of pages and of signing in.
        (403, "invalid_link"),
        (403, "no_membership"),
        (400, "no_state"),
        (400, "unknown_state"),
        (400, "other_browser"),
        (400, "other_provider"),
        (403, "no_email"),
        (403, "unverified_email"),
        (409, "too_many_sessions"),
        // In the answer of an application, as of the record at which it ended.
        (409, "apply_conflict"),
        // Of the daily look for unused keys.
        (409, "key_in_use"),
        // Of reports of leaked keys, which GitHub signs.
        (401, "report_unsigned"),
        (503, "report_unverified"),
        // Answered with the first result, and as an unknown token.
        (409, "repeated"),
        (403, "invalid_token"),
    ];

    fn of_operations() -> Vec<Error> {
        let id: KeyId = "aB3dE6gH9".parse().unwrap();
        vec![
            Error::InvalidName(InvalidName::Characters),
            Error::InvalidEmail(InvalidEmail(String::new())),
            Error::InvalidConcurrent,
            Error::InvalidKeyPolicy(InvalidKeyPolicy::NoSlot),
            Error::OverlapTooLong,
            Error::InvalidToken("…"),
            Error::IncompleteSecret,
            Error::PageLimit(InvalidPageLimit),
            Error::Cursor(InvalidCursor),
            Error::NoOrg(String::new()),
            Error::NoUser(String::new()),
            Error::NoKey(id),
            Error::NoSession(String::new()),
            Error::NoQuota(String::new()),
            Error::QuotaChanged,
            Error::QuotaRecordsLate(String::new()),
            Error::QuotaRecordsMissing(String::new()),
            Error::NoToken("aB3dE6gH9j".parse().unwrap()),
            Error::BeyondOwner("a".parse().unwrap()),
            Error::NoSessions,
            Error::LinksDisabled,
            Error::JournalUnreadable(std::io::ErrorKind::NotFound.into()),
            Error::NoRule(String::new()),
            Error::InvalidRule(InvalidFederationRule::Name),
            Error::NotAllowed,
            Error::PeopleOfProvider,
            Error::GrantExceeds("a".parse().unwrap()),
            Error::MissingScope(TokenScope::KeysRead),
            Error::TokenExceeds("…"),
            Error::Widened(id),
            Error::LimitsRaised(id),
            Error::DisabledByOperator(id),
            Error::SuspendedByOperator,
            Error::OrgSuspended,
            Error::NotPerson(String::new()),
            Error::NotService(String::new()),
            Error::LastAdmin,
            Error::Taken("name"),
            Error::KeyIdTaken(id),
            Error::KeyIdOfAnotherOrg { id, tag: id.tag() },
            Error::DigestTaken(None),
            Error::CreationInProgress,
            Error::Revoked(id),
            Error::Rotated { key: id, by: None, at: None },
            Error::TooManyKeys(100),
            Error::TooManyTokens(100),
            Error::KeyCreationLimited(180),
            Error::TooManyIdempotencyKeys(10_000),
            Error::Stale,
            Error::TooManyReads,
            Error::JournalBusy,
            Error::HandedOver,
            Error::Randomness(getrandom::Error::UNSUPPORTED),
        ]
    }

    /// Collects the statuses and codes that the schemas of a document allow.
    fn collect_errors(value: &Value, into: &mut BTreeSet<(u16, String)>) {
        let properties = &value["properties"];
        if let (Some(status), Some(codes)) =
            (properties["status"]["const"].as_u64(), properties["code"]["enum"].as_array())
        {
            let status = u16::try_from(status).unwrap();
            into.extend(codes.iter().map(|code| (status, code.as_str().unwrap().to_owned())));
        }
        let members = value.as_object().into_iter().flat_map(|members| members.values());
        members.chain(value.as_array().into_iter().flatten()).for_each(|member| collect_errors(member, into));
    }

    #[test]
    fn errors_are_those_of_the_document() {
        let rows = ManagementError::ROWS.iter().filter(|row| !row.is_of_exchange() && !row.code.is_empty());
        let answers = rows.map(Row::status_and_code).map(|(status, code)| (status.as_u16(), code));
        let of_calls = answers.chain(TRANSPORT).filter(|answer| !NOT_OF_CALLS.contains(answer));
        let actual: BTreeSet<_> = of_calls.map(|(status, code)| (status, code.to_owned())).collect();
        let mut described = BTreeSet::new();
        collect_errors(&serde_json::from_str(document(Mount::Socket)).unwrap(), &mut described);
        assert_eq!(described, actual);
    }

    #[test]
    fn every_429_and_503_has_retry_after() {
        let of_limits = [Error::TooManyAttempts(1), Error::TooManyCalls(1), Error::TooManyRequests(1)];
        let of_state = Error::TokenUnverified(Unavailable::TimedOut);
        for error in of_operations().into_iter().chain(of_limits).chain([of_state]) {
            let response = problem(&ProblemTypes::default(), Uuid::nil(), Mount::Network, &error);
            let waits = [StatusCode::TOO_MANY_REQUESTS, StatusCode::SERVICE_UNAVAILABLE].contains(&response.status());
            let has_wait = response.headers().contains_key(RETRY_AFTER);
            assert!(has_wait || !waits, "{error}");
        }
    }

    #[test]
    fn details_for_people_are_sentences_without_commands() {
        for error in of_operations() {
            let detail = error.for_people();
            // People do not give digests.
            let is_of_digests = error.code().starts_with("key_id") || error.code().contains("digest");
            assert!(detail.ends_with('.') && (is_of_digests || !detail.contains("keygate ")), "{detail}");
            assert!(detail.chars().next().is_some_and(|first| !first.is_lowercase()), "{detail}");
        }
    }
}
