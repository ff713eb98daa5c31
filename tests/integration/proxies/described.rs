//! Facts of a question besides method and target: the host, and the credential.

use super::{Kind, Setup};
use crate::support::upstream::Received;

/// The host that a question describes: Traefik has it in a field, the others in `Host`.
fn host(kind: Kind, question: &Received) -> Option<&str> {
    question.header(if kind == Kind::Traefik { "x-forwarded-host" } else { "host" })
}

#[test]
fn host_of_the_question_is_that_of_the_upstream() {
    let cases = [
        ("/a", "gateway.test", &[][..]),
        ("/a", "Gateway.test:8443", &[]),
        ("/a", "gateway.test", &[("X-Forwarded-Host", "forged.test")]),
        ("http://other.test/a", "gateway.test", &[("X-Host", "forged.test")]),
        ("http://other.test:81/a", "gateway.test", &[]),
    ];
    for kind in Kind::over_http() {
        let setup = Setup::start(kind);
        for (target, named, others) in cases {
            let before = setup.upstream.count();
            let mut request = format!("GET {target} HTTP/1.1\r\nHost: {named}\r\nAuthorization: Bearer good\r\n");
            for (name, value) in others {
                request += &format!("{name}: {value}\r\n");
            }
            let response = setup.proxy.client().send(request + "\r\n").response();
            if setup.upstream.count() == before {
                assert_eq!(response.status, 400, "{kind:?}: {target} {named}");
                continue;
            }
            let (question, received) = (setup.decisions.last(), setup.upstream.last());
            println!("{kind:?}: {target} {named}: {:?} {:?}", host(kind, &question), received.header("host"));
            assert_eq!(host(kind, &question), received.header("host"), "{kind:?}: {target} {named}");
            assert_ne!(received.header("x-forwarded-host"), Some("forged.test"), "{kind:?}");
        }
    }
}

/// keygate refuses two credentials: no proxy may show it one of them.
#[test]
fn two_credentials_are_never_shown_as_one() {
    for kind in Kind::over_http() {
        let setup = Setup::start(kind);
        for (first, second) in [("good", "bad"), ("bad", "good"), ("good", "good")] {
            let before = setup.decisions.count();
            let other = [("authorization", format!("Bearer {second}"))];
            let other = other.each_ref().map(|(name, value)| (*name, value.as_str()));
            let response = setup.proxy.client().request("GET", "/plain", first, &other, b"");
            let shown = (setup.decisions.count() > before).then(|| setup.decisions.last());
            let values = shown.iter().flat_map(|question| &question.headers);
            let values: Vec<_> = values.filter(|(name, _)| name.eq_ignore_ascii_case("authorization")).collect();
            println!("{kind:?}: {first}, {second}: {} {values:?}", response.status);
            assert!([400, 401].contains(&response.status), "{kind:?}: {first}, {second}: {values:?}");
        }
        assert_eq!(setup.upstream.count(), 0, "{kind:?}");
    }
}
