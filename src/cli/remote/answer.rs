//! The reply or the error that an answer of the management API stands for: the same as on the admin socket.

use anyhow::{Context as _, anyhow};
use http::header::RETRY_AFTER;
use http::{HeaderName, StatusCode};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::calls::{Call, ReplyOf};
use super::http::Answer;
use crate::cli::{CliError, ExitStatus};
use ::control::admin::Reply;
use domain::problem::Problem;

/// Name of the field of an answer that was given before, to the same call.
const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// Reads the body of an answer.
pub(super) fn parse<T: DeserializeOwned>(answer: &Answer) -> Result<T, CliError> {
    let parsed = serde_json::from_slice(&answer.body);
    Ok(parsed.context("cannot parse the gateway's answer; is it of another version?")?)
}

/// The reply of an operation.
pub(super) fn reply(call: &Call, answer: &Answer) -> Result<Reply, CliError> {
    let mut body: Map<String, Value> = parse(answer)?;
    let tagged = match call.answer {
        ReplyOf::Record(name) => json!({ "reply": name, name: body }),
        ReplyOf::List(name) => {
            body.insert("reply".into(), name.into());
            Value::Object(body)
        }
        ReplyOf::NewKey => new_key(body, answer.headers.contains_key(&REPLAYED) && !call.has_member("sha256"))?,
        ReplyOf::NewToken => new_token(body)?,
        ReplyOf::FederationRule => json!({ "reply": "federation_rule", "rule": body }),
    };
    let reply = serde_json::from_value(tagged);
    Ok(reply.context("cannot parse the gateway's answer; is it of another version?")?)
}

/// A key with its secret, which is a member of the record in the API: null where the secret was made elsewhere. A
/// secret that was made there and is not stored `is_lost` with the first answer.
fn new_key(mut record: Map<String, Value>, is_lost: bool) -> Result<Value, CliError> {
    let secret = record.remove("key").unwrap_or_default();
    let warning = record.remove("warning");
    if secret.is_null() && is_lost {
        let id = record.get("id").and_then(Value::as_str).unwrap_or_default();
        let message = format!(
            "key {id} has a new secret, and the connection broke off before it was shown; run `keygate key rotate {id}`"
        );
        return Err(anyhow!(message).into());
    }
    Ok(json!({ "reply": "new_key", "api_key": secret, "key": record, "warning": warning }))
}

/// A token with its secret, which is a member of the record in the API.
fn new_token(mut record: Map<String, Value>) -> Result<Value, CliError> {
    let Some(secret) = record.remove("token").filter(|token| !token.is_null()) else {
        let id = record.get("id").and_then(Value::as_str).unwrap_or_default();
        let message = format!(
            "token {id} was created, and the connection broke off before it was shown; run `keygate token revoke {id}` \
             and create another"
        );
        return Err(anyhow!(message).into());
    };
    Ok(json!({ "reply": "new_token", "secret": secret, "token": record }))
}

/// The error of an answer that is a problem (RFC 9457): as of the same problem on the admin socket.
pub(super) fn problem(answer: &Answer) -> CliError {
    let status = answer.status;
    let exit = match status {
        StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => ExitStatus::Temporary,
        StatusCode::BAD_REQUEST => ExitStatus::Usage,
        _ => ExitStatus::Failed,
    };
    let Ok(problem) = serde_json::from_slice::<Problem<'_>>(&answer.body) else {
        let message = anyhow!("the server responded with {status}; is it the management listener of a gateway?");
        return CliError::new(exit, message);
    };
    let detail = clause(&problem.detail);
    let after = answer.headers.get(RETRY_AFTER).and_then(|after| after.to_str().ok());
    let after = after.filter(|_| exit == ExitStatus::Temporary);
    let again = after.map(|seconds| format!(" (try again after {seconds} s)")).unwrap_or_default();
    CliError::new(exit, anyhow!("{detail}{again}"))
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
    fn clause_is_the_error_of_the_admin_socket() {
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
