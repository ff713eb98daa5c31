//! Connection set-up before HTTP: PROXY header, TLS handshake, protocol selection.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_util::either::Either;

use super::proxy_protocol;
use crate::transport::serving::{Http2Negotiation, ServeOptions};
use crate::transport::stream::{ClientSocket, ClientStream};
use domain::identity::{Peer, TlsVersion};
use platform::tls::ServerTls;

/// Connection preface of HTTP/2 (RFC 9113, section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Name of HTTP/2 in ALPN (RFC 9113, section 3.2).
const ALPN_HTTP2: &[u8] = b"h2";
/// Bytes of the first read of a plain connection; holds most heads whole.
const FIRST_READ: usize = 4096;

/// A connection on which HTTP can begin.
pub(super) struct Established {
    pub(super) stream: ClientStream,
    pub(super) peer: Rc<Peer>,
    pub(super) http2: bool,
}

/// The reason why a connection was not established.
#[derive(Debug, thiserror::Error)]
pub(super) enum HandshakeError {
    #[error("the handshake timed out")]
    TimedOut,
    #[error("the client sent nothing in time")]
    NoFirstByte,
    #[error("the PROXY header is missing or malformed")]
    Proxy(#[source] io::Error),
    #[error("the TLS handshake failed")]
    Tls(#[source] io::Error),
    #[error("the connection failed")]
    Io(#[source] io::Error),
}

/// Establishes a connection. Plain ones without prior knowledge of HTTP/2 are established at once.
pub(super) async fn establish(
    stream: TcpStream,
    address: SocketAddr,
    options: &ServeOptions,
) -> Result<Established, HandshakeError> {
    // A proxy's address may be IPv4 mapped into IPv6, where the listener takes both.
    let is_proxy = options.proxy_networks.iter().any(|network| network.contains(&address.ip().to_canonical()));
    let mut established = if is_proxy || options.tls.is_some() {
        // On the heap, so that the connection's task has no room for it when it is over.
        let handshake = Box::pin(shake_hands(stream, address, is_proxy, options.tls.as_deref()));
        timeout(options.settings.handshake_timeout, handshake).await.map_err(|_| HandshakeError::TimedOut)??
    } else {
        plain(ClientSocket::new(stream), address)
    };
    // Encrypted connections have agreed on their protocol by ALPN.
    if options.http2 == Http2Negotiation::PriorKnowledge
        && let Either::Left(socket) = &mut established.stream
    {
        established.http2 = detect_preface(socket, options.settings.first_byte_timeout).await?;
    }
    Ok(established)
}

/// Reads the PROXY header if the peer is a proxy, then performs the TLS handshake if the listener is encrypted.
async fn shake_hands(
    stream: TcpStream,
    mut address: SocketAddr,
    is_proxy: bool,
    tls: Option<&ServerTls>,
) -> Result<Established, HandshakeError> {
    let mut socket = ClientSocket::new(stream);
    if is_proxy {
        address = read_proxy_header(&mut socket).await.map_err(HandshakeError::Proxy)?.unwrap_or(address);
    }
    let Some(tls) = tls else { return Ok(plain(socket, address)) };
    let stream = tls.accept(socket).await.map_err(HandshakeError::Tls)?;
    let session = stream.get_ref().1;
    let http2 = session.alpn_protocol() == Some(ALPN_HTTP2);
    let version = match session.protocol_version() {
        Some(rustls::ProtocolVersion::TLSv1_2) => TlsVersion::V1_2,
        _ => TlsVersion::V1_3,
    };
    let certificate = session.peer_certificates().and_then(|chain| chain.first()).map(|leaf| leaf.as_ref().into());
    let peer = Rc::new(Peer { address, tls: Some(version), certificate });
    Ok(Established { stream: Either::Right(Box::new(stream)), peer, http2 })
}

fn plain(socket: ClientSocket, address: SocketAddr) -> Established {
    Established {
        stream: Either::Left(socket),
        peer: Rc::new(Peer { address, tls: None, certificate: None }),
        http2: false,
    }
}

/// Reads the PROXY header. Returns the client that it names, if it names one.
async fn read_proxy_header(socket: &mut ClientSocket) -> io::Result<Option<SocketAddr>> {
    loop {
        match proxy_protocol::parse(&socket.prefix) {
            Ok(Some(header)) => {
                // The bytes after the header are the connection's own.
                socket.prefix = socket.prefix.split_off(header.length);
                return Ok(header.client);
            }
            Ok(None) if read_ahead(socket).await? == 0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(None) => {}
            Err(malformed) => return Err(io::Error::new(io::ErrorKind::InvalidData, malformed)),
        }
    }
}

/// Detects the HTTP/2 preface at the connection's beginning. Reads no more than it takes to tell.
async fn detect_preface(socket: &mut ClientSocket, first_byte_timeout: Duration) -> Result<bool, HandshakeError> {
    let detection = async {
        if socket.prefix.is_empty() {
            // A silent connection takes no memory for what it may send.
            socket.stream.readable().await?;
        }
        socket.prefix.reserve(FIRST_READ);
        while socket.prefix.is_empty() || (socket.prefix.len() < PREFACE.len() && PREFACE.starts_with(&socket.prefix)) {
            // The client closed the connection: HTTP/1 deals with what has come.
            if read_ahead(socket).await? == 0 {
                break;
            }
        }
        Ok(socket.prefix.starts_with(PREFACE))
    };
    let detected = timeout(first_byte_timeout, detection).await.map_err(|_| HandshakeError::NoFirstByte)?;
    detected.map_err(HandshakeError::Io)
}

/// Reads more into the socket's prefix. Returns the bytes read.
async fn read_ahead(socket: &mut ClientSocket) -> io::Result<usize> {
    socket.stream.read_buf(&mut socket.prefix).await
}
