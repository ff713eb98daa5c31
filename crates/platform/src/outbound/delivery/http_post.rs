//! Client that posts messages to one address, over one connection that it keeps.
//!
//! No redirect is followed: the fields of a request may hold a token.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST, RETRY_AFTER, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use tokio::time::timeout;

use super::retry::Retry;
use crate::outbound::http::{ExchangeError, HttpConnection};
use crate::outbound::server::{Server, ServerError};
use crate::outbound::url::HttpUrl;
use crate::tls::{self, ClientSettings, ClientTls};
use domain::secret::Secret;

/// Client of one address.
#[derive(Debug)]
pub struct HttpPost {
    url: HttpUrl,
    server: Server,
    /// Fields of all messages.
    headers: HeaderMap,
    /// Time of a message, with its connection and its answer.
    timeout: Duration,
    connection: Option<HttpConnection>,
}

/// Reason why a message was not taken.
#[derive(Debug, thiserror::Error)]
pub enum PostError {
    /// There is no connection.
    #[error("there is no connection to the server")]
    Server(#[from] ServerError),
    /// The connection ended before the answer.
    #[error("there is no answer of the server")]
    Exchange(#[from] ExchangeError),
    /// The answer does not take the message.
    #[error("the server answers with status {status}")]
    Status {
        /// Its status.
        status: StatusCode,
        /// Time for which the server asks.
        retry_after: Option<Duration>,
    },
    /// A request cannot be made of the address.
    #[error("the address of the server cannot be used in a request")]
    Address(#[source] http::Error),
    /// There is no answer in time.
    #[error("the server took nothing within {} s", .0.as_secs())]
    TimedOut(Duration),
}

impl HttpPost {
    /// A client that sends messages of this type. Its TLS is opened when the address is encrypted.
    ///
    /// # Errors
    /// [`tls::Error`]: a file cannot be used.
    pub fn open(
        url: &HttpUrl,
        tls: &ClientSettings,
        content_type: &'static str,
        timeout: Duration,
    ) -> Result<Self, tls::Error> {
        let tls = url.is_encrypted().then(|| ClientTls::open(tls, &[]).map(Arc::new)).transpose()?;
        let server = Server { host: url.host().to_owned(), port: url.port(), tls };
        let host = HeaderValue::from_str(url.authority()).expect("the authority of an address is visible ASCII");
        let headers = [
            (HOST, host),
            (USER_AGENT, HeaderValue::from_static(concat!("keygate/", env!("CARGO_PKG_VERSION")))),
            (CONTENT_TYPE, HeaderValue::from_static(content_type)),
        ];
        Ok(Self { url: url.clone(), server, headers: HeaderMap::from_iter(headers), timeout, connection: None })
    }

    /// The same client, with more fields in all messages.
    #[must_use]
    pub fn with_fields(mut self, fields: &[(HeaderName, Secret)]) -> Self {
        for (name, value) in fields {
            // The configuration has checked it.
            let Ok(mut value) = HeaderValue::from_str(value.expose()) else { continue };
            value.set_sensitive(true);
            self.headers.insert(name, value);
        }
        self
    }

    /// The place, for messages; without the path, which may hold a token.
    pub fn target(&self) -> &str {
        self.url.authority()
    }

    /// The TLS of its connections, whose files are to be watched; none without encryption.
    pub fn tls(&self) -> Option<Arc<ClientTls>> {
        self.server.tls.clone()
    }

    /// Closes the connection.
    pub fn disconnect(&mut self) {
        self.connection = None;
    }

    /// Posts a message with these fields beside those of all. Returns the body of the answer.
    ///
    /// # Errors
    /// [`PostError`], also for a status other than 2xx.
    pub async fn post(&mut self, body: Bytes, fields: HeaderMap) -> Result<Bytes, PostError> {
        let limit = self.timeout;
        let answer = timeout(limit, self.exchange(body, fields)).await.map_err(|_| PostError::TimedOut(limit))??;
        let status = answer.status();
        if status.is_success() {
            Ok(answer.into_body())
        } else {
            Err(PostError::Status { status, retry_after: retry_after(answer.headers()) })
        }
    }

    /// Sends a message over the connection that is kept, or a new one.
    async fn exchange(&mut self, body: Bytes, fields: HeaderMap) -> Result<Response<Bytes>, PostError> {
        // Taken, so that a message that is given up closes its connection.
        let mut connection = match self.connection.take().filter(HttpConnection::is_open) {
            Some(connection) => connection,
            None => HttpConnection::open(self.server.connect().await?).await?,
        };
        let mut request = Request::post(self.url.target()).body(body).map_err(PostError::Address)?;
        request.headers_mut().clone_from(&self.headers);
        request.headers_mut().extend(fields);
        let answer = connection.send(request).await?;
        self.connection = Some(connection);
        Ok(answer)
    }
}

impl PostError {
    /// When the same message may be sent again (OTLP specification, "Failures"): after 429, 502, 503 and 504, and when
    /// there was no answer.
    pub fn retry(&self) -> Retry {
        match self {
            Self::Status { status, retry_after } => match status.as_u16() {
                429 | 502 | 503 | 504 => retry_after.map_or(Retry::Later, Retry::After),
                _ => Retry::Never,
            },
            Self::Server(_) | Self::Exchange(_) | Self::Address(_) | Self::TimedOut(_) => Retry::Later,
        }
    }
}

/// Time for which a server asks, in seconds; a date counts as none.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_a_number_of_seconds() {
        let read = |value: &str| retry_after(&HeaderMap::from_iter([(RETRY_AFTER, value.parse().unwrap())]));
        assert_eq!(read("7"), Some(Duration::from_secs(7)));
        assert_eq!(read("Wed, 21 Oct 2026 07:28:00 GMT"), None);
        assert_eq!(retry_after(&HeaderMap::new()), None);
    }

    #[test]
    fn message_is_sent_again_only_after_failures_that_may_pass() {
        let retry = |status: u16, retry_after| {
            PostError::Status { status: StatusCode::from_u16(status).unwrap(), retry_after }.retry()
        };
        let asked = Some(Duration::from_secs(7));
        assert_eq!([429, 502, 503, 504].map(|status| retry(status, None)), [Retry::Later; 4]);
        assert_eq!([400, 401, 404, 413, 500, 501].map(|status| retry(status, asked)), [Retry::Never; 6]);
        assert_eq!(retry(503, asked), Retry::After(Duration::from_secs(7)));
        assert_eq!(PostError::TimedOut(Duration::ZERO).retry(), Retry::Later);
    }
}
