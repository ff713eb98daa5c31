//! The stop of a gateway whose sinks hang or fail: the rest stays in the journal, for the next start.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use domain::secret::Secret;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use journal::shipping::{Destination, Settings, ShippedRecords, Shippers, SinkSettings, WebhookSettings};
use platform::metrics::Metrics;
use platform::tls::ClientSettings;

use super::refused::SECRET;
use crate::journal::support::{Caller, END, block_on, open_journal, settings};
use crate::support::{HyperOptions, HyperUpstream, eventually};

/// Longer than a test waits.
const DRAIN: Duration = Duration::from_secs(3600);

/// A receiver that counts messages, and refuses them for now, or never answers.
fn receiver(hangs: bool) -> (HyperUpstream, Arc<AtomicUsize>) {
    let messages = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&messages);
    let server = HyperOptions::http1().start(move |request: Request<Incoming>| {
        let count = Arc::clone(&count);
        async move {
            drop(request.into_body().collect().await);
            count.fetch_add(1, Ordering::SeqCst);
            if hangs {
                std::future::pending::<()>().await;
            }
            Ok::<_, Infallible>(Response::builder().status(503).body(Full::new(Bytes::new())).unwrap())
        }
    });
    (server, messages)
}

fn sinks(server: &HyperUpstream) -> Settings {
    let destination = Destination::Webhook(WebhookSettings {
        url: format!("http://{}/in", server.address).parse().unwrap(),
        secret: Secret::new(SECRET.to_owned()),
        tls: ClientSettings { ca: None, identity: None },
        timeout: Duration::from_secs(50),
    });
    Settings { sinks: vec![SinkSettings { name: "sink".into(), destination, records: ShippedRecords::All }] }
}

#[test]
fn sink_that_hangs_is_given_up_before_its_own_timeout() {
    let (dir, (server, messages)) = (tempfile::tempdir().unwrap(), receiver(true));
    let (journal, metrics) = (open_journal(&settings(dir.path())), Metrics::new());
    let shippers = Shippers::start(journal.tap(), &sinks(&server), &metrics.shipping).unwrap();
    block_on(journal.begin(&Caller::random().opening())).unwrap().close(END);
    eventually("the receiver has a message", || messages.load(Ordering::SeqCst) == 1);
    block_on(journal.close());
    shippers.finish(DRAIN);
    // Neither its timeout of 50 s has passed, nor was it tried again.
    assert_eq!((metrics.shipping.sink("sink").failures.get(), messages.load(Ordering::SeqCst)), (0, 1));
}

#[test]
fn sink_that_has_failed_for_a_while_is_not_tried_again() {
    let (dir, (server, messages)) = (tempfile::tempdir().unwrap(), receiver(false));
    let (journal, metrics) = (open_journal(&settings(dir.path())), Metrics::new());
    let shippers = Shippers::start(journal.tap(), &sinks(&server), &metrics.shipping).unwrap();
    block_on(journal.begin(&Caller::random().opening())).unwrap().close(END);
    let failures = metrics.shipping.sink("sink").failures;
    // With the pauses between them, these take more than 5 s.
    eventually("the sink has failed for a while", || failures.get() >= 7);
    block_on(journal.close());
    let before = messages.load(Ordering::SeqCst);
    shippers.finish(DRAIN);
    // One may have been under way.
    assert!(messages.load(Ordering::SeqCst) <= before + 1, "{before} {messages:?}");
}
