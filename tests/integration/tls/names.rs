//! Selection of the certificate that a client gets.

use std::sync::Arc;

use platform::tls::{Error, ServerTls};
use rustls::SignatureScheme;
use rustls::crypto::WebPkiSupportedAlgorithms;

use super::authority::{Authority, Issued, settings};
use super::handshake::handshake;

/// Certificates for these lists of names, in this order, and a listener's TLS with them.
fn store_of<const N: usize>(authority: &Authority, names: [&[&str]; N]) -> ([Issued; N], ServerTls) {
    let dir = tempfile::tempdir().unwrap();
    let issued = names.map(|names| authority.certify(names));
    let pairs = issued.iter().enumerate().map(|(number, issued)| issued.write(dir.path(), &number.to_string()));
    let store = ServerTls::open(&settings(pairs.collect())).unwrap();
    (issued, store)
}

#[test]
fn certificate_is_selected_by_the_requested_name() {
    let authority = Authority::new();
    let names: [&[&str]; 3] =
        [&["first.test"], &["a.test", "Mixed.Test", "exact.wild.test"], &["*.wild.test", "b.test"]];
    let ([first, second, third], store) = store_of(&authority, names);
    let shown = |name: &str| handshake(&store, authority.client(), name).unwrap().certificate;
    assert_eq!(shown("first.test"), first.der());
    assert_eq!(shown("a.test"), second.der());
    assert_eq!(shown("A.TEST"), second.der(), "requested names have no case");
    assert_eq!(shown("mixed.test"), second.der(), "names of certificates have no case");
    assert_eq!(shown("b.test"), third.der());
    assert_eq!(shown("any.wild.test"), third.der());
    assert_eq!(shown("exact.wild.test"), second.der(), "the exact name takes precedence over the wildcard");
}

/// The certificate that a client gets which accepts any.
fn presented(store: &ServerTls, name: &str, sni: bool) -> Vec<u8> {
    let (mut client, seen) = client_that_accepts_any();
    client.enable_sni = sni;
    handshake(store, client, name).unwrap();
    let shown = seen.lock().unwrap();
    shown.clone()
}

#[test]
fn client_without_a_known_name_gets_the_first_certificate() {
    let authority = Authority::new();
    let ([first, _], store) = store_of(&authority, [&["first.test"], &["*.wild.test", "other.test"]]);
    assert_eq!(presented(&store, "other.test", false), first.der().to_vec(), "without a name");
    assert_eq!(presented(&store, "unknown.test", true), first.der().to_vec());
    assert_eq!(presented(&store, "wild.test", true), first.der().to_vec(), "a wildcard is one label, not none");
    assert_eq!(presented(&store, "a.b.wild.test", true), first.der().to_vec(), "a wildcard is one label, not two");
}

#[test]
fn certificate_that_the_client_can_verify_is_selected_among_those_of_one_name() {
    let authority = Authority::new();
    let dir = tempfile::tempdir().unwrap();
    let p256 = authority.certify(&["a.test"]);
    let p384 = authority.certify_with(&["a.test"], &rcgen::PKCS_ECDSA_P384_SHA384, |_| {});
    let pairs = vec![p256.write(dir.path(), "p256"), p384.write(dir.path(), "p384")];
    let store = ServerTls::open(&settings(pairs)).unwrap();
    assert_eq!(handshake(&store, authority.client(), "a.test").unwrap().certificate, p256.der());
    let (mut client, seen) = client_that_accepts_any();
    client.dangerous().set_certificate_verifier(Arc::new(Credulous {
        seen: Arc::clone(&seen),
        schemes: vec![SignatureScheme::ECDSA_NISTP384_SHA384],
        algorithms: algorithms(),
    }));
    handshake(&store, client, "a.test").unwrap();
    assert_eq!(*seen.lock().unwrap(), p384.der().to_vec());
}

#[test]
fn certificate_without_a_name_is_refused_after_the_first() {
    let authority = Authority::new();
    let dir = tempfile::tempdir().unwrap();
    let nameless = authority.certify(&["192.0.2.1"]).write(dir.path(), "nameless");
    let named = authority.certify(&["a.test"]).write(dir.path(), "named");
    assert!(ServerTls::open(&settings(vec![nameless.clone(), named.clone()])).is_ok(), "the first needs no name");
    let Err(error) = ServerTls::open(&settings(vec![named, nameless.clone()])) else { panic!("refused") };
    assert!(matches!(&error, Error::MissingName(path) if *path == nameless.chain), "{error}");
    assert!(matches!(ServerTls::open(&settings(Vec::new())), Err(Error::NoCertificates)));
}

type Shown = Arc<std::sync::Mutex<Vec<u8>>>;

/// Accepts any certificate, and keeps it.
#[derive(Debug)]
struct Credulous {
    seen: Shown,
    schemes: Vec<SignatureScheme>,
    algorithms: WebPkiSupportedAlgorithms,
}

fn algorithms() -> WebPkiSupportedAlgorithms {
    rustls::crypto::aws_lc_rs::default_provider().signature_verification_algorithms
}

fn client_that_accepts_any() -> (rustls::ClientConfig, Shown) {
    let seen = Shown::default();
    let mut client = Authority::new().client();
    client.dangerous().set_certificate_verifier(Arc::new(Credulous {
        seen: Arc::clone(&seen),
        schemes: algorithms().supported_schemes(),
        algorithms: algorithms(),
    }));
    (client, seen)
}

impl rustls::client::danger::ServerCertVerifier for Credulous {
    fn verify_server_cert(
        &self,
        certificate: &rustls::pki_types::CertificateDer<'_>,
        _: &[rustls::pki_types::CertificateDer<'_>],
        _: &rustls::pki_types::ServerName<'_>,
        _: &[u8],
        _: rustls::pki_types::UnixTime,
    ) -> Result<rustls::client::danger::ServerCertVerified, rustls::Error> {
        *self.seen.lock().unwrap() = certificate.to_vec();
        Ok(rustls::client::danger::ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &rustls::pki_types::CertificateDer<'_>,
        signature: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &rustls::pki_types::CertificateDer<'_>,
        signature: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes.clone()
    }
}
