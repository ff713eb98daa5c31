//! What stands before HTTP: the PROXY header, the TLS handshake, and the choice of the protocol.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::timeout;

use super::proxy_protocol;
use crate::identity::Peer;
use crate::tls::ServerTls;
use crate::transport::serving::{Http2Negotiation, ServeOptions};
use crate::transport::stream::{Socket, Stream};

/// What every HTTP/2 connection begins with (RFC 9113, section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The name of HTTP/2 in the TLS handshake (RFC 9113, section 3.2).
const ALPN_HTTP2: &[u8] = b"h2";
/// The first read of a connection without encryption takes in most heads whole.
const FIRST_READ: usize = 4096;

/// A connection that HTTP can begin on.
pub(super) struct Opened {
    pub(super) stream: Stream,
    pub(super) peer: Rc<Peer>,
    pub(super) http2: bool,
}

/// Why HTTP did not begin.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error("the handshake took too long")]
    Late,
    #[error("nothing was said")]
    Silent,
    #[error("the PROXY header cannot be read")]
    Proxy(#[source] io::Error),
    #[error("the TLS handshake failed")]
    Tls(#[source] io::Error),
    #[error("the connection broke")]
    Broken(#[source] io::Error),
}

/// Brings a connection to where HTTP begins. Without encryption and prior knowledge that is at once.
pub(super) async fn open(stream: TcpStream, address: SocketAddr, serving: &ServeOptions) -> Result<Opened, Failure> {
    let proxied = serving.proxy_networks.iter().any(|network| network.contains(&address.ip().to_canonical()));
    let mut opened = if proxied || serving.tls.is_some() {
        let introduced = introduced(stream, address, proxied, serving.tls.as_deref());
        timeout(serving.settings.handshake_timeout, introduced).await.map_err(|_| Failure::Late)??
    } else {
        Opened { stream: Stream::Plain(Socket::new(stream)), peer: Rc::new(Peer { address, tls: false }), http2: false }
    };
    if let (Http2Negotiation::PriorKnowledge, Stream::Plain(socket)) = (serving.http2, &mut opened.stream) {
        opened.http2 = has_preface(socket, serving.settings.first_byte_timeout).await?;
    }
    Ok(opened)
}

/// Reads the PROXY header from whom one is expected, and shakes hands.
async fn introduced(
    stream: TcpStream,
    mut address: SocketAddr,
    proxied: bool,
    tls: Option<&ServerTls>,
) -> Result<Opened, Failure> {
    let mut socket = Socket::new(stream);
    if proxied {
        address = client(&mut socket).await.map_err(Failure::Proxy)?.unwrap_or(address);
    }
    let Some(tls) = tls else {
        let peer = Rc::new(Peer { address, tls: false });
        return Ok(Opened { stream: Stream::Plain(socket), peer, http2: false });
    };
    let stream = tls.acceptor().accept(socket).await.map_err(Failure::Tls)?;
    let http2 = stream.get_ref().1.alpn_protocol() == Some(ALPN_HTTP2);
    let peer = Rc::new(Peer { address, tls: true });
    Ok(Opened { stream: Stream::Tls(Box::new(stream)), peer, http2 })
}

/// The client that the PROXY header names.
async fn client(socket: &mut Socket) -> io::Result<Option<SocketAddr>> {
    loop {
        match proxy_protocol::parse(&socket.ahead) {
            Ok(Some(header)) => {
                // What follows belongs to the connection.
                socket.ahead = socket.ahead.split_off(header.length);
                return Ok(header.client);
            }
            Ok(None) if socket.read_ahead().await? == 0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(None) => {}
            Err(malformed) => return Err(io::Error::new(io::ErrorKind::InvalidData, malformed)),
        }
    }
}

/// Whether the connection begins as HTTP/2 does. Waits for no more than that takes to tell.
async fn has_preface(socket: &mut Socket, patience: Duration) -> Result<bool, Failure> {
    let told = async {
        socket.ahead.reserve(FIRST_READ);
        while socket.ahead.is_empty() || (socket.ahead.len() < PREFACE.len() && PREFACE.starts_with(&socket.ahead)) {
            if socket.read_ahead().await? == 0 {
                break;
            }
        }
        Ok(socket.ahead.starts_with(PREFACE))
    };
    timeout(patience, told).await.map_err(|_| Failure::Silent)?.map_err(Failure::Broken)
}
