//! Events for people, at the receivers that get them: what is sent to try a sink, and each event once over gateways
//! that are killed.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use serde_json::Value;

use crate::support::{HyperOptions, HyperUpstream, Setup, Upstream, eventually};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// A receiver of webhooks that verifies each signature.
struct Receiver {
    server: HyperUpstream,
    taken: Arc<Mutex<Vec<Value>>>,
}

impl Receiver {
    /// Answers like this to the records of each message. Those of a status of 200 are taken.
    fn answering(answer: impl Fn(&[Value]) -> u16 + Send + Sync + 'static) -> Self {
        let (taken, answer) = (Arc::<Mutex<Vec<Value>>>::default(), Arc::new(answer));
        let log = Arc::clone(&taken);
        let server = HyperOptions::http1().start(move |request: Request<Incoming>| {
            let (log, answer) = (Arc::clone(&log), Arc::clone(&answer));
            async move {
                let (head, body) = request.into_parts();
                let body = body.collect().await.unwrap().to_bytes();
                assert!(is_signed(&head.headers, &body), "{:?}", head.headers);
                let lines = body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
                let records: Vec<Value> = lines.map(|line| serde_json::from_slice(line).unwrap()).collect();
                let status = answer(&records);
                if status == 200 {
                    log.lock().unwrap().extend(records);
                }
                Ok::<_, Infallible>(Response::builder().status(status).body(Full::<Bytes>::default()).unwrap())
            }
        });
        Self { server, taken }
    }

    fn taken(&self) -> Vec<Value> {
        self.taken.lock().unwrap().clone()
    }

    /// A sink of this name for some records.
    fn sink(&self, name: &str, records: &str) -> String {
        let http = format!("{{ url: 'http://{}', secret: {SECRET} }}", self.server.address);
        format!("{{ name: {name}, records: {records}, http: {http} }}")
    }
}

/// Verifies a signature of Standard Webhooks, but for the age of its time.
fn is_signed(headers: &HeaderMap, body: &[u8]) -> bool {
    let [id, time, signature] =
        ["webhook-id", "webhook-timestamp", "webhook-signature"].map(|name| headers[name].to_str().unwrap());
    let key = BASE64_STANDARD.decode(SECRET.strip_prefix("whsec_").unwrap()).unwrap();
    let signed = [format!("{id}.{time}.").as_bytes(), body].concat();
    let tag = BASE64_STANDARD.decode(signature.strip_prefix("v1,").unwrap()).unwrap();
    hmac::verify(&hmac::Key::new(hmac::HMAC_SHA256, &key), &signed, &tag).is_ok()
}

fn ship_to(setup: Setup, sinks: &[String]) -> Setup {
    let ship = format!("path: audit, ship: [{}] }}", sinks.join(", "));
    setup.write(&setup.text().replace("path: audit }", &ship));
    setup
}

#[test]
fn test_events_reach_the_receiver_as_such_and_leave_the_gateway_as_it_is() {
    let upstream = Upstream::start();
    let receiver = Receiver::answering(|records| if records[0]["action"] == "key.unused" { 500 } else { 200 });
    let files = "{ name: archive, files: { path: shipped } }".to_owned();
    let sinks = [receiver.sink("people", "changes"), receiver.sink("watch", "refusals"), files];
    let setup = ship_to(Setup::new(upstream.address, ""), &sinks);
    let gateway = setup.start();
    setup.key();
    let position = setup.path().join("audit/ship/people.json");
    let delivered = |name: &str| receiver.taken().iter().filter(|record| record["action"] == name).count();
    eventually("the creation of the key is delivered", || delivered("key.create") == 1 && position.exists());
    let changes = setup.ok(&["audit", "list", "--json"]);
    let before = std::fs::read(&position).unwrap();

    let tried = setup.keygate(&["events", "test", "--sink", "people", "--json"]);
    let error = String::from_utf8(tried.stderr).unwrap();
    assert_eq!(tried.status.code(), Some(1), "{error}");
    assert!(error.contains("1 of 9 test records not accepted"), "{error}");
    let tried: Value = serde_json::from_slice(&tried.stdout).unwrap();
    let of_tried = |accepted: bool| {
        let items = tried["items"].as_array().unwrap().iter().filter(move |item| item["accepted"] == accepted);
        items.map(|item| item["id"].clone()).collect::<Vec<_>>()
    };
    let arrived: Vec<Value> = receiver.taken().into_iter().filter(|record| record["test"] == true).collect();
    assert_eq!(arrived.iter().map(|record| record["id"].clone()).collect::<Vec<_>>(), of_tried(true));
    assert_eq!(of_tried(false).len(), 1);
    let refused = tried["items"].as_array().unwrap().iter().find(|item| item["accepted"] == false).unwrap();
    assert_eq!(
        (&refused["action"], refused["error"].as_str()),
        (&"key.unused".into(), Some("the server answers with status 500 Internal Server Error"))
    );
    let actions: Vec<&str> = arrived.iter().map(|record| record["action"].as_str().unwrap()).collect();
    let announced = ["key.expiring", "token.expiring", "quota.near", "key.create", "key.disable", "key.revoke"];
    assert!(announced.iter().all(|action| actions.contains(action)), "{actions:?}");
    assert!(arrived.iter().all(|record| record["actor"] == "test" && record["method"] == "ADMIN"), "{arrived:?}");

    assert!(setup.ok(&["events", "test", "--sink", "watch"]).contains("quota_exhausted"));
    let code = |sink: &str| setup.keygate(&["events", "test", "--sink", sink]).status.code();
    assert_eq!((code("archive"), code("nowhere")), (Some(1), Some(2)));
    assert_eq!(setup.ok(&["audit", "list", "--json"]), changes, "nothing is recorded");
    assert_eq!(std::fs::read(&position).unwrap(), before, "the position stays");
    setup.ok(&["key", "list", "--org", "acme"]);
    gateway.stop();
}
