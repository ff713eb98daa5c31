//! A handshake in memory: every byte of both sides, and nothing else.

use std::sync::Arc;

use keygate::tls::ServerTls;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, Error, HandshakeKind, ProtocolVersion, ServerConnection};

/// What both sides know after a handshake.
#[derive(Debug, PartialEq, Eq)]
pub struct Seen {
    /// What the server showed.
    pub certificate: CertificateDer<'static>,
    /// What the client showed.
    pub client: Option<CertificateDer<'static>>,
    pub version: ProtocolVersion,
    pub protocol: Option<Vec<u8>>,
    pub resumed: bool,
}

/// A client says hello to a name, and both go on until neither has anything left to say, session tickets included, or the
/// server gives up. The client must not.
pub fn shake(store: &ServerTls, client: impl Into<Arc<ClientConfig>>, name: &str) -> Result<Seen, Error> {
    let name = ServerName::try_from(name.to_owned()).unwrap();
    shake_with(store, ClientConnection::new(client.into(), name).unwrap())
}

pub fn shake_with(store: &ServerTls, mut client: ClientConnection) -> Result<Seen, Error> {
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
