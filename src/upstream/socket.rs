//! Socket of an upstream connection, with TLS or without.
//!
//! - A socket with TLS exists only after the certificate was verified: for the endpoint's host, or for the configured
//!   name, by the configured authorities, or by those of the system.

use std::io;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tokio_util::either::Either;

use super::settings::Endpoint;
use crate::tls::ClientTls;

/// TLS parameters of connections to one endpoint.
pub(super) struct Encryption {
    /// Trusted authorities and client certificate, shared by all endpoints.
    pub(super) store: Arc<ClientTls>,
    /// Name that the certificate must be for.
    name: ServerName<'static>,
}

/// Connected socket: plain on the left, TLS on the right.
pub(super) type Socket = Either<TcpStream, Box<TlsStream<TcpStream>>>;

impl Encryption {
    pub(super) fn new(store: &Arc<ClientTls>, name: &ServerName<'static>) -> Self {
        Self { store: Arc::clone(store), name: name.clone() }
    }
}

/// Connects: tries every address of the endpoint's name, then shakes hands where the endpoint has TLS.
pub(super) async fn connect_socket(endpoint: &Endpoint, encryption: Option<&Encryption>) -> io::Result<Socket> {
    let stream = TcpStream::connect((&*endpoint.host, endpoint.port)).await?;
    stream.set_nodelay(true)?;
    let Some(Encryption { store, name }) = encryption else { return Ok(Either::Left(stream)) };
    Ok(Either::Right(Box::new(store.connector().connect(name.clone(), stream).await?)))
}

/// The TCP stream of a socket.
pub(super) fn tcp_stream(socket: &Socket) -> &TcpStream {
    match socket {
        Either::Left(stream) => stream,
        Either::Right(tls) => tls.get_ref().0,
    }
}

/// Returns whether bytes were decrypted, or an error was found, that no read has returned yet.
pub(super) fn has_read_ahead(socket: &mut Socket) -> bool {
    match socket {
        Either::Left(_) => false,
        Either::Right(tls) => {
            let state = tls.get_mut().1.process_new_packets();
            state.is_err() || state.is_ok_and(|state| state.plaintext_bytes_to_read() > 0)
        }
    }
}

impl std::fmt::Debug for Encryption {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Encryption").field(&self.name).finish()
    }
}
