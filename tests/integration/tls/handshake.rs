//! A handshake in memory, without sockets.

use std::sync::Arc;

use platform::tls::ServerTls;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, Error, HandshakeKind, ProtocolVersion, ServerConnection};

/// The result of a handshake, as both sides see it.
#[derive(Debug, PartialEq, Eq)]
pub struct Seen {
    /// The server's certificate.
    pub certificate: CertificateDer<'static>,
    /// The client's certificate.
    pub client: Option<CertificateDer<'static>>,
    pub version: ProtocolVersion,
    pub protocol: Option<Vec<u8>>,
    pub resumed: bool,
}

/// Completes a handshake for a server name, session tickets included, or returns the server's error. An error of the
/// client fails the test.
pub fn handshake(store: &ServerTls, client: impl Into<Arc<ClientConfig>>, name: &str) -> Result<Seen, Error> {
    let name = ServerName::try_from(name.to_owned()).unwrap();
    handshake_with(store, ClientConnection::new(client.into(), name).unwrap())
}

pub fn handshake_with(store: &ServerTls, mut client: ClientConnection) -> Result<Seen, Error> {
    let mut server = ServerConnection::new(Arc::clone(store.acceptor().config())).unwrap();
    while client.wants_write() || server.wants_write() {
        let mut bytes = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut bytes).unwrap();
        }
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            server.read_tls(&mut rest).unwrap();
            server.process_new_packets()?;
        }
        let mut bytes = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut bytes).unwrap();
        }
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            client.read_tls(&mut rest).unwrap();
            client.process_new_packets().unwrap();
        }
    }
    let first = |certificates: Option<&[CertificateDer<'static>]>| certificates.map(|all| all[0].clone().into_owned());
    Ok(Seen {
        certificate: first(client.peer_certificates()).unwrap(),
        client: first(server.peer_certificates()),
        version: server.protocol_version().unwrap(),
        protocol: server.alpn_protocol().map(<[u8]>::to_vec),
        resumed: server.handshake_kind() == Some(HandshakeKind::Resumed),
    })
}
