//! The answer to a call of the API, or the error that it stands for.

use anyhow::{Context as _, anyhow};
use bytes::Bytes;
use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderName, StatusCode};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::call::Call;
use super::{CliError, ExitStatus};
use ::control::management::Failure;
use domain::problem::Problem;

/// Name of the field of an answer that was given before, to the same call.
const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// Answer to a call.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl From<http::Response<Bytes>> for Answer {
    fn from(response: http::Response<Bytes>) -> Self {
        let (head, body) = response.into_parts();
        Self { status: head.status, headers: head.headers, body }
    }
}

impl Answer {
    /// The record or the list of an answer; the error of a problem.
    pub(super) fn read<T: DeserializeOwned>(&self, call: &Call) -> Result<T, CliError> {
        let body = self.body()?;
        if call.makes_secret && self.headers.contains_key(REPLAYED) {
            return Err(self.lost_secret(call));
        }
        let parsed = serde_json::from_slice(body);
        Ok(parsed.context("cannot parse the gateway's answer; is it of another version?")?)
    }

    /// The body of an answer; the error of a problem.
    pub(super) fn body(&self) -> Result<&Bytes, CliError> {
        if self.status.is_success() { Ok(&self.body) } else { Err(self.problem()) }
    }

    /// Secrets are not stored: one that was made is lost with the first answer.
    fn lost_secret(&self, call: &Call) -> CliError {
        let record: Value = serde_json::from_slice(&self.body).unwrap_or_default();
        let id = record.get("id").and_then(Value::as_str).unwrap_or_default();
        let lost = "and the connection broke off before it was shown";
        let message = if call.target().ends_with("/tokens") {
            format!("token {id} was created, {lost}; run `keygate token revoke {id}` and create another")
        } else {
            format!("key {id} has a new secret, {lost}; run `keygate key rotate {id}`")
        };
        anyhow!(message).into()
    }

    /// The error of a part of a call that was not done.
    pub(super) fn failure(failure: &Failure) -> CliError {
        let status = StatusCode::from_u16(failure.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        CliError::new(ExitStatus::of_response(status), anyhow!("{}", clause(&failure.detail)))
    }

    /// The error of an answer that is a problem (RFC 9457).
    fn problem(&self) -> CliError {
        let status = self.status;
        let exit = ExitStatus::of_response(status);
        let Ok(problem) = serde_json::from_slice::<Problem<'_>>(&self.body) else {
            let message = anyhow!("the server responded with {status}; is it a gateway of this version?");
            return CliError::new(exit, message);
        };
        let again = self.retry_after().filter(|_| exit == ExitStatus::Temporary);
        let again = again.map(|seconds| format!(" (try again after {seconds} s)")).unwrap_or_default();
        // Of what does not exist, the code says what it is.
        let version = if problem.code == "not_found" { "; is the gateway of the version of this command?" } else { "" };
        CliError::new(exit, anyhow!("{}{version}{again}", clause(&problem.detail)))
    }

    /// Seconds after which the call may be sent again.
    pub(super) fn retry_after(&self) -> Option<u64> {
        self.headers.get(RETRY_AFTER)?.to_str().ok()?.parse().ok()
    }
}

/// A sentence as the clause that it was made of: errors of commands begin in lower case and have no full stop.
fn clause(sentence: &str) -> String {
    let text = sentence.strip_suffix('.').unwrap_or(sentence);
    let mut letters = text.chars();
    let Some(first) = letters.next() else { return String::new() };
    let is_word = letters.clone().next().is_none_or(|second| !second.is_ascii_uppercase());
    if is_word { first.to_lowercase().chain(letters).collect() } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentence_of_a_problem_becomes_a_clause() {
        for (sentence, error) in [
            ("There is no key x; see `keygate key list`.", "there is no key x; see `keygate key list`"),
            ("A token needs one scope at least.", "a token needs one scope at least"),
            ("SHA-256 is wrong.", "SHA-256 is wrong"),
            ("`limit` must be 1.", "`limit` must be 1"),
            ("", ""),
        ] {
            assert_eq!(clause(sentence), error);
        }
    }
}
