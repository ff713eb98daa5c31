//! More exchanges at a time than the defaults of HTTP/2 and of Envoy's circuit breaker foresee.

use super::{Kind, Setup, with_many_requests};
use crate::support::{Client, GatedUpstream, eventually, head};

/// Requests that are refused, or given up by their clients: more than the bounds by which floods are known.
const FLOOD: usize = 6_000;

/// Exchanges that are open at a time: more than the default of Envoy's circuit breaker, 1,024.
const MANY: usize = 1_100;
/// Those that begin at once: as many as the backlog of the upstream's listener takes.
const BURST: usize = 100;

#[test]
fn many_exchanges_are_open_at_a_time_and_end_at_once() {
    let upstream = GatedUpstream::start();
    let (gateway, key, proxy) = Setup::before(Kind::EnvoyExtProc, upstream.address(), with_many_requests);
    gateway.limit_org(&key, MANY.try_into().unwrap());
    for round in 1..=3 {
        upstream.close();
        let mut clients: Vec<Client> = Vec::new();
        while clients.len() < MANY {
            let begun: Vec<_> = (0..BURST).map(|_| proxy.client()).collect();
            clients.extend(begun);
            let first = clients.len() - BURST;
            for client in &mut clients[first..] {
                client.send(head("GET", "/reads/a", &key.text, &[], 0));
            }
            eventually("all are at the upstream", || upstream.count() == (round - 1) * MANY + clients.len());
        }
        assert_eq!(gateway.explain_in_flight(&key), u32::try_from(MANY).unwrap());
        if round == 2 {
            // The clients go away, all at once: Envoy resets all streams.
            drop(clients);
        } else {
            upstream.open();
            for client in &mut clients {
                let response = client.response();
                assert_eq!(response.status, 200, "{response:?}");
            }
        }
        eventually("all streams have ended", || gateway.explain_in_flight(&key) == 0);
        upstream.open();
    }
    let records = gateway.records();
    let of_round_two = records.iter().filter(|record| record.outcome.name() == "aborted").count();
    assert_eq!((records.len(), of_round_two), (3 * MANY, MANY));
}

/// All exchanges of a worker of Envoy share few connections to keygate: what one client does there ends no exchange of
/// another.
#[test]
fn refused_and_aborted_requests_leave_open_exchanges_alone() {
    let upstream = GatedUpstream::sending(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nha", b"lf");
    let (gateway, key, proxy) = Setup::before(Kind::EnvoyExtProc, upstream.address(), with_many_requests);
    // On each of the two workers of Envoy.
    let mut open: Vec<Client> = (0..20).map(|_| proxy.client()).collect();
    for client in &mut open {
        client.send(head("GET", "/reads/a", &key.text, &[], 0));
        assert_eq!(client.head().unwrap().0, 200);
        assert_eq!(client.read_exact(2), b"ha");
    }
    std::thread::scope(|scope| {
        for thread in 0..16 {
            let (proxy, key) = (&proxy, &key.text);
            scope.spawn(move || {
                let mut client = proxy.client();
                for _ in 0..FLOOD / 16 {
                    if thread % 2 == 0 {
                        let response = client.get("/none", key);
                        assert_eq!(response.status, 404, "{:?}", String::from_utf8_lossy(&response.body));
                    } else {
                        // Gone before, while or after keygate decides.
                        proxy.client().send(head("GET", "/reads/a", key, &[], 0));
                    }
                }
            });
        }
    });
    assert_eq!(gateway.metric("keygate_http2_floods_total"), 0.0);
    upstream.open();
    for client in &mut open {
        assert_eq!(client.read_exact(2), b"lf");
    }
    eventually("all streams have ended", || gateway.explain_in_flight(&key) == 0);
}
