//! Client certificates.

use std::path::Path;

use keygate::tls::{ClientAuth, ServerSettings, ServerTls};
use rustls::version::{TLS12, TLS13};
use rustls::{CertificateError, Error};

use super::authority::{Authority, settings};
use super::handshake::shake;

/// A listener whose clients must be certified by `ca`.
fn store(dir: &Path, server: &Authority, ca: &Authority, required: bool) -> ServerTls {
    let pair = server.certify(&["a.test"]).write(dir, "a");
    let client_auth = Some(ClientAuth { ca: ca.write(&dir.join("clients.pem")), required });
    ServerTls::open(&ServerSettings { client_auth, ..settings(vec![pair]) }).unwrap()
}

#[test]
fn a_client_is_who_the_authority_says() {
    let dir = tempfile::tempdir().unwrap();
    let (server, ca, stranger) = (Authority::new(), Authority::new(), Authority::new());
    let client = ca.certify(&["client.test"]);
    for required in [true, false] {
        let store = store(dir.path(), &server, &ca, required);
        for version in [&TLS12, &TLS13] {
            let shown = shake(&store, server.client_showing(&client, &[version]), "a.test").unwrap();
            assert_eq!(shown.client, Some(client.der()));
            let strange = stranger.certify(&["client.test"]);
            let refused = shake(&store, server.client_showing(&strange, &[version]), "a.test").unwrap_err();
            let unknown = Error::InvalidCertificate(CertificateError::UnknownIssuer);
            assert_eq!(refused, unknown);
        }
    }
}

#[test]
fn a_client_without_a_certificate_is_refused_where_one_is_required() {
    let dir = tempfile::tempdir().unwrap();
    let (server, ca) = (Authority::new(), Authority::new());
    for version in [&TLS12, &TLS13] {
        let required = store(dir.path(), &server, &ca, true);
        let refused = shake(&required, server.client_speaking(&[version]), "a.test").unwrap_err();
        assert_eq!(refused, Error::NoCertificatesPresented);
        let optional = store(dir.path(), &server, &ca, false);
        assert_eq!(shake(&optional, server.client_speaking(&[version]), "a.test").unwrap().client, None);
    }
}

#[test]
fn a_client_is_not_asked_where_no_authority_is_configured() {
    let dir = tempfile::tempdir().unwrap();
    let (server, ca) = (Authority::new(), Authority::new());
    let pair = server.certify(&["a.test"]).write(dir.path(), "a");
    let store = ServerTls::open(&settings(vec![pair])).unwrap();
    let client = server.client_showing(&ca.certify(&["client.test"]), rustls::DEFAULT_VERSIONS);
    assert_eq!(shake(&store, client, "a.test").unwrap().client, None);
}
