//! The sinks beside PostgreSQL, with real sockets and files: each across an outage and a restart, in order, without a loss, and
//! with repeated records and checkpoints that are identical.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::fs::{self, File};
use std::io::Read as _;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use keygate::audit::{Journal, Outcome, Record, Settings, UseEnd};
use keygate::clock::Micros;
use keygate::metrics::Metrics;
use keygate::refusal::Refusal;
use keygate::secret::Secret;
use keygate::shipping::{
    self, Destination, FilesSettings, OtlpSettings, Shippers, SinkSettings, SinkState, SyslogSettings, WebhookSettings,
};
use keygate::tls::ClientSettings;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use prost::Message as _;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use uuid::Uuid;

use super::checkpoints::checkpoints_of;
use crate::journal::checkpoints::signed;
use crate::journal::support::{Caller, END, all_records, block_on, keep_plain, open_journal, settings};
use crate::support::redis::Certificates;
use crate::support::{HyperOptions, HyperUpstream, eventually};

const LONG: Duration = Duration::from_secs(60);
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// A place that can be away.
trait Place {
    fn destination(&self) -> Destination;
    fn set_away(&self, is_away: bool);
    /// Messages in the order of their arrival, with repeated ones.
    fn arrivals(&self) -> Vec<Arrival>;

    fn received(&self) -> Vec<Record> {
        let records = self.arrivals().into_iter().filter_map(|arrival| match arrival {
            Arrival::Record(record) => Some(*record),
            Arrival::Checkpoint(_) => None,
        });
        records.collect()
    }

    /// The checkpoints by size. One that came again must have been the same.
    fn checkpoints(&self) -> BTreeMap<u64, String> {
        let mut checkpoints = BTreeMap::new();
        for arrival in self.arrivals() {
            let Arrival::Checkpoint((size, note)) = arrival else { continue };
            let before = checkpoints.insert(size, note.clone());
            assert!(before.is_none_or(|before| before == note), "a repeated checkpoint is identical");
        }
        checkpoints
    }
}

/// A record or a checkpoint that a place has got.
enum Arrival {
    Record(Box<Record>),
    /// Its size, and its note.
    Checkpoint((u64, String)),
}

/// Reads a line of JSON: a checkpoint has no other member.
fn read_line(line: &[u8]) -> Arrival {
    let value: serde_json::Value = serde_json::from_slice(line).unwrap();
    match value.get("checkpoint") {
        Some(checkpoint) => {
            assert_eq!(value.as_object().unwrap().len(), 1, "{value}");
            Arrival::Checkpoint(read_checkpoint(checkpoint))
        }
        None => Arrival::Record(serde_json::from_value(value).unwrap()),
    }
}

/// Reads a checkpoint, whose fields say what its note says.
fn read_checkpoint(checkpoint: &serde_json::Value) -> (u64, String) {
    let text = |name: &str| checkpoint[name].as_str().unwrap().to_owned();
    let (size, note) = (checkpoint["size"].as_u64().unwrap(), text("note"));
    assert!(note.starts_with(&format!("{}\n{size}\n{}\n\n", text("origin"), text("root"))), "{checkpoint}");
    assert_eq!(text("gateway"), "gw-1");
    assert!(text("time").parse::<Micros>().unwrap() > Micros(1_700_000_000_000_000), "{checkpoint}");
    (size, note)
}

fn start(journal: &Journal, place: &dyn Place) -> Arc<Shippers> {
    let sinks = vec![SinkSettings { name: "sink".into(), destination: place.destination() }];
    Shippers::start(journal.tap(), &shipping::Settings { sinks }, &Metrics::new().shipping).unwrap()
}

/// Records uses one after the other, some of them refused.
fn write(journal: &Journal, caller: Caller, count: usize) {
    block_on(async {
        for number in 0..count {
            if number % 10 == 9 {
                let end = UseEnd { outcome: Outcome::Refused(Refusal::Forbidden), status: Some(403), ..END };
                journal.record(&caller.opening(), end).await.unwrap();
            } else {
                journal.begin(&caller.opening()).await.unwrap().close(END);
            }
        }
    });
}

/// First deliveries, in their order. A record that comes again must be the same.
fn distinct(received: &[Record]) -> Vec<Record> {
    let mut first: HashMap<Uuid, &Record> = HashMap::new();
    let mut order = Vec::new();
    for record in received {
        match first.insert(record.id, record) {
            None => order.push(record.clone()),
            Some(before) => assert_eq!(before, record, "a repeated record is identical"),
        }
    }
    order
}

/// Checks the sink against the journal: every record, and in the order in which uses ended.
fn assert_complete(settings: &Settings, place: &dyn Place) {
    let received = distinct(&place.received());
    let by_id =
        |records: &[Record]| records.iter().map(|record| (record.id, record.clone())).collect::<BTreeMap<_, _>>();
    let journal = all_records(settings);
    assert_eq!(by_id(&received), by_id(&journal));
    assert_eq!(place.checkpoints(), checkpoints_of(settings), "each checkpoint of the journal, and no other");
    // A use that was refused ends where it began; the outcomes of the others follow in the order of their beginnings.
    for is_refused in [true, false] {
        let ids = |records: &[Record]| {
            let of_kind = records.iter().filter(|record| record.outcome.is_refusal() == is_refused);
            of_kind.map(|record| record.id).collect::<Vec<Uuid>>()
        };
        assert_eq!(ids(&received), ids(&journal));
    }
}

fn ships_across_an_outage_and_a_restart(place: &dyn Place) {
    let directory = tempfile::tempdir().unwrap();
    let settings = Settings { segment_size: 50_000, ..signed(directory.path()).0 };
    keep_plain(&settings);
    let caller = Caller::random();
    let received = || distinct(&place.received()).len();
    // What lies in the journal already is shipped, too.
    let journal = open_journal(&settings);
    write(&journal, caller, 150);
    let shippers = start(&journal, place);
    eventually("the first records have come", || received() == 150);

    place.set_away(true);
    write(&journal, caller, 100);
    eventually("the sink fails", || shippers.reports()[0].state == SinkState::Failing);
    assert!(shippers.reports()[0].error.is_some() && shippers.reports()[0].lag_records > 0);
    write(&journal, caller, 100);
    place.set_away(false);
    write(&journal, caller, 50);
    eventually("all records have come after the outage", || received() == 400);
    eventually("the sink has caught up", || shippers.reports()[0].state == SinkState::CaughtUp);

    // A restart while the sink is away; what was not shipped is, by the next start.
    place.set_away(true);
    write(&journal, caller, 60);
    block_on(journal.close());
    shippers.finish(Duration::from_secs(5));
    drop(shippers);
    let journal = open_journal(&settings);
    let shippers = start(&journal, place);
    write(&journal, caller, 40);
    place.set_away(false);
    eventually("all records have come after the restart", || received() == 500);
    block_on(journal.close());
    shippers.finish(LONG);
    assert_complete(&settings, place);

    // A start after that goes on from the position.
    let all = place.received().len();
    let journal = open_journal(&settings);
    let shippers = start(&journal, place);
    block_on(journal.close());
    shippers.finish(LONG);
    assert_eq!(place.received().len(), all, "nothing is sent again");
}

/// A directory behind a symbolic link, which is away when the link leads to a file.
struct Directory {
    parent: tempfile::TempDir,
    size: u64,
}

impl Directory {
    fn new(size: u64) -> Self {
        let place = Self { parent: tempfile::tempdir().unwrap(), size };
        fs::create_dir(place.at("objects")).unwrap();
        fs::write(place.at("file"), "").unwrap();
        place.set_away(false);
        place
    }

    fn at(&self, name: &str) -> PathBuf {
        self.parent.path().join(name)
    }

    /// The closed objects, in the order of their names, and then the open one.
    fn files(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.at("objects")).unwrap();
        let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        files.retain(|path| path.extension().is_some_and(|extension| extension == "zst" || extension == "open"));
        files.sort_by_key(|path| (path.extension().is_some_and(|extension| extension == "open"), path.clone()));
        files
    }
}

impl Place for Directory {
    fn destination(&self) -> Destination {
        Destination::Files(FilesSettings { path: self.at("link"), size: self.size, every: LONG })
    }

    fn set_away(&self, is_away: bool) {
        let target = if is_away { "file" } else { "objects" };
        std::os::unix::fs::symlink(self.at(target), self.at("new")).unwrap();
        fs::rename(self.at("new"), self.at("link")).unwrap();
    }

    fn arrivals(&self) -> Vec<Arrival> {
        // A file that is renamed meanwhile is found by the next look.
        let texts = self.files().into_iter().filter_map(|path| zstd::decode_all(File::open(path).ok()?).ok());
        texts.flat_map(|text| read_lines(&text)).collect()
    }
}

fn read_lines(text: &[u8]) -> Vec<Arrival> {
    text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).map(read_line).collect()
}

#[test]
fn files_are_complete_across_an_outage_and_a_restart() {
    let place = Directory::new(1);
    ships_across_an_outage_and_a_restart(&place);
    let received = place.received();
    assert_eq!(distinct(&received).len(), received.len(), "no record is in two objects");
    let names: Vec<String> =
        place.files().iter().map(|path| path.file_name().unwrap().to_str().unwrap().to_owned()).collect();
    assert!(
        names.len() > 3 && names[0].starts_with("gw-1-") && names[0].ends_with("-000000000000.jsonl.zst"),
        "{names:?}"
    );
}

#[test]
fn records_of_an_open_object_survive_a_restart() {
    let place = Directory::new(1 << 30);
    let directory = tempfile::tempdir().unwrap();
    let settings = settings(directory.path());
    for count in [20, 40] {
        let journal = open_journal(&settings);
        let shippers = start(&journal, &place);
        write(&journal, Caller::random(), 20);
        block_on(journal.close());
        shippers.finish(LONG);
        assert_eq!((place.files().len(), place.received().len()), (1, count));
    }
    assert_complete(&settings, &place);
}

/// A request that a server has got.
type Received = Arc<Mutex<Vec<(HeaderMap, Bytes)>>>;

/// A server of HTTP, which is away when it answers with 503, and now and then takes a request without an answer that says so.
struct Server {
    server: HyperUpstream,
    received: Received,
    is_away: Arc<AtomicBool>,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Webhook,
    Otlp,
}

impl Server {
    fn start(kind: Kind) -> Self {
        let (received, is_away) = (Received::default(), Arc::new(AtomicBool::new(false)));
        let (log, away, count) = (Arc::clone(&received), Arc::clone(&is_away), Arc::new(AtomicUsize::new(0)));
        let server = HyperOptions::http1().start(move |request: Request<Incoming>| {
            let (log, away, count) = (Arc::clone(&log), Arc::clone(&away), Arc::clone(&count));
            async move {
                let (head, body) = request.into_parts();
                let body = body.collect().await.unwrap().to_bytes();
                let mut answer = Response::new(Full::new(Bytes::new()));
                if away.load(Ordering::SeqCst) {
                    *answer.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
                } else {
                    log.lock().unwrap().push((head.headers, body));
                    // Every third request is taken, and its answer is lost.
                    if count.fetch_add(1, Ordering::SeqCst) % 3 == 1 {
                        *answer.status_mut() = StatusCode::BAD_GATEWAY;
                    }
                }
                Ok::<_, Infallible>(answer)
            }
        });
        Self { server, received, is_away, kind }
    }

    fn url(&self) -> keygate::outbound::HttpUrl {
        format!("http://{}/in?x=1", self.server.address).parse().unwrap()
    }
}

impl Place for Server {
    fn destination(&self) -> Destination {
        let tls = ClientSettings { ca: None, identity: None };
        match self.kind {
            Kind::Webhook => Destination::Webhook(WebhookSettings {
                url: self.url(),
                secret: Secret::new(SECRET.to_owned()),
                tls,
                timeout: LONG,
            }),
            Kind::Otlp => Destination::Otlp(OtlpSettings {
                url: self.url(),
                headers: vec![(http::header::AUTHORIZATION, Secret::new("Bearer token".to_owned()))],
                tls,
                timeout: LONG,
            }),
        }
    }

    fn set_away(&self, is_away: bool) {
        self.is_away.store(is_away, Ordering::SeqCst);
    }

    fn arrivals(&self) -> Vec<Arrival> {
        let received = self.received.lock().unwrap().clone();
        received
            .iter()
            .flat_map(|(_, body)| match self.kind {
                Kind::Webhook => read_lines(body),
                Kind::Otlp => read_logs(body),
            })
            .collect()
    }
}

/// The records of a request, whose attributes must be theirs.
fn read_logs(body: &[u8]) -> Vec<Arrival> {
    let request = ExportLogsServiceRequest::decode(body).unwrap();
    let logs = request.resource_logs.into_iter().flat_map(|logs| logs.scope_logs).flat_map(|logs| logs.log_records);
    let read = logs.map(|log| {
        let Some(Value::StringValue(text)) = log.body.unwrap().value else { panic!("a text") };
        let attribute = |name: &str| {
            let found = log.attributes.iter().find(|attribute| attribute.key == name).unwrap();
            found.value.clone().unwrap().value.unwrap()
        };
        if log.event_name == "keygate.audit.checkpoint" {
            let [origin, size, root] = text.lines().take(3).collect::<Vec<_>>()[..] else { panic!("{text}") };
            assert_eq!(attribute("log.record.uid"), Value::StringValue(format!("{origin}/{size}/{root}")));
            assert_eq!(attribute("keygate.checkpoint.size"), Value::IntValue(size.parse().unwrap()));
            assert_eq!(attribute("keygate.gateway"), Value::StringValue("gw-1".into()));
            assert!(log.time_unix_nano > 1_700_000_000_000_000_000, "the time of the signature");
            return Arrival::Checkpoint((size.parse().unwrap(), text));
        }
        assert_eq!(log.event_name, "keygate.audit");
        let record: Record = serde_json::from_str(&text).unwrap();
        assert_eq!(log.time_unix_nano, record.time.0 * 1000);
        assert_eq!(attribute("log.record.uid"), Value::StringValue(record.id.to_string()));
        assert_eq!(attribute("keygate.outcome"), Value::StringValue(record.outcome.name().to_owned()));
        assert_eq!(attribute("keygate.count"), Value::IntValue(1));
        Arrival::Record(Box::new(record))
    });
    read.collect()
}

#[test]
fn webhooks_are_complete_across_an_outage_and_a_restart() {
    let place = Server::start(Kind::Webhook);
    ships_across_an_outage_and_a_restart(&place);
    let key =
        hmac::Key::new(hmac::HMAC_SHA256, &BASE64_STANDARD.decode(SECRET.strip_prefix("whsec_").unwrap()).unwrap());
    let mut bodies: HashMap<String, Bytes> = HashMap::new();
    let mut repeated = 0;
    for (headers, body) in place.received.lock().unwrap().iter() {
        let field = |name: &str| headers[name].to_str().unwrap().to_owned();
        let (id, timestamp) = (field("webhook-id"), field("webhook-timestamp"));
        assert!(timestamp.parse::<u64>().is_ok());
        let signed = [format!("{id}.{timestamp}.").as_bytes(), body].concat();
        let signature = field("webhook-signature");
        let signature = BASE64_STANDARD.decode(signature.strip_prefix("v1,").unwrap()).unwrap();
        assert!(hmac::verify(&key, &signed, &signature).is_ok());
        assert_eq!(field("content-type"), "application/x-ndjson");
        if let Some(before) = bodies.insert(id, body.clone()) {
            assert_eq!(before, body, "the same id is the same content");
            repeated += 1;
        }
    }
    assert!(repeated > 0, "a message whose answer was lost comes again with its id");
}

#[test]
fn log_records_are_complete_across_an_outage_and_a_restart() {
    let place = Server::start(Kind::Otlp);
    ships_across_an_outage_and_a_restart(&place);
    let received = place.received.lock().unwrap();
    let (headers, body) = &received[0];
    assert_eq!(
        (&headers["authorization"], &headers["content-type"]),
        (&"Bearer token".parse().unwrap(), &"application/x-protobuf".parse().unwrap())
    );
    let request = ExportLogsServiceRequest::decode(&body[..]).unwrap();
    let resource = request.resource_logs[0].resource.as_ref().unwrap();
    let instance = resource.attributes.iter().find(|attribute| attribute.key == "service.instance.id").unwrap();
    assert_eq!(instance.value.clone().unwrap().value, Some(Value::StringValue("gw-1".into())));
}

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
    let sinks = vec![SinkSettings { name: "sink".into(), destination: Destination::Syslog(settings) }];
    let shippers = Shippers::start(journal.tap(), &shipping::Settings { sinks }, &Metrics::new().shipping).unwrap();
    write(&journal, Caller::random(), 5);
    eventually("the sink fails", || shippers.reports()[0].state == SinkState::Failing);
    assert!(shippers.reports()[0].error.as_ref().unwrap().contains("TLS handshake"), "{:?}", shippers.reports());
    block_on(journal.close());
    shippers.finish(Duration::from_secs(1));
    assert!(place.received().is_empty());
}
