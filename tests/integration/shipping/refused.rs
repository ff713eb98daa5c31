//! Records that a sink refuses: they are set aside when the sink takes others, and all others are delivered.

use std::convert::Infallible;
use std::fs;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use domain::secret::Secret;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use journal::audit::{Journal, Record, Settings};
use journal::shipping::{
    self, Destination, OtlpSettings, ShippedRecords, Shippers, SinkSettings, SinkState, WebhookSettings,
};
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use platform::metrics::Metrics;
use platform::tls::ClientSettings;
use prost::Message as _;
use uuid::Uuid;

use super::postgresql::{count, ship_all, sink};
use crate::journal::support::{Caller, END, block_on, open_journal, segment_files, settings, write_uses};
use crate::support::{HyperOptions, HyperUpstream, Postgresql, eventually};

pub const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const LONG: Duration = Duration::from_secs(60);
/// Path of the requests that a filter refuses.
const REFUSED: &str = "/../../etc/passwd";

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Webhook,
    Otlp,
}

/// A receiver behind a filter that refuses every message with a certain path in it.
struct Filtered {
    server: HyperUpstream,
    kind: Kind,
    taken: Arc<Mutex<Vec<Uuid>>>,
    messages: Arc<AtomicUsize>,
    refuses_all: Arc<AtomicBool>,
}

impl Filtered {
    fn start(kind: Kind, status: u16) -> Self {
        let (taken, messages, refuses_all) = (Arc::default(), Arc::default(), Arc::default());
        let shared: (Arc<Mutex<Vec<Uuid>>>, Arc<AtomicUsize>, Arc<AtomicBool>) =
            (Arc::clone(&taken), Arc::clone(&messages), Arc::clone(&refuses_all));
        let server = HyperOptions::http1().start(move |request: Request<Incoming>| {
            let (taken, messages, refuses_all) = shared.clone();
            async move {
                let body = request.into_body().collect().await.unwrap().to_bytes();
                messages.fetch_add(1, Ordering::SeqCst);
                let records = read(kind, &body);
                let is_refused = records.iter().any(|record| record.path == REFUSED);
                let mut answer = Response::new(Full::new(Bytes::new()));
                if is_refused || refuses_all.load(Ordering::SeqCst) {
                    *answer.status_mut() = status.try_into().unwrap();
                } else {
                    taken.lock().unwrap().extend(records.iter().map(|record| record.id));
                }
                Ok::<_, Infallible>(answer)
            }
        });
        Self { server, kind, taken, messages, refuses_all }
    }

    fn sinks(&self) -> shipping::Settings {
        let (url, tls) = (format!("http://{}/in", self.server.address), ClientSettings { ca: None, identity: None });
        let url = url.parse().unwrap();
        let destination = match self.kind {
            Kind::Webhook => {
                let secret = Secret::new(SECRET.to_owned());
                Destination::Webhook(WebhookSettings { url, secret, tls, timeout: LONG })
            }
            Kind::Otlp => Destination::Otlp(OtlpSettings { url, headers: Vec::new(), tls, timeout: LONG }),
        };
        shipping::Settings {
            sinks: vec![SinkSettings { name: "siem".into(), destination, records: ShippedRecords::All }],
        }
    }

    fn has(&self, ids: &[Uuid]) -> bool {
        let taken = self.taken.lock().unwrap();
        ids.iter().all(|id| taken.contains(id))
    }
}

fn read(kind: Kind, body: &[u8]) -> Vec<Record> {
    if kind == Kind::Webhook {
        return body.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect();
    }
    let request = ExportLogsServiceRequest::decode(body).unwrap();
    let logs = request.resource_logs.into_iter().flat_map(|logs| logs.scope_logs).flat_map(|logs| logs.log_records);
    let text = |value| if let Value::StringValue(text) = value { text } else { panic!("a text") };
    logs.map(|log| serde_json::from_str(&text(log.body.unwrap().value.unwrap())).unwrap()).collect()
}

fn write(journal: &Journal, path: &'static str, count: usize) -> Vec<Uuid> {
    let caller = Caller::random();
    let record = |_| {
        let mut opening = caller.opening();
        opening.path = path;
        block_on(journal.begin(&opening)).unwrap().close(END);
        opening.id
    };
    (0..count).map(record).collect()
}

/// Ids of the records that were set aside, and the reasons.
fn set_aside(settings: &Settings, sink: &str) -> Vec<(Uuid, String)> {
    let text = fs::read_to_string(settings.path.join(format!("ship/{sink}.rejected.jsonl"))).unwrap_or_default();
    let read = |line: &str| {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        let record: Record = serde_json::from_value(line["record"].clone()).unwrap();
        (record.id, line["reason"].as_str().unwrap().to_owned())
    };
    text.lines().map(read).collect()
}

fn only_the_refused_record_is_set_aside(place: &Filtered, reason: &str) {
    let dir = tempfile::tempdir().unwrap();
    let (settings, metrics) = (settings(dir.path()), Metrics::new());
    let journal = open_journal(&settings);
    let before = write(&journal, "/a", 700);
    let refused = write(&journal, REFUSED, 1);
    let after = write(&journal, "/b", 1500);
    let shippers = Shippers::start(journal.tap(), &place.sinks(), &metrics.shipping).unwrap();
    let report = || shippers.reports().remove(0);
    eventually("the others are delivered", || place.has(&before) && place.has(&after));
    eventually("the sink has caught up", || report().state == SinkState::CaughtUp && report().lag_records == 0);
    assert!(!place.has(&refused));
    assert_eq!(set_aside(&settings, "siem"), [(refused[0], reason.to_owned())]);
    assert_eq!((report().rejected, report().delivered, metrics.shipping.sink("siem").refused.get()), (1, 2200, 1));
    let messages = place.messages.load(Ordering::SeqCst);
    assert!(messages < 40, "{messages} messages");

    // Everything is refused, as with a token that was withdrawn: nothing is set aside.
    place.refuses_all.store(true, Ordering::SeqCst);
    let later = write(&journal, "/c", 50);
    let failures = metrics.shipping.sink("siem").failures;
    let tries = failures.get() + 3;
    eventually("it was tried several times", || failures.get() >= tries);
    let error = report().error.unwrap();
    assert!(error.starts_with("the sink refuses every record") && error.ends_with(reason), "{error}");
    assert_eq!(report().rejected, 1);
    place.refuses_all.store(false, Ordering::SeqCst);
    eventually("all are delivered", || place.has(&later));
    block_on(journal.close());
    shippers.finish(LONG);
    assert_eq!(set_aside(&settings, "siem").len(), 1);
}

#[test]
fn webhook_gets_all_but_the_record_that_its_filter_refuses() {
    let place = Filtered::start(Kind::Webhook, 403);
    only_the_refused_record_is_set_aside(&place, "the server answers with status 403 Forbidden");
}

#[test]
fn collector_gets_all_but_the_record_that_it_refuses() {
    let place = Filtered::start(Kind::Otlp, 400);
    only_the_refused_record_is_set_aside(&place, "the server answers with status 400 Bad Request");
}

#[test]
fn only_record_of_a_journal_waits_for_another_that_is_taken() {
    let (dir, place) = (tempfile::tempdir().unwrap(), Filtered::start(Kind::Webhook, 403));
    let (settings, metrics) = (settings(dir.path()), Metrics::new());
    let journal = open_journal(&settings);
    let refused = write(&journal, REFUSED, 1);
    let shippers = Shippers::start(journal.tap(), &place.sinks(), &metrics.shipping).unwrap();
    eventually("it was tried twice", || metrics.shipping.sink("siem").failures.get() >= 2);
    assert_eq!(set_aside(&settings, "siem"), []);
    let taken = write(&journal, "/a", 1);
    eventually("the next one is taken", || place.has(&taken));
    eventually("the first one is set aside", || set_aside(&settings, "siem").len() == 1);
    // From now on a record is known that the receiver takes.
    let again = write(&journal, REFUSED, 1);
    eventually("one alone is set aside", || set_aside(&settings, "siem").len() == 2);
    let ids: Vec<Uuid> = set_aside(&settings, "siem").into_iter().map(|(id, _)| id).collect();
    assert_eq!(ids, [refused[0], again[0]]);
    block_on(journal.close());
    shippers.finish(LONG);
}

#[test]
fn database_gets_all_but_the_rows_that_it_refuses() {
    let (dir, server) = (tempfile::tempdir().unwrap(), Postgresql::start());
    let (settings, metrics) = (settings(dir.path()), Metrics::new());
    write_uses(&settings, 1);
    ship_all(&settings, &sink(&server));
    server.sql(&format!("ALTER TABLE keygate.records ADD CONSTRAINT filter CHECK (path <> '{REFUSED}')"));
    let journal = open_journal(&settings);
    write(&journal, "/a", 700);
    let mut refused = write(&journal, REFUSED, 2);
    write(&journal, "/b", 1500);
    refused.extend(write(&journal, REFUSED, 1));
    let shippers = Shippers::start(journal.tap(), &sink(&server), &metrics.shipping).unwrap();
    eventually("the others are delivered", || shippers.reports()[0].lag_records == 0);
    assert_eq!((count(&server), shippers.reports()[0].rejected), (2201, 3));
    let (ids, reasons): (Vec<Uuid>, Vec<String>) = set_aside(&settings, "central").into_iter().unzip();
    assert_eq!(ids, refused);
    assert!(reasons.iter().all(|reason| reason.contains("violates check constraint \"filter\"")), "{reasons:?}");

    // Everything is refused: nothing is set aside.
    server.sql("ALTER TABLE keygate.records ADD CONSTRAINT nothing CHECK (path = '') NOT VALID");
    write(&journal, "/c", 5);
    eventually("the sink fails", || shippers.reports()[0].state == SinkState::Failing);
    server.sql("ALTER TABLE keygate.records DROP CONSTRAINT nothing");
    eventually("all are delivered", || count(&server) == 2206);
    block_on(journal.close());
    shippers.finish(LONG);
    assert_eq!(set_aside(&settings, "central").len(), 3);
}

#[test]
fn database_that_is_not_utf8_is_refused_at_connect() {
    let (dir, server) = (tempfile::tempdir().unwrap(), Postgresql::start());
    server.sql("CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0");
    let settings = settings(dir.path());
    write_uses(&settings, 3);
    let journal = open_journal(&settings);
    let sinks = super::postgresql::sink_with(&server.url_of("latin"), None, None);
    let shippers = Shippers::start(journal.tap(), &sinks, &Metrics::new().shipping).unwrap();
    eventually("the sink fails", || shippers.reports()[0].state == SinkState::Failing);
    let error = shippers.reports()[0].error.clone().unwrap();
    assert!(error.contains("LATIN1") && error.contains("ENCODING 'UTF8'"), "{error}");
    let schemas = server.sql_in("latin", "SELECT nspname FROM pg_namespace WHERE nspname = 'keygate'");
    assert_eq!(schemas, [""; 0], "it was not migrated");
    block_on(journal.close());
    shippers.finish(LONG);
}

#[test]
fn damaged_lines_are_counted_as_skipped() {
    let (dir, place) = (tempfile::tempdir().unwrap(), Filtered::start(Kind::Webhook, 403));
    let (settings, metrics) = (settings(dir.path()), Metrics::new());
    let ids = write_uses(&settings, 20);
    let file = segment_files(&settings).remove(0);
    let mut lines: Vec<String> = fs::read_to_string(&file).unwrap().lines().map(str::to_owned).collect();
    // The beginning of a use, the end of another one, and one whose kind cannot be read.
    for (line, from) in [(5, 30), (8, 30), (11, 0)] {
        lines[line].replace_range(from..from + 1, "~");
    }
    fs::write(&file, lines.join("\n") + "\n").unwrap();
    let journal = open_journal(&settings);
    let shippers = Shippers::start(journal.tap(), &place.sinks(), &metrics.shipping).unwrap();
    eventually("the last one is delivered", || place.has(&ids[19..]));
    eventually("the sink has caught up", || shippers.reports()[0].lag_records == 0);
    let skipped = metrics.shipping.sink("siem").skipped_lines.get();
    assert_eq!((skipped, shippers.reports()[0].skipped_lines), (3, 3));
    block_on(journal.close());
    shippers.finish(LONG);
}
