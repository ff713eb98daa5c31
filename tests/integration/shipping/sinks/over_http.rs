//! The sinks over HTTP: webhooks (Standard Webhooks) and log records (OTLP).

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use domain::secret::Secret;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use journal::audit::Record;
use journal::shipping::{Destination, OtlpSettings, WebhookSettings};
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use platform::tls::ClientSettings;
use prost::Message as _;

use super::{Arrival, LONG, Place, SECRET, read_lines, ships_across_an_outage_and_a_restart};
use crate::support::{HyperOptions, HyperUpstream};

/// A request that a server has got.
type Received = Arc<Mutex<Vec<(HeaderMap, Bytes)>>>;

/// A server of HTTP, which is away when it answers with 503, and now and then takes a request without an
/// answer that says so.
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

    fn url(&self) -> platform::outbound::HttpUrl {
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
