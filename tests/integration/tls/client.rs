//! A client that speaks HTTP/1.1 over TLS.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, HandshakeKind, StreamOwned};

use crate::support::{Response, head};

/// One encrypted connection. Every read gives up after twenty seconds, so that no test hangs.
pub struct TlsClient {
    stream: BufReader<StreamOwned<ClientConnection, TcpStream>>,
}

impl TlsClient {
    /// Connects and completes the handshake.
    pub fn connect(address: SocketAddr, config: impl Into<Arc<ClientConfig>>, name: &str) -> io::Result<Self> {
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let mut connection = ClientConnection::new(config.into(), name).unwrap();
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        stream.set_nodelay(true)?;
        while connection.is_handshaking() {
            connection.complete_io(&mut stream)?;
        }
        Ok(Self { stream: BufReader::new(StreamOwned::new(connection, stream)) })
    }

    /// Connects, and sends a request together with the last bytes of the handshake.
    pub fn connect_and_send(address: SocketAddr, config: ClientConfig, name: &str, request: &str) -> io::Result<Self> {
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let mut connection = ClientConnection::new(Arc::new(config), name).unwrap();
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        stream.set_nodelay(true)?;
        connection.write_tls(&mut stream)?;
        while connection.is_handshaking() {
            connection.read_tls(&mut stream)?;
            connection.process_new_packets().map_err(io::Error::other)?;
        }
        connection.writer().write_all(request.as_bytes())?;
        stream.write_all(&records(&mut connection))?;
        Ok(Self { stream: BufReader::new(StreamOwned::new(connection, stream)) })
    }

    /// Encrypts a request. Returns its records, to be sent by [`TlsClient::send_records`].
    pub fn encrypt(&mut self, request: &str) -> Vec<u8> {
        let connection = &mut self.stream.get_mut().conn;
        connection.writer().write_all(request.as_bytes()).unwrap();
        records(connection)
    }

    /// Ends the client's half of the encryption. Returns the record that says so.
    pub fn encrypt_close(&mut self) -> Vec<u8> {
        let connection = &mut self.stream.get_mut().conn;
        connection.send_close_notify();
        records(connection)
    }

    /// Sends bytes of records.
    pub fn send_records(&mut self, bytes: &[u8]) {
        self.stream.get_mut().sock.write_all(bytes).unwrap();
    }

    pub fn get(&mut self, path: &str, key: &str) -> io::Result<Response> {
        self.stream.get_mut().write_all(head("GET", path, key, &[], 0).as_bytes())?;
        self.response()
    }

    pub fn response(&mut self) -> io::Result<Response> {
        let status = self.line()?.split(' ').nth(1).unwrap().parse().unwrap();
        let mut response = Response { status, headers: Vec::new(), body: Vec::new() };
        loop {
            let line = self.line()?;
            let Some((name, value)) = line.split_once(':') else { break };
            response.headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        response.body.resize(response.header("content-length").unwrap().parse().unwrap(), 0);
        self.stream.read_exact(&mut response.body)?;
        Ok(response)
    }

    /// The server's certificate.
    pub fn certificate(&self) -> CertificateDer<'static> {
        self.stream.get_ref().conn.peer_certificates().unwrap()[0].clone().into_owned()
    }

    pub fn is_resumed(&self) -> bool {
        self.stream.get_ref().conn.handshake_kind() == Some(HandshakeKind::Resumed)
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(line.trim_end().to_owned())
    }
}

/// The records that wait to be sent.
fn records(connection: &mut ClientConnection) -> Vec<u8> {
    let mut records = Vec::new();
    while connection.wants_write() {
        connection.write_tls(&mut records).unwrap();
    }
    records
}
