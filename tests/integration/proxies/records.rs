//! The audit: exactly one record for each request that was decided, about the request that the upstream got.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use journal::audit::{Outcome, Record};

use super::{Kind, Setup};
use crate::support::upstream::Received;

/// Method and target of a request that has reached the upstream.
fn described(received: &Received) -> (&str, &str) {
    let mut words = received.line.split(' ');
    (words.next().unwrap(), words.next().unwrap())
}

/// Asserts that each request of the key at the upstream has one record, with its method, its target and its client, and
/// that there is no other record of an admitted request.
#[track_caller]
pub fn assert_one_for_each_request(kind: Kind, setup: &Setup) {
    let records = setup.gateway.records();
    let admitted = records.iter().filter(|record| matches!(record.outcome, Outcome::Decided | Outcome::Completed));
    let mut admitted: BTreeMap<String, &Record> = admitted.map(|record| (record.id.to_string(), record)).collect();
    let uses = admitted.len();
    let received = setup.upstream.received();
    for received in received.iter().filter(|received| received.header("x-auth-method") == Some("api-key")) {
        let id = received.header("x-request-id").unwrap();
        let record = admitted.remove(id).unwrap_or_else(|| panic!("{kind:?}: no record of {received:?}"));
        assert_eq!(described(received), (&*record.method, &*record.path), "{kind:?}: what was decided");
        assert_eq!(record.key_id, Some(setup.key.id));
        assert_client(kind, record.ip.unwrap(), received);
    }
    assert_eq!(admitted.values().map(|record| &record.path).collect::<Vec<_>>(), [""; 0], "{kind:?}: decided only");
    assert_eq!(setup.gateway.uses(&setup.key), u64::try_from(uses).ok(), "{kind:?}: of {} records", records.len());
}

/// The client is that of the connection, whatever the request says of it. For a client on loopback, Envoy names an
/// address of its machine in `X-Forwarded-For`.
#[track_caller]
fn assert_client(kind: Kind, client: IpAddr, received: &Received) {
    let fields = received.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("x-forwarded-for"));
    let list: Vec<&str> = fields.flat_map(|(_, value)| value.split(',')).map(str::trim).collect();
    let named: IpAddr = list.last().unwrap().parse().unwrap();
    assert_eq!(client, Ipv4Addr::LOCALHOST, "{kind:?}");
    if !kind.is_envoy() {
        assert_eq!(named, Ipv4Addr::LOCALHOST, "{kind:?}: {list:?}");
    }
}

#[test]
fn each_request_has_one_record_with_its_client() {
    for kind in Kind::all() {
        let setup = Setup::start(kind);
        let forged = [
            ("X-Forwarded-For", "203.0.113.7"),
            ("X-Real-IP", "203.0.113.8"),
            ("Forwarded", "for=203.0.113.9"),
            ("X-Envoy-External-Address", "203.0.113.10"),
        ];
        for number in 0..20 {
            let target = format!("/reads/{number}?a={number}");
            assert_eq!(setup.request("GET", &target, &forged, b"").status, 200, "{kind:?}");
        }
        assert_one_for_each_request(kind, &setup);
        // A refusal has one record as well, and reaches no upstream.
        assert_eq!(setup.request("POST", "/writes/a", &forged, b"").status, 403, "{kind:?}");
        let records = setup.gateway.records();
        assert_eq!((records.len(), records[0].outcome.name()), (21, "forbidden"), "{kind:?}");
        assert_eq!((&*records[0].method, &*records[0].path), ("POST", "/writes/a"), "{kind:?}");
        assert_eq!(setup.upstream.count(), 20, "{kind:?}");
    }
}

/// By `ext_proc`, the gateway sees the end of the response; by the others it does not.
#[test]
fn record_has_what_was_seen_of_the_response() {
    for kind in Kind::all() {
        let setup = Setup::start(kind);
        for (method, status) in [("GET", 200), ("GET", 404), ("HEAD", 200)] {
            assert_eq!(setup.request(method, &format!("/reads/own/{status}"), &[], b"").status, status);
            let record = setup.gateway.records().remove(0);
            let expected = match (kind, method) {
                (Kind::EnvoyExtProc, "HEAD") => (Outcome::Completed, Some(status)),
                (Kind::EnvoyExtProc, _) => (Outcome::Decided, Some(status)),
                _ => (Outcome::Decided, None),
            };
            assert_eq!((record.outcome, record.status), expected, "{kind:?}: {method}");
        }
    }
}
