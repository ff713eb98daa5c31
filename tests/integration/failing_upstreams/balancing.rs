//! Balancing policies: the parts of the requests that endpoints have.

use std::time::Duration;

use super::checks::with;
use super::{labelled, responding};
use crate::support::hyper_upstream::ok;
use crate::support::{Client, HyperOptions, HyperUpstream, Load, Upstream, eventually, part_of, traffic_of};

/// Ten endpoints have a tenth of the requests each, give or take 15 per cent of it: by chance alone, the number at one
/// would have a standard deviation of sqrt(10,000 * 0.1 * 0.9) = 30, and 150 are five of them.
#[test]
fn ten_endpoints_have_a_tenth_each() {
    const CLIENTS: usize = 60;
    // Beside this time the pauses of a busy machine are small, and all endpoints share the thread that pauses.
    let upstreams = HyperOptions::http1().start_each([([127, 0, 0, 1], 0).into(); 10], async |request| {
        tokio::time::sleep(Duration::from_millis(40)).await;
        ok(request).await
    });
    let gateway = with(&upstreams.each_ref().map(|upstream| upstream.address), "");
    let load = Load::over_http1(gateway.address, &gateway.key().text, CLIENTS);
    load.wait_for(10 * CLIENTS);
    let before = upstreams.each_ref().map(HyperUpstream::count);
    load.wait_for(10_000);
    let parts: Vec<usize> = upstreams.iter().zip(before).map(|(upstream, before)| upstream.count() - before).collect();
    load.stop();
    let tenth = parts.iter().sum::<usize>() / 10;
    println!("{parts:?} requests at ten endpoints");
    assert!(parts.iter().all(|part| part.abs_diff(tenth) * 100 <= tenth * 15), "{parts:?}");
}

/// A slow endpoint does not fail: it keeps a small part of the requests, of which an equal part were a third.
#[test]
fn slow_endpoint_has_a_small_part_and_stays_in_use() {
    let slow = responding(200, Duration::from_millis(300));
    let fast = [(); 2].map(|()| responding(200, Duration::ZERO));
    let gateway = with(&[slow.address, fast[0].address, fast[1].address], "");
    let key = gateway.key().text;
    traffic_of(gateway.address, &key, 4, 50);
    let before = slow.count();
    let answers = traffic_of(gateway.address, &key, 4, 500);
    assert_eq!(part_of(&answers, 200), 1.0);
    let part = (slow.count() - before) as f64 / answers.len() as f64;
    assert!(part < 0.1, "{part}");
    // Its latency fades, and then it is tried again.
    eventually("it has a request", || {
        traffic_of(gateway.address, &key, 4, 10);
        slow.count() > before
    });
    assert_eq!(gateway.metric(&labelled("endpoint_up", slow.address)), 1.0);
}

#[test]
fn round_robin_goes_round_and_hash_stays() {
    let upstreams = [responding(200, Duration::ZERO), responding(200, Duration::ZERO), responding(200, Duration::ZERO)];
    let addresses = upstreams.each_ref().map(|upstream| upstream.address);
    let counts = || upstreams.each_ref().map(Upstream::count);
    let gateway = with(&addresses, "balance: { policy: round_robin }");
    let key = gateway.key().text;
    let mut client = Client::connect(gateway.address);
    (0..30).for_each(|_| drop(client.get("/", &key)));
    assert_eq!(counts(), [10; 3], "a connection has one worker, and each worker its turns");
    drop(gateway);
    let gateway = with(&addresses, "balance: { policy: hash, hash: user }");
    let before = counts();
    let key = gateway.key().text;
    let mut client = Client::connect(gateway.address);
    (0..30).for_each(|_| drop(client.get("/", &key)));
    let mut more: Vec<usize> = counts().iter().zip(before).map(|(now, before)| now - before).collect();
    more.sort_unstable();
    assert_eq!(more, [0, 0, 30]);
}

#[test]
fn weights_are_parts_of_the_requests() {
    let upstreams = [responding(200, Duration::ZERO), responding(200, Duration::ZERO)];
    let addresses = upstreams.each_ref().map(|upstream| upstream.address);
    // In turns, so that the latencies of a busy machine do not count.
    let weights = format!("[{{ endpoint: \"{}\", weight: 4 }}]", addresses[0]);
    let gateway = with(&addresses, &format!("balance: {{ policy: round_robin, weights: {weights} }}"));
    let key = gateway.key().text;
    let mut client = Client::connect(gateway.address);
    (0..600).for_each(|_| drop(client.get("/", &key)));
    let second = upstreams[1].count();
    assert!((60..240).contains(&second), "{second} of 600, of which a fifth is 120");
}
