//! Client of a management API: sends calls over one connection, and repeats them where that changes nothing twice.
//!
//! - A call that reads is sent once more when the connection broke off before its answer; so is a `POST`, which has an
//!   `Idempotency-Key`, and a `PUT`.
//! - A call that the server put off for a few seconds, because there were many, is sent again after this time.

use std::time::Duration;

use anyhow::anyhow;
use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, USER_AGENT};
use http::{HeaderName, HeaderValue, Method, Request, StatusCode};
use http_body_util::Full;
use serde_json::Value;
use uuid::Uuid;

use super::args::RemoteServer;
use super::http::Connection;
use crate::cli::answer::Answer;
use crate::cli::call::Call;
use crate::cli::{CliError, ExitStatus};

/// Time-out of an answer, as on the admin socket.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Time-out of the answer to a call that reads the whole journal.
pub(super) const LONG_TIMEOUT: Duration = Duration::from_secs(600);
/// Seconds of `Retry-After` up to which a call is sent again by itself.
const SHORT_WAIT: u64 = 5;
/// Times that a call is put off before the command gives up.
const MAX_WAITS: usize = 10;
/// Name of the field that marks a call as the same one.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Client of a gateway elsewhere.
pub(in crate::cli) struct Remote<'a> {
    server: &'a RemoteServer,
    connection: Option<Connection>,
}

/// A request that can be built again for a repetition.
struct Draft<'a> {
    method: Method,
    target: String,
    body: Option<&'a Value>,
    /// The same for each repetition.
    idempotency_key: Option<String>,
}

impl<'a> Remote<'a> {
    pub(in crate::cli) fn new(server: &'a RemoteServer) -> Self {
        Self { server, connection: None }
    }

    /// Sends a call. The answer may be a problem.
    pub(in crate::cli) async fn send(&mut self, call: &Call) -> Result<Answer, CliError> {
        self.send_within(call, TIMEOUT).await
    }

    /// Reads the lines of an export of the state.
    pub(in crate::cli) async fn export(&mut self) -> Result<Bytes, CliError> {
        self.send_within(&Call::get(&["state"]), LONG_TIMEOUT).await?.body().cloned()
    }

    /// The same, for an answer that takes this long at most.
    pub(super) async fn send_within(&mut self, call: &Call, timeout: Duration) -> Result<Answer, CliError> {
        let is_post = call.method == Method::POST;
        let draft = Draft {
            method: call.method.clone(),
            target: call.target(),
            body: call.body.as_ref(),
            idempotency_key: is_post.then(|| Uuid::new_v4().to_string()),
        };
        for _ in 0..MAX_WAITS {
            let answer = self.exchange(&draft, timeout).await?;
            let Some(seconds) = wait_of(&answer) else { return Ok(answer) };
            tokio::time::sleep(Duration::from_secs(seconds)).await;
        }
        self.exchange(&draft, timeout).await
    }

    /// Sends a request, once more where the connection broke off and that is safe.
    async fn exchange(&mut self, draft: &Draft<'_>, timeout: Duration) -> Result<Answer, CliError> {
        let is_repeatable = draft.method.is_safe() || draft.method == Method::PUT || draft.idempotency_key.is_some();
        let mut repeated = false;
        loop {
            let mut connection = self.connect().await?;
            let request = draft.build(self.server)?;
            match connection.send(request, timeout).await {
                Ok(answer) => {
                    self.connection = Some(connection);
                    return Ok(answer);
                }
                Err(_) if is_repeatable && !repeated => repeated = true,
                Err(error) => return Err(self.unanswered(error, draft)),
            }
        }
    }

    /// The open connection, or another one.
    async fn connect(&mut self) -> Result<Connection, CliError> {
        if let Some(mut connection) = self.connection.take()
            && connection.is_ready().await
        {
            return Ok(connection);
        }
        Connection::open(&self.server.server).await.map_err(|error| {
            let message = format!("{}: the gateway cannot be reached", self.server.url.authority());
            CliError::new(ExitStatus::Unreachable, error.context(message))
        })
    }

    fn unanswered(&self, error: anyhow::Error, draft: &Draft<'_>) -> CliError {
        let server = self.server.url.authority();
        // The gateway may have performed the call all the same, so the command must not be repeated blindly.
        let advice = if draft.method.is_safe() { "" } else { "; check whether the change was made before you repeat" };
        CliError::new(ExitStatus::Unreachable, error.context(format!("{server}: the gateway did not respond{advice}")))
    }
}

impl Draft<'_> {
    fn build(&self, server: &RemoteServer) -> Result<Request<Full<Bytes>>, CliError> {
        let mut token = HeaderValue::try_from(format!("Bearer {}", server.token.expose()))
            .map_err(|_| anyhow!("the token has characters that no token has"))?;
        token.set_sensitive(true);
        let mut request = Request::builder()
            .method(self.method.clone())
            .uri(&self.target)
            .header(HOST, server.url.authority())
            .header(USER_AGENT, concat!("keygate/", env!("CARGO_PKG_VERSION")))
            .header(ACCEPT, "application/json")
            .header(AUTHORIZATION, token);
        if let Some(key) = &self.idempotency_key {
            // A string of structured fields (RFC 9651), as the draft has it.
            request = request.header(IDEMPOTENCY_KEY, format!("\"{key}\""));
        }
        let body = match self.body {
            Some(body) => {
                request = request.header(CONTENT_TYPE, "application/json");
                Bytes::from(body.to_string())
            }
            None => Bytes::new(),
        };
        Ok(request.body(Full::new(body)).map_err(|error| anyhow!(error).context("the call cannot be sent"))?)
    }
}

/// The seconds after which a call that was put off is sent again; none when it was not, or for long.
fn wait_of(answer: &Answer) -> Option<u64> {
    let is_put_off = [StatusCode::TOO_MANY_REQUESTS, StatusCode::CONFLICT].contains(&answer.status);
    answer.retry_after().filter(|seconds| is_put_off && *seconds <= SHORT_WAIT)
}
