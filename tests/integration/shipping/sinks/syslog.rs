//! The syslog sink (RFC 5424 over TLS, RFC 5425).

use std::io::Read as _;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use journal::shipping::{self, Destination, ShippedRecords, Shippers, SinkSettings, SinkState, SyslogSettings};
use platform::metrics::Metrics;
use platform::tls::ClientSettings;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::{Arrival, Place, read_line, ships_across_an_outage_and_a_restart, write};
use crate::journal::support::{Caller, block_on, open_journal, settings};
use crate::support::eventually;
use crate::support::redis::Certificates;

/// A syslog server over TLS, which is away when it resets connections in the midst of a batch.
struct SyslogServer {
    address: SocketAddr,
    certificates: Certificates,
    received: Arc<Mutex<Vec<u8>>>,
    is_away: Arc<AtomicBool>,
}

impl SyslogServer {
    fn start() -> Self {
        let certificates = Certificates::generate();
        let (chain, key) = certificates.server();
        let chain = vec![CertificateDer::from_pem_file(chain).unwrap()];
        let key = PrivateKeyDer::from_pem_file(key).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = Arc::new(config.with_no_client_auth().with_single_cert(chain, key).unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (received, is_away) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let (log, away) = (Arc::clone(&received), Arc::clone(&is_away));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                serve_syslog(stream.unwrap(), &config, &log, &away);
            }
        });
        Self { address, certificates, received, is_away }
    }
}

/// Takes the messages of a connection, whole ones only, and ends it after the client has.
fn serve_syslog(stream: TcpStream, config: &Arc<ServerConfig>, log: &Mutex<Vec<u8>>, away: &AtomicBool) {
    let mut stream = StreamOwned::new(ServerConnection::new(Arc::clone(config)).unwrap(), stream);
    let (mut taken, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        let is_away = away.load(Ordering::SeqCst);
        match stream.read(&mut buffer) {
            // Some messages were read, and the connection breaks.
            Ok(read) if is_away && read > 0 => taken.extend_from_slice(&buffer[..read]),
            Ok(read) if read > 0 => {
                taken.extend_from_slice(&buffer[..read]);
                continue;
            }
            Ok(_) => {
                stream.conn.send_close_notify();
                stream.conn.complete_io(&mut stream.sock).ok();
            }
            Err(_) => {}
        }
        break;
    }
    log.lock().unwrap().extend(whole_messages(&taken).concat());
}

/// Messages with their lengths in front; the last one may be torn.
fn whole_messages(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut messages = Vec::new();
    while let Some(space) = bytes.iter().position(|byte| *byte == b' ') {
        let length: usize = std::str::from_utf8(&bytes[..space]).unwrap().parse().unwrap();
        let Some(message) = bytes.get(..space + 1 + length) else { break };
        messages.push(message.to_vec());
        bytes = &bytes[space + 1 + length..];
    }
    messages
}

impl Place for SyslogServer {
    fn destination(&self) -> Destination {
        let tls = ClientSettings { ca: Some(self.certificates.ca()), identity: None };
        let settings = SyslogSettings { host: "localhost".into(), port: self.address.port(), tls, facility: 13 };
        Destination::Syslog(settings)
    }

    fn set_away(&self, is_away: bool) {
        self.is_away.store(is_away, Ordering::SeqCst);
    }

    fn arrivals(&self) -> Vec<Arrival> {
        let read = |message: Vec<u8>| {
            let text = String::from_utf8(message).unwrap();
            let message = text.split_once(' ').unwrap().1;
            // A note has a dash that is not ASCII: the text has a byte order mark then.
            let (_, line) = message.split_once("] ").unwrap();
            let line = line.trim_start_matches('\u{feff}');
            let arrival = read_line(line.as_bytes());
            let (kind, time) = match &arrival {
                Arrival::Record(record) => ("audit", record.time.to_string()),
                Arrival::Checkpoint(_) => {
                    let value: serde_json::Value = serde_json::from_str(line).unwrap();
                    ("checkpoint", value["checkpoint"]["time"].as_str().unwrap().to_owned())
                }
            };
            let head = format!("<110>1 {time} gw-1 keygate - {kind} [origin ");
            assert!(message.starts_with(&head), "{message}");
            arrival
        };
        whole_messages(&self.received.lock().unwrap()).into_iter().map(read).collect()
    }
}

#[test]
fn syslog_is_complete_across_an_outage_and_a_restart() {
    ships_across_an_outage_and_a_restart(&SyslogServer::start());
}

#[test]
fn syslog_server_is_verified() {
    let place = SyslogServer::start();
    let stranger = Certificates::generate();
    let Destination::Syslog(mut settings) = place.destination() else { panic!("syslog") };
    settings.tls.ca = Some(stranger.ca());
    let directory = tempfile::tempdir().unwrap();
    let journal = open_journal(&self::settings(directory.path()));
    let sinks = vec![SinkSettings {
        name: "sink".into(),
        destination: Destination::Syslog(settings),
        records: ShippedRecords::All,
    }];
    let shippers = Shippers::start(journal.tap(), &shipping::Settings { sinks }, &Metrics::new().shipping).unwrap();
    write(&journal, Caller::random(), 5);
    eventually("the sink fails", || shippers.reports()[0].state == SinkState::Failing);
    assert!(shippers.reports()[0].error.as_ref().unwrap().contains("TLS handshake"), "{:?}", shippers.reports());
    block_on(journal.close());
    shippers.finish(Duration::from_secs(1));
    assert!(place.received().is_empty());
}
