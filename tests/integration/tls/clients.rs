//! Client certificates.

use std::path::Path;

use platform::tls::{ClientAuth, ServerSettings, ServerTls};
use rustls::version::{TLS12, TLS13};
use rustls::{CertificateError, Error};

use super::authority::{Authority, settings};
use super::handshake::handshake;

/// A listener whose clients must be certified by `ca`.
fn store(dir: &Path, server: &Authority, ca: &Authority, required: bool) -> ServerTls {
    let pair = server.certify(&["a.test"]).write(dir, "a");
    let client_auth = Some(ClientAuth { ca: ca.write(&dir.join("clients.pem")), required });
    ServerTls::open(&ServerSettings { client_auth, ..settings(vec![pair]) }).unwrap()
}

#[test]
fn client_certificate_of_the_authority_is_accepted_and_others_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (server, ca, stranger) = (Authority::new(), Authority::new(), Authority::new());
    let client = ca.certify(&["client.test"]);
    for required in [true, false] {
        let store = store(dir.path(), &server, &ca, required);
        for version in [&TLS12, &TLS13] {
            let shown = handshake(&store, server.client_with_certificate(&client, &[version]), "a.test").unwrap();
            assert_eq!(shown.client, Some(client.der()));
            let strange = stranger.certify(&["client.test"]);
            let refused =
                handshake(&store, server.client_with_certificate(&strange, &[version]), "a.test").unwrap_err();
            let unknown = Error::InvalidCertificate(CertificateError::UnknownIssuer);
            assert_eq!(refused, unknown);
        }
    }
}

#[test]
fn client_without_a_certificate_is_refused_where_one_is_required() {
    let dir = tempfile::tempdir().unwrap();
    let (server, ca) = (Authority::new(), Authority::new());
    for version in [&TLS12, &TLS13] {
        let required = store(dir.path(), &server, &ca, true);
        let refused = handshake(&required, server.client_with_versions(&[version]), "a.test").unwrap_err();
        assert_eq!(refused, Error::NoCertificatesPresented);
        let optional = store(dir.path(), &server, &ca, false);
        assert_eq!(handshake(&optional, server.client_with_versions(&[version]), "a.test").unwrap().client, None);
    }
}

#[test]
fn client_certificate_is_not_requested_without_an_authority() {
    let dir = tempfile::tempdir().unwrap();
    let (server, ca) = (Authority::new(), Authority::new());
    let pair = server.certify(&["a.test"]).write(dir.path(), "a");
    let store = ServerTls::open(&settings(vec![pair])).unwrap();
    let client = server.client_with_certificate(&ca.certify(&["client.test"]), rustls::DEFAULT_VERSIONS);
    assert_eq!(handshake(&store, client, "a.test").unwrap().client, None);
}
