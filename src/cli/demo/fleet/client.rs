//! Clients of a demo with two gateways: each has one connection and one request at a time, and does not back off.
//!
//! A request whose connection breaks is counted, and not sent again: it may have been carried out, as its record may
//! say. The client goes on with its next request at the other gateway, as behind a load balancer.

use std::cell::Cell;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use bytes::Bytes;
use futures_util::future::try_join_all;
use http::header::{AUTHORIZATION, HOST};
use http::{HeaderValue, Request, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use uuid::Uuid;

use super::request_id;
use super::{CLIENTS, GATEWAYS, REQUESTS};
use domain::key::KeyId;

/// A key, as its client holds it.
pub(super) struct DemoKey {
    pub(super) id: KeyId,
    pub(super) authorization: HeaderValue,
}

/// Answers to the requests of all clients.
#[derive(Default)]
pub(super) struct Load {
    /// Ids of the requests that were answered with 200.
    pub(super) ok: Vec<Uuid>,
    pub(super) refused: u64,
    pub(super) broken: u64,
    pub(super) other: u64,
    /// Time from the first request to the last answer.
    pub(super) elapsed: Duration,
}

/// A client.
pub(super) struct Client<'a> {
    gateways: [SocketAddr; GATEWAYS],
    /// Index of the gateway that it uses.
    at: usize,
    authorization: &'a HeaderValue,
    open: Option<SendRequest<Empty<Bytes>>>,
}

/// Answer to a request.
pub(super) enum Answer {
    Response(StatusCode, Option<Uuid>),
    /// The connection broke before the whole response was there.
    Broken,
}

/// Sends all requests of all clients: half of the clients begin at each gateway. Counts the answers in `answered`.
pub(super) async fn load(
    gateways: [SocketAddr; GATEWAYS],
    authorization: &HeaderValue,
    answered: &Cell<u64>,
) -> anyhow::Result<Load> {
    let begun = Instant::now();
    let clients = (0..CLIENTS).map(async |number| {
        let mut client = Client::new(gateways, number % GATEWAYS, authorization);
        let mut load = Load::default();
        for _ in 0..REQUESTS {
            load.add(client.get("/orders").await?);
            answered.set(answered.get() + 1);
        }
        anyhow::Ok(load)
    });
    let mut all = Load::default();
    for load in try_join_all(clients).await? {
        all.ok.extend(load.ok);
        all.refused += load.refused;
        all.broken += load.broken;
        all.other += load.other;
    }
    Ok(Load { elapsed: begun.elapsed(), ..all })
}

impl Load {
    fn add(&mut self, answer: Answer) {
        match answer {
            // Without an id it can have no record: the nil id is in none.
            Answer::Response(StatusCode::OK, id) => self.ok.push(id.unwrap_or_default()),
            Answer::Response(StatusCode::TOO_MANY_REQUESTS, _) => self.refused += 1,
            Answer::Response(..) => self.other += 1,
            Answer::Broken => self.broken += 1,
        }
    }
}

impl<'a> Client<'a> {
    /// A client that begins at the gateway with this index.
    pub(super) fn new(gateways: [SocketAddr; GATEWAYS], at: usize, authorization: &'a HeaderValue) -> Self {
        Self { gateways, at, authorization, open: None }
    }

    /// Sends a request, and reads the whole response.
    ///
    /// # Errors
    /// No gateway can be connected to.
    pub(super) async fn get(&mut self, path: &str) -> anyhow::Result<Answer> {
        let request = request(path, self.authorization)?;
        let mut sender = self.connect().await?;
        let answer = async {
            let (head, body) = sender.send_request(request).await?.into_parts();
            body.collect().await?;
            hyper::Result::Ok(Answer::Response(head.status, request_id(&head.headers)))
        };
        let Ok(answer) = answer.await else {
            self.at = (self.at + 1) % GATEWAYS;
            return Ok(Answer::Broken);
        };
        self.open = Some(sender);
        Ok(answer)
    }

    /// The open connection, or another one: to the same gateway if it accepts it.
    async fn connect(&mut self) -> anyhow::Result<SendRequest<Empty<Bytes>>> {
        if let Some(mut open) = self.open.take()
            && open.ready().await.is_ok()
        {
            return Ok(open);
        }
        if let Ok(sender) = connect(self.gateways[self.at]).await {
            return Ok(sender);
        }
        self.at = (self.at + 1) % GATEWAYS;
        connect(self.gateways[self.at]).await.context("no gateway accepts connections")
    }
}

/// Opens a stream of events, and returns it once its first event is there.
pub(super) async fn open_stream(gateway: SocketAddr, authorization: &HeaderValue) -> anyhow::Result<Incoming> {
    let mut sender = connect(gateway).await?;
    let response = sender.send_request(request("/events", authorization)?).await.context("no stream was opened")?;
    anyhow::ensure!(response.status() == StatusCode::OK, "the stream was answered with {}", response.status());
    let mut stream = response.into_body();
    stream.frame().await.context("the stream has no event")??;
    Ok(stream)
}

/// Reads a stream of events to its end. Returns when it ended, and whether by a reset.
pub(super) async fn read_to_end(mut stream: Incoming) -> (Instant, bool) {
    loop {
        match stream.frame().await {
            Some(Ok(_)) => {}
            Some(Err(_)) => return (Instant::now(), true),
            None => return (Instant::now(), false),
        }
    }
}

async fn connect(gateway: SocketAddr) -> anyhow::Result<SendRequest<Empty<Bytes>>> {
    let stream = TcpStream::connect(gateway).await?;
    stream.set_nodelay(true)?;
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // It ends with the sender and the response.
    tokio::spawn(connection);
    Ok(sender)
}

fn request(path: &str, authorization: &HeaderValue) -> anyhow::Result<Request<Empty<Bytes>>> {
    let request = Request::builder().uri(path).header(HOST, "demo").header(AUTHORIZATION, authorization);
    request.body(Empty::new()).context("cannot build the request")
}
