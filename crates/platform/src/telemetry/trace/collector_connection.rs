//! Connections to a collector: HTTP/1.1, over TLS where its address says so.

use std::sync::Arc;

use http::Uri;

use super::settings::{Endpoint, Settings};
use crate::outbound::{ExchangeError, HttpConnection, Server, ServerError};
use crate::tls::{self, ClientTls};

/// Address of a collector, and the TLS by which it is verified.
#[derive(Debug)]
pub(super) struct Target {
    endpoint: Endpoint,
    server: Server,
}

/// Reason why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum SendError {
    #[error("there is no connection to the collector")]
    Server(#[from] ServerError),
    #[error("there is no answer of the collector")]
    Exchange(#[from] ExchangeError),
    #[error("the address of the collector cannot be used in a request")]
    Address(#[source] http::Error),
}

impl Target {
    pub(super) fn new(settings: &Settings) -> Result<Self, tls::Error> {
        let url = settings.endpoint.url();
        let open = || ClientTls::open(&settings.tls, &[]).map(Arc::new);
        let tls = url.is_encrypted().then(open).transpose()?;
        let server = Server { host: url.host().to_owned(), port: url.port(), tls };
        Ok(Self { endpoint: settings.endpoint.clone(), server })
    }

    /// The TLS, whose files are to be watched.
    pub(super) fn tls(&self) -> Option<Arc<ClientTls>> {
        self.server.tls.clone()
    }

    /// Path and query of requests.
    pub(super) fn path(&self) -> Uri {
        self.endpoint.url().target()
    }

    pub(super) async fn connect(&self) -> Result<HttpConnection, SendError> {
        Ok(HttpConnection::open(self.server.connect().await?).await?)
    }
}
