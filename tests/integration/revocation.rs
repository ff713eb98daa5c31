//! Revocation takes effect at once.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::{Client, Gateway, SetOnDrop, Upstream, head};

/// Revokes a thousand keys, each while it is being used on other connections: as soon as the revocation has returned,
/// no request that begins is admitted.
#[test]
fn revoked_key_is_refused_at_once_under_load() {
    let upstream = Upstream::start();
    let limits = "limits: { key: { requests: 1000000, per: 1s }, bad_keys: { requests: 1000000, per: 1s } }";
    let gateway = Gateway::with(&[upstream.address], limits);
    let user = gateway.key();
    let keys: Vec<_> = (0..1000).map(|_| gateway.another_key(&user)).collect();
    let stop = AtomicBool::new(false);
    let current = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let _over = SetOnDrop(&stop);
        for _ in 0..2 {
            scope.spawn(|| {
                let mut client = Client::connect(gateway.address);
                while !stop.load(Ordering::SeqCst) {
                    let key = &keys[current.load(Ordering::SeqCst)].text;
                    let sent = client.try_send(head("GET", "/load", key, &[], 0));
                    match sent.and_then(|()| client.try_response_to("GET")) {
                        // A connection with many refusals in a row closes.
                        Ok(response) if response.header("connection") == Some("close") => {
                            client = Client::connect(gateway.address);
                        }
                        Ok(response) => assert!(matches!(response.status, 200 | 401), "{}", response.status),
                        // In flight when its key was revoked, the request was reset.
                        Err(_) => client = Client::connect(gateway.address),
                    }
                }
            });
        }
        let mut client = Client::connect(gateway.address);
        let mut admitted = 0;
        for (index, key) in keys.iter().enumerate() {
            current.store(index, Ordering::SeqCst);
            assert_eq!(client.get("/before", &key.text).status, 200);
            gateway.revoke(key);
            admitted += usize::from(client.get("/after", &key.text).status == 200);
        }
        stop.store(true, Ordering::SeqCst);
        assert_eq!(admitted, 0, "requests were admitted after the revocation had returned");
    });
    assert!(!upstream.received().iter().any(|request| request.path() == "/after"));
}

#[test]
fn rotated_key_has_two_secrets_until_the_deadline() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let first = gateway.key();
    let mut client = Client::connect(gateway.address);
    let second = gateway.rotate(&first, None);
    assert_eq!(second.id, first.id);
    assert_eq!(client.get("/", &first.text).status, 401);
    assert_eq!(client.get("/", &second.text).status, 200);
    let third = gateway.rotate(&second, Some(std::time::Duration::from_secs(3600)));
    for (key, status) in [(&first, 401), (&second, 200), (&third, 200)] {
        assert_eq!(client.get("/", &key.text).status, status);
    }
    gateway.revoke(&third);
    for key in [&first, &second, &third] {
        assert_eq!(client.get("/", &key.text).status, 401);
    }
}
