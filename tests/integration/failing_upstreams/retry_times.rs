//! Times that the tries of a request have, and what the log has of the budget of retries.

use std::io::Write as _;
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::checks::with_blocks;
use super::logged::Logged;
use super::retries::{NO_EJECTION, gateway, retries};
use super::{labelled, responding};
use crate::support::{Client, GatedUpstream, Upstream, eventually, head, traffic_of};

const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

/// Two endpoints that together never answer the first request that comes to them, and answer others after this time.
fn silent_and_then(late: Duration) -> [Upstream; 2] {
    let count = Arc::new(AtomicUsize::new(0));
    [(); 2].map(|()| {
        let count = Arc::clone(&count);
        Upstream::answering(move |_, stream| {
            if count.fetch_add(1, Ordering::SeqCst) > 0 {
                std::thread::sleep(late);
                stream.write_all(OK).ok();
            }
        })
    })
}

/// The first try takes nearly the whole time. The second endpoint answers within `timeouts.response`, were it counted
/// anew, and long after the rest.
#[test]
fn last_try_has_the_rest_of_the_time() {
    const WHOLE: Duration = Duration::from_secs(3);
    let run = |timeouts: &str, kind: &str, count: f64| {
        let upstreams = silent_and_then(Duration::from_millis(2500));
        let blocks = format!("timeouts: {{ {timeouts} }}\n");
        let gateway = gateway(&upstreams.each_ref(), "budget: 100, per_try_timeout: 2900ms", &blocks);
        let (key, begun) = (gateway.key().text, Instant::now());
        let response = Client::connect(gateway.address).get("/", &key);
        assert_eq!((response.status, response.code().as_str()), (504, "upstream_timeout"), "{timeouts}");
        assert!(response.json()["detail"].as_str().unwrap().contains("may have executed"));
        assert!(begun.elapsed() >= WHOLE, "{timeouts}: the last try has the rest");
        assert_eq!(retries(&gateway, "timeout"), 1.0, "{timeouts}");
        assert_eq!(gateway.metric(&format!("keygate_timeouts_total{{kind=\"{kind}\"}}")), count, "{timeouts}");
    };
    std::thread::scope(|scope| {
        // A try that is given up is counted, too.
        scope.spawn(|| run("response: 3s", "upstream_first_byte", 2.0));
        scope.spawn(|| run("exchange: 3s", "upstream_whole", 1.0));
    });
}

#[test]
fn last_try_is_not_bounded_by_the_time_of_one() {
    let upstreams = silent_and_then(Duration::from_millis(400));
    let gateway = gateway(&upstreams.each_ref(), "budget: 100, per_try_timeout: 50ms", "");
    assert_eq!(Client::connect(gateway.address).get("/", &gateway.key().text).status, 200);
    assert_eq!(retries(&gateway, "timeout"), 1.0);
}

/// `timeouts.response` is the time of all tries: when a single one has used it up, there is no other.
#[test]
fn try_that_has_the_whole_time_is_the_last() {
    for retries in ["budget: 100", "budget: 100, per_try_timeout: 60s"] {
        let silent = [(); 2].map(|()| Upstream::answering(|_, _| {}));
        let gateway = gateway(&silent.each_ref(), retries, "timeouts: { response: 300ms, exchange: 20s }\n");
        assert_eq!(Client::connect(gateway.address).get("/", &gateway.key().text).status, 504, "{retries}");
        assert_eq!(silent.iter().map(Upstream::count).sum::<usize>(), 1, "{retries}");
        assert_eq!(gateway.metric("keygate_timeouts_total{kind=\"upstream_first_byte\"}"), 1.0, "{retries}");
    }
}

/// A try that is not given up, because the budget is exhausted, has the rest of the time, and no more.
#[test]
fn try_that_goes_on_has_the_rest_of_the_time() {
    let silent = [(); 2].map(|()| Upstream::answering(|_, _| {}));
    let blocks = "timeouts: { response: 500ms, exchange: 4s }\n";
    let (gateway, key) = gateway(&silent.each_ref(), "budget: 1, per_try_timeout: 100ms", blocks).and_secret();
    let requests: Vec<Client> = (0..12)
        .map(|_| {
            let mut client = Client::connect(gateway.address);
            client.send(head("GET", "/", &key, &[], 0));
            client
        })
        .collect();
    for mut client in requests {
        assert_eq!(client.response().status, 504);
    }
    assert_eq!(retries(&gateway, "timeout"), 10.0);
    assert_eq!(gateway.metric("keygate_timeouts_total{kind=\"upstream_whole\"}"), 0.0, "none has gone on to the end");
}

/// The tries of a request are counted together, whatever ended each.
#[test]
fn tries_of_different_failures_count_together() {
    let count = Arc::new(AtomicUsize::new(0));
    let upstreams = [(); 3].map(|()| {
        let count = Arc::clone(&count);
        Upstream::answering(move |_, stream| match count.fetch_add(1, Ordering::SeqCst) {
            0 => {}
            1 => drop(stream.shutdown(Shutdown::Both)),
            _ => drop(stream.write_all(OK)),
        })
    });
    let gateway = gateway(&upstreams.each_ref(), "budget: 100, attempts: 2, per_try_timeout: 50ms", "");
    assert_eq!(Client::connect(gateway.address).get("/", &gateway.key().text).status, 502);
    assert_eq!(count.load(Ordering::SeqCst), 2);
}

/// The client has not sent its request whole: no endpoint is given up, or blamed, for that.
#[test]
fn stalled_upload_is_no_time_out_of_the_endpoint() {
    let upstreams = [(); 2].map(|()| Upstream::answering(|_, stream| drop(stream.write_all(OK))));
    let addresses = upstreams.each_ref().map(|upstream| upstream.address);
    let settings =
        "retries: { budget: 100, per_try_timeout: 50ms }, outlier: { timeouts: 1, ejection: 1h, max_ejection: 1h }";
    let gateway = with_blocks(&addresses, settings, "workers: 1\ntimeouts: { response: 150ms }\n");
    let key = gateway.key().text;
    for _ in 0..4 {
        let mut client = Client::connect(gateway.address);
        client.send(head("PUT", "/", &key, &[], 1000)).send(b"some");
        assert_eq!(client.response().status, 504);
    }
    assert_eq!(gateway.metric("keygate_upstream_retries_total{upstream=\"default\"}"), 0.0);
    for address in addresses {
        assert_eq!(gateway.metric(&labelled("endpoint_up", address)), 1.0);
    }
}

/// A response that makes a request go to another endpoint takes its time. The second response has a latency of its own,
/// over a connection that is pooled.
#[test]
fn latency_of_a_retry_begins_with_the_retry() {
    const BUSY: Duration = Duration::from_millis(300);
    let (busy, good) = (responding(503, BUSY), responding(200, Duration::ZERO));
    let gateway = gateway(&[&busy, &good], "budget: 100", "");
    let (key, mut client) = (gateway.key().text, None);
    let sum = || gateway.metric(&labelled("latency_seconds_sum", good.address));
    for _ in 0..4 {
        let client = client.get_or_insert_with(|| Client::connect(gateway.address));
        let (before, tried, begun) = (sum(), busy.count(), Instant::now());
        assert_eq!(client.get("/", &key).status, 200);
        let seen = begun.elapsed();
        if busy.count() > tried {
            assert!(sum() - before <= (seen - BUSY).as_secs_f64(), "of {seen:?}");
        }
    }
    assert_eq!(busy.count(), 2);
}

#[test]
fn exhaustion_of_the_budget_and_its_recovery_are_logged_once_each() {
    let is_broken = Arc::new(AtomicBool::new(true));
    let upstreams = [(); 3].map(|()| {
        let is_broken = Arc::clone(&is_broken);
        Upstream::answering(move |_, stream| {
            if is_broken.load(Ordering::SeqCst) {
                drop(stream.shutdown(Shutdown::Both));
            } else {
                drop(stream.write_all(OK));
            }
        })
    });
    let endpoints = upstreams.each_ref().map(|upstream| format!("http://{}", upstream.address));
    // Each request adds a retry, and takes two.
    let gateway = Logged::start(&endpoints, &format!(", {NO_EJECTION}, retries: {{ budget: 100, attempts: 3 }}"));
    let mut client = gateway.setup.client();
    let mut send = |count: usize, status: u16| {
        (0..count).for_each(|_| assert_eq!(client.get("/", &gateway.key).status, status));
    };
    let told = || {
        let lines =
            ["budget of retries is exhausted", "budget of retries has recovered"].map(|text| gateway.lines(text));
        lines.map(|lines| {
            assert!(lines.iter().all(|line| line.contains("upstream=default")), "{lines:?}");
            lines.len()
        })
    };
    let refused = || gateway.metric("keygate_upstream_retries_refused_total{upstream=\"default\"}");
    send(10, 502);
    assert_eq!((refused(), told()), (0.0, [0, 0]), "ten at the start");
    send(20, 502);
    assert_eq!(refused(), 20.0);
    eventually("the beginning is logged", || told() == [1, 0]);
    is_broken.store(false, Ordering::SeqCst);
    // A worker counts its requests in steps.
    send(64, 200);
    eventually("the end is logged", || told() == [1, 1]);
    send(64, 200);
    is_broken.store(true, Ordering::SeqCst);
    eventually("the next beginning is logged", || {
        send(1, 502);
        told() == [2, 1]
    });
    send(10, 502);
    assert_eq!(told(), [2, 1]);
}

#[test]
fn full_upstream_and_its_end_are_logged_once_each() {
    let upstream = GatedUpstream::start();
    let gateway = Logged::start(&[format!("http://{}", upstream.address())], ", limits: { requests: 2 }");
    let told = || {
        let texts = ["as many requests in flight as it may have", "has room for requests again"];
        texts.map(|text| gateway.lines(text).len())
    };
    let mut held = [0, 1].map(|number| {
        let mut client = gateway.setup.client();
        client.send(head("GET", "/", &gateway.key, &[], 0));
        eventually("the request is at the upstream", || upstream.count() == number + 1);
        client
    });
    let mut client = gateway.setup.client();
    for _ in 0..5 {
        assert_eq!(client.get("/", &gateway.key).status, 503);
    }
    eventually("the beginning is logged", || told() == [1, 0]);
    upstream.open();
    assert!(held.iter_mut().all(|client| client.response().status == 200));
    eventually("the end is logged", || told() == [1, 1]);
    assert_eq!(client.get("/", &gateway.key).status, 200);
    assert_eq!(told(), [1, 1]);
}

/// The upstream is full, and has room again, with every request that ends.
#[test]
fn overload_is_one_episode_of_the_log() {
    let upstream = responding(200, Duration::from_millis(2));
    let gateway = Logged::start(&[format!("http://{}", upstream.address)], ", limits: { requests: 1 }");
    let begun = Instant::now();
    let answers = traffic_of(gateway.setup.address, &gateway.key, 8, 100);
    let told = || {
        let texts = ["as many requests in flight as it may have", "has room for requests again"];
        texts.map(|text| gateway.lines(text).len())
    };
    let refused = answers.iter().filter(|answer| answer.status == Some(503)).count();
    assert!(refused > 100, "{refused} of {}", answers.len());
    eventually("the end is logged", || told()[1] > 0);
    // A second without a refusal ends an episode, which a busy machine may bring.
    let most = 1 + begun.elapsed().as_secs() as usize;
    assert!(told().iter().all(|lines| *lines <= most), "{:?} lines in {:?}", told(), begun.elapsed());
}
