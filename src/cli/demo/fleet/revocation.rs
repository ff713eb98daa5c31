//! Revocation of a key at one gateway, and its effects at another, at which a stream of the key is open.

use std::time::{Duration, Instant};

use hyper::body::Incoming;

use super::GATEWAYS;
use super::client::{Answer, Client, DemoKey, read_to_end};
use super::gateway::Gateway;
use super::numbers::{Revocation, StreamEnd};
use crate::cli::calls::revoke_key;
use ::control::management::Key;

/// Time to wait for the end of the stream: longer than promised, so that the time is known when it is late.
const STREAM_TIMEOUT: Duration = Duration::from_secs(3);

/// Sends a request to the second gateway, revokes the key at the first one, and sends another request.
pub(super) async fn revoke(
    [first, second]: [&Gateway; GATEWAYS],
    key: &DemoKey,
    stream: Incoming,
) -> anyhow::Result<Revocation> {
    let stream = tokio::spawn(read_to_end(stream));
    let mut client = Client::new([second.address; GATEWAYS], 0, &key.authorization);
    let status_before = status(&client.get("/orders").await?);
    let begun = Instant::now();
    first.perform::<Key>(&revoke_key(key.id)).await?;
    let acknowledged = begun.elapsed();
    let status_after = status(&client.get("/orders").await?);
    let answered = begun.elapsed();
    let ended = tokio::time::timeout(STREAM_TIMEOUT, stream).await;
    let stream_end = ended.ok().transpose()?.map(|(at, is_reset)| {
        // An end before the revocation was sent has a negative time.
        let ended_ms = match at.checked_duration_since(begun) {
            Some(after) => milliseconds(after),
            None => -milliseconds(begun - at),
        };
        StreamEnd { ended_ms, is_reset }
    });
    Ok(Revocation {
        acknowledged_ms: milliseconds(acknowledged),
        status_before,
        status_after,
        answered_ms: milliseconds(answered),
        stream_end,
    })
}

fn status(answer: &Answer) -> Option<u16> {
    match answer {
        Answer::Response(status, _) => Some(status.as_u16()),
        Answer::Broken => None,
    }
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
