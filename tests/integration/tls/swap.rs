//! Certificates that are replaced while clients come and go.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::client::TlsClient;
use super::downstream::Encrypted;
use crate::support::{SetOnDrop, eventually};

/// Clients that connect all the time.
const CLIENTS: usize = 4;
const SWAPS: usize = 50;

#[test]
fn open_connection_goes_on_when_new_ones_get_another_certificate() {
    let encrypted = Encrypted::start();
    let key = encrypted.gateway.key();
    let mut old = encrypted.connect();
    assert_eq!(old.get("/", &key.text).unwrap().status, 200);
    let new = encrypted.authority.certify(&["a.test"]);
    new.write(encrypted.dir.path(), "a");
    encrypted.gateway.reload_certificates();
    assert_eq!(encrypted.connect().certificate(), new.der());
    assert_eq!(old.certificate(), encrypted.shown.der());
    assert_eq!(old.get("/", &key.text).unwrap().status, 200);
}

#[test]
fn changed_files_are_noticed_without_a_reload() {
    let encrypted = Encrypted::start();
    assert_eq!(encrypted.connect().certificate(), encrypted.shown.der());
    let new = encrypted.authority.certify(&["a.test"]);
    new.write(encrypted.dir.path(), "a");
    eventually("the new certificate is used", || encrypted.connect().certificate() == new.der());
}

#[test]
fn other_files_are_used_when_the_configuration_names_them() {
    let encrypted = Encrypted::start();
    let key = encrypted.gateway.key();
    let mut old = encrypted.connect();
    let new = encrypted.authority.certify(&["a.test"]);
    new.write(encrypted.dir.path(), "b");
    encrypted.gateway.reconfigure(|text| text.replace("/a.pem", "/b.pem").replace("/a.key", "/b.key"));
    eventually("the new certificate is used", || encrypted.connect().certificate() == new.der());
    assert_eq!(old.get("/", &key.text).unwrap().status, 200);
    // The new files are also the ones that are reloaded from now on.
    let newer = encrypted.authority.certify(&["a.test"]);
    newer.write(encrypted.dir.path(), "b");
    encrypted.gateway.reload_certificates();
    assert_eq!(encrypted.connect().certificate(), newer.der());
}

#[test]
fn no_handshake_fails_while_certificates_are_swapped() {
    let encrypted = Encrypted::start();
    let key = encrypted.gateway.key();
    let config = Arc::new({
        let mut config = encrypted.authority.client();
        // A resumed session would present no certificate.
        config.resumption = rustls::client::Resumption::disabled();
        config
    });
    let (done, exchanges) = (AtomicBool::new(false), AtomicUsize::new(0));
    let connect = || TlsClient::connect(encrypted.gateway.address, Arc::clone(&config), "a.test");
    let mut kept = connect().unwrap();
    std::thread::scope(|scope| {
        let _over = SetOnDrop(&done);
        let client = || {
            let mut failed = Vec::new();
            while !done.load(Ordering::Relaxed) {
                match connect().and_then(|mut client| client.get("/", &key.text)) {
                    Ok(response) => assert_eq!(response.status, 200),
                    Err(error) => failed.push(error),
                }
                exchanges.fetch_add(1, Ordering::Relaxed);
            }
            failed
        };
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(client)).collect();
        for _ in 0..SWAPS {
            let new = encrypted.authority.certify(&["a.test"]);
            new.write(encrypted.dir.path(), "a");
            encrypted.gateway.reload_certificates();
            assert_eq!(connect().unwrap().certificate(), new.der());
            assert_eq!(kept.get("/", &key.text).unwrap().status, 200);
            let before = exchanges.load(Ordering::Relaxed);
            eventually("clients have come and gone", || exchanges.load(Ordering::Relaxed) >= before + CLIENTS);
        }
        done.store(true, Ordering::Relaxed);
        for client in clients {
            let failed = client.join().unwrap();
            assert!(failed.is_empty(), "{failed:?}");
        }
    });
}
