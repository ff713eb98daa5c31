//! HTTP/2: the stream of a revoked key is reset, and other streams of its connection go on.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use h2::Reason;
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::http2::SendRequest;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::ROUTES;
use super::upstream::Endless;
use crate::grpc::Server;
use crate::support::gateway::{Key, OPERATOR};
use crate::support::{Gateway, eventually, over_http2, over_http2_on};
use crate::tls::authority::Authority;
use control::management;
use journal::audit::Outcome;

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// Body that begins and never ends.
fn unfinished() -> Body {
    let first = stream::iter([Ok(Frame::data(Bytes::from_static(b"some")))]);
    StreamBody::new(first.chain(stream::pending())).boxed_unsync()
}

fn request(gateway: &Gateway, path: &str, key: &str, body: Body) -> Request<Body> {
    let request = Request::post(format!("http://{}{path}", gateway.address)).header("te", "trailers");
    request
        .header("content-type", "application/grpc")
        .header("authorization", format!("Bearer {key}"))
        .body(body)
        .unwrap()
}

/// Revokes a key on a thread of its own: management has a runtime of its own, too.
fn revoke(gateway: &Gateway, key: &Key) {
    let (operator, id) = (gateway.operator(), key.id);
    let revoke = move || operator.perform(async |to, now| management::revoke_key(to, OPERATOR, id, now).await);
    std::thread::spawn(revoke).join().unwrap();
}

/// Waits for a condition while the client's connection goes on.
async fn wait_until(mut holds: impl FnMut() -> bool) {
    let begun = tokio::time::Instant::now();
    while !holds() {
        assert!(begun.elapsed() < super::PATIENCE, "the exchanges do not begin");
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
}

/// Reason of the RST_STREAM that an error reports.
fn reset_reason(error: &hyper::Error) -> Option<Reason> {
    let cause = std::error::Error::source(error)?.downcast_ref::<h2::Error>()?;
    cause.is_remote().then(|| cause.reason()).flatten()
}

/// Reads a body to its end. Returns the reason by which its stream was reset; none for an end in order.
async fn end_of(response: Response<Incoming>) -> Option<Reason> {
    let mut body = response.into_body();
    while let Some(frame) = body.frame().await {
        if let Err(error) = frame {
            return Some(reset_reason(&error).expect("the stream was reset"));
        }
    }
    None
}

#[test]
fn streams_are_reset_and_others_of_the_connection_go_on() {
    let upstream = Endless::start();
    let gateway = Gateway::with(&[upstream.address], ROUTES);
    let (key, other) = (gateway.key(), gateway.key());
    over_http2(gateway.address, async |mut sender: SendRequest<Body>| {
        let mut send = |path, key| sender.send_request(request(&gateway, path, key, unfinished()));
        let silent = tokio::spawn(send("/silent", &key.text));
        let trickle = send("/trickle", &key.text).await.unwrap();
        let download = send("/download", &key.text).await.unwrap();
        let mut kept = send("/download", &other.text).await.unwrap();
        wait_until(|| upstream.begun() == 4).await;
        revoke(&gateway, &key);
        let error = silent.await.unwrap().unwrap_err();
        assert_eq!(reset_reason(&error), Some(Reason::CANCEL));
        assert_eq!(end_of(trickle).await, Some(Reason::CANCEL));
        assert_eq!(end_of(download).await, Some(Reason::CANCEL));
        for _ in 0..100 {
            assert!(kept.body_mut().frame().await.unwrap().is_ok(), "the stream of the other key goes on");
        }
        assert_eq!(gateway.metric("keygate_in_flight"), 1.0);
    });
    let records = gateway.records();
    let of_key = records.iter().filter(|record| record.key_id == Some(key.id));
    let outcomes: Vec<_> = of_key.map(|record| record.outcome).collect();
    assert_eq!(outcomes, [Outcome::Terminated; 3]);
    upstream.until_all_ended();
}

#[test]
fn grpc_stream_is_reset_in_both_directions() {
    let server = Server::start(100);
    let gateway = server.with("routes: [{ name: calls, path: /calls/**, trailers: true }]");
    let key = gateway.key();
    over_http2(gateway.address, async |mut sender: SendRequest<Body>| {
        let mut echo = sender.send_request(request(&gateway, "/calls/echo", &key.text, unfinished())).await.unwrap();
        assert_eq!(echo.body_mut().frame().await.unwrap().unwrap().into_data().unwrap(), "some");
        let upload = tokio::spawn(sender.send_request(request(&gateway, "/calls/upload", &key.text, unfinished())));
        wait_until(|| server.calls() == 2).await;
        revoke(&gateway, &key);
        assert_eq!(end_of(echo).await, Some(Reason::CANCEL));
        assert_eq!(reset_reason(&upload.await.unwrap().unwrap_err()), Some(Reason::CANCEL));
    });
    assert_eq!(server.bodies.recv_timeout(super::PATIENCE), Ok(Err(())), "the upload is cancelled at the upstream");
    assert!(gateway.records().iter().all(|record| record.outcome == Outcome::Terminated));
}

#[test]
fn streams_over_tls_are_reset_when_their_key_is_revoked() {
    let upstream = Endless::start();
    let (dir, authority) = (tempfile::tempdir().unwrap(), Authority::new());
    authority.certify(&["a.test"]).write(dir.path(), "a");
    let path = dir.path().display();
    let tls = format!("tls: {{ certificates: [{{ chain: {path}/a.pem, key: {path}/a.key }}] }}");
    let listen = format!("\nlisten: [{{ address: 127.0.0.1:0, {tls} }}]\n{ROUTES}");
    let (gateway, key) = Gateway::with(&[upstream.address], &listen).and_key();
    let connect = async || {
        let mut config = authority.client();
        config.alpn_protocols = vec![b"h2".to_vec()];
        let socket = TcpStream::connect(gateway.address).await.unwrap();
        let name = ServerName::try_from("a.test").unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, socket).await.unwrap()
    };
    over_http2_on(connect, async |mut sender: SendRequest<Body>| {
        let mut send = |path| sender.send_request(request(&gateway, path, &key.text, unfinished()));
        let silent = tokio::spawn(send("/silent"));
        let download = send("/download").await.unwrap();
        wait_until(|| upstream.begun() == 2).await;
        revoke(&gateway, &key);
        assert_eq!(reset_reason(&silent.await.unwrap().unwrap_err()), Some(Reason::CANCEL));
        assert_eq!(end_of(download).await, Some(Reason::CANCEL));
    });
    upstream.until_all_ended();
    assert!(gateway.records().iter().all(|record| record.outcome == Outcome::Terminated));
}

/// The library sends the reset after the data that it has taken already, which a closed window holds back. Nothing of
/// the gateway waits for that.
#[test]
fn stream_of_a_client_that_closed_its_window_ends_at_the_gateway_and_is_reset_when_the_window_opens() {
    let upstream = Endless::start();
    let (gateway, key) = Gateway::with(&[upstream.address], ROUTES).and_key();
    over_http2(gateway.address, async |mut sender: SendRequest<Body>| {
        // The body is not read, so that the window closes.
        let response = sender.send_request(request(&gateway, "/download", &key.text, unfinished())).await.unwrap();
        wait_until(|| upstream.begun() == 1).await;
        revoke(&gateway, &key);
        wait_until(|| gateway.metric("keygate_in_flight") == 0.0).await;
        wait_until(|| upstream.ended() == 1).await;
        assert_eq!(end_of(response).await, Some(Reason::CANCEL));
    });
    eventually("the record is complete", || gateway.records().len() == 1);
    assert_eq!(gateway.records()[0].outcome, Outcome::Terminated);
}
