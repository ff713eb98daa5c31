//! Resumption of sessions by tickets, and its limits.

use std::path::Path;
use std::sync::Arc;

use domain::secret::Secret;
use platform::tls::{CertificateFiles, ClientAuth, ServerSettings, ServerTls};
use rustls::pki_types::ServerName;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ClientConnection};

use super::authority::{Authority, settings};
use super::handshake::{handshake, handshake_with};

/// A random secret.
fn secret() -> Secret {
    Secret::new(uuid::Uuid::new_v4().simple().to_string())
}

fn with_key(pair: &CertificateFiles, ticket_key: Option<&Secret>) -> ServerSettings {
    ServerSettings { ticket_key: ticket_key.cloned(), ..settings(vec![pair.clone()]) }
}

/// True if a session that began at the first listener is resumed at the second.
fn resumed(client: ClientConfig, first: &ServerTls, second: &ServerTls) -> bool {
    let client = Arc::new(client);
    assert!(!handshake(first, Arc::clone(&client), "a.test").unwrap().resumed);
    let resumed = handshake(second, Arc::clone(&client), "a.test").unwrap().resumed;
    assert!(handshake(second, client, "a.test").unwrap().resumed, "every session brings a ticket for the next one");
    resumed
}

#[test]
fn session_is_resumed_at_every_instance_with_the_same_ticket_key() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let pair = authority.certify(&["a.test"]).write(dir.path(), "a");
    let instance = |key: Option<&Secret>| ServerTls::open(&with_key(&pair, key)).unwrap();
    let (key, other) = (secret(), secret());
    for version in [&TLS12, &TLS13] {
        let client = || authority.client_with_versions(&[version]);
        assert!(resumed(client(), &instance(Some(&key)), &instance(Some(&key))), "{version:?}");
        assert!(!resumed(client(), &instance(Some(&key)), &instance(Some(&other))), "{version:?}");
        assert!(!resumed(client(), &instance(None), &instance(None)), "{version:?}");
        let alone = instance(None);
        assert!(resumed(client(), &alone, &alone), "{version:?}: one instance needs no key");
    }
}

#[test]
fn early_data_is_never_accepted() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let pair = authority.certify(&["a.test"]).write(dir.path(), "a");
    for key in [None, Some(secret())] {
        let store = ServerTls::open(&with_key(&pair, key.as_ref())).unwrap();
        let mut client = authority.client();
        client.enable_early_data = true;
        let client = Arc::new(client);
        handshake(&store, Arc::clone(&client), "a.test").unwrap();
        let mut again = ClientConnection::new(client, ServerName::try_from("a.test").unwrap()).unwrap();
        assert!(again.early_data().is_none(), "the ticket allows no early data");
        assert!(handshake_with(&store, again).unwrap().resumed);
        assert_eq!(store.acceptor().config().max_early_data_size, 0);
    }
}

/// Settings of a listener that requests client certificates of this authority.
fn asking(dir: &Path, pair: &CertificateFiles, key: Option<&Secret>, ca: &Authority, required: bool) -> ServerSettings {
    let client_auth = Some(ClientAuth { ca: ca.write(&dir.join("clients.pem")), required });
    ServerSettings { client_auth, ..with_key(pair, key) }
}

#[test]
fn session_is_not_resumed_under_stricter_client_authentication() {
    let dir = tempfile::tempdir().unwrap();
    let (authority, ca, other) = (Authority::new(), Authority::new(), Authority::new());
    let pair = authority.certify(&["a.test"]).write(dir.path(), "a");
    let key = secret();
    let open = |settings: &ServerSettings| ServerTls::open(settings).unwrap();
    let no_client_auth = open(&with_key(&pair, Some(&key)));
    let optional = open(&asking(dir.path(), &pair, Some(&key), &ca, false));
    let required = open(&asking(dir.path(), &pair, Some(&key), &ca, true));
    let others = open(&asking(dir.path(), &pair, Some(&key), &other, true));
    let client = Arc::new(authority.client());
    for store in [&no_client_auth, &optional] {
        assert!(!handshake(store, Arc::clone(&client), "a.test").unwrap().resumed);
        assert!(
            handshake(&required, Arc::clone(&client), "a.test").is_err(),
            "a ticket does not replace the certificate"
        );
    }
    let certified =
        Arc::new(authority.client_with_certificate(&ca.certify(&["client.test"]), rustls::DEFAULT_VERSIONS));
    assert!(!handshake(&required, Arc::clone(&certified), "a.test").unwrap().resumed);
    assert!(handshake(&required, Arc::clone(&certified), "a.test").unwrap().resumed);
    assert!(handshake(&others, certified, "a.test").is_err(), "a ticket is bound to the authority");
}

#[test]
fn sessions_outlive_a_change_of_certificates_but_not_of_authorities() {
    let dir = tempfile::tempdir().unwrap();
    let (authority, ca, other) = (Authority::new(), Authority::new(), Authority::new());
    let pair = authority.certify(&["a.test"]).write(dir.path(), "a");
    for key in [None, Some(secret())] {
        let store = ServerTls::open(&asking(dir.path(), &pair, key.as_ref(), &ca, false)).unwrap();
        let certified =
            Arc::new(authority.client_with_certificate(&ca.certify(&["client.test"]), rustls::DEFAULT_VERSIONS));
        assert!(handshake(&store, Arc::clone(&certified), "a.test").unwrap().client.is_some());
        authority.certify(&["a.test"]).write(dir.path(), "a");
        assert_eq!(store.reload().unwrap().len(), 2);
        assert!(handshake(&store, Arc::clone(&certified), "a.test").unwrap().resumed);
        other.write(&dir.path().join("clients.pem"));
        assert_eq!(store.reload().unwrap().len(), 1);
        assert!(handshake(&store, certified, "a.test").is_err(), "the authority was removed");
    }
}
