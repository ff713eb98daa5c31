//! Traffic of several clients at a gateway, and what they got.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::Client;

/// Response, or the failure to get one, of one request.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Time from the beginning of the traffic to the request.
    pub at: Duration,
    /// Time to the last byte of the response.
    pub took: Duration,
    /// Status; none when there was no whole response.
    pub status: Option<u16>,
}

/// Time after which there are not enough answers.
const PATIENCE: Duration = Duration::from_secs(300);

/// Sends GETs of `clients` connections, each one request after the other, until `is_enough` of the answers so far.
pub fn traffic(
    address: SocketAddr,
    key: &str,
    clients: usize,
    is_enough: impl Fn(&[Answer]) -> bool + Sync,
) -> Vec<Answer> {
    let (answers, is_over, start) = (Mutex::new(Vec::new()), AtomicBool::new(false), Instant::now());
    std::thread::scope(|scope| {
        for _ in 0..clients {
            scope.spawn(|| {
                let mut client = Client::connect(address);
                while !is_over.load(Ordering::Relaxed) {
                    let begun = Instant::now();
                    assert!(begun - start < PATIENCE, "there were not enough answers within {} s", PATIENCE.as_secs());
                    client.send(super::head("GET", "/", key, &[], 0));
                    let response = client.try_response_to("GET");
                    if !response.as_ref().is_ok_and(|response| response.header("connection") != Some("close")) {
                        client = Client::connect(address);
                    }
                    let status = response.ok().map(|response| response.status);
                    let answer = Answer { at: begun - start, took: begun.elapsed(), status };
                    let mut answers = answers.lock().unwrap();
                    answers.push(answer);
                    if is_enough(&answers) {
                        is_over.store(true, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    answers.into_inner().unwrap()
}

/// Sends this many requests of each client.
pub fn traffic_of(address: SocketAddr, key: &str, clients: usize, requests: usize) -> Vec<Answer> {
    traffic(address, key, clients, |answers| answers.len() >= clients * requests)
}

/// Part of the answers that have this status.
pub fn part_of(answers: &[Answer], status: u16) -> f64 {
    let count = answers.iter().filter(|answer| answer.status == Some(status)).count();
    count as f64 / answers.len() as f64
}
