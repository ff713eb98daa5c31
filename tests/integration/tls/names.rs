//! Which certificate a client sees.

use std::sync::Arc;

use keygate::tls::{Error, ServerTls};
use rustls::SignatureScheme;
use rustls::crypto::WebPkiSupportedAlgorithms;

use super::authority::{Authority, Issued, settings};
use super::handshake::shake;

/// Certificates for these lists of names, in this order, and a store of them.
fn store_of<const N: usize>(authority: &Authority, names: [&[&str]; N]) -> ([Issued; N], ServerTls) {
    let dir = tempfile::tempdir().unwrap();
    let issued = names.map(|names| authority.certify(names));
    let pairs = issued.iter().enumerate().map(|(number, issued)| issued.write(dir.path(), &number.to_string()));
    let store = ServerTls::open(&settings(pairs.collect())).unwrap();
    (issued, store)
}

#[test]
fn the_name_that_the_client_asks_for_picks_the_certificate() {
    let authority = Authority::new();
    let names: [&[&str]; 3] =
        [&["first.test"], &["a.test", "Mixed.Test", "exact.wild.test"], &["*.wild.test", "b.test"]];
    let ([first, second, third], store) = store_of(&authority, names);
    let shown = |name: &str| shake(&store, authority.client(), name).unwrap().certificate;
    assert_eq!(shown("first.test"), first.der());
    assert_eq!(shown("a.test"), second.der());
    assert_eq!(shown("A.TEST"), second.der(), "names have no case");
    assert_eq!(shown("mixed.test"), second.der(), "nor have those of certificates");
    assert_eq!(shown("b.test"), third.der());
    assert_eq!(shown("any.wild.test"), third.der());
    assert_eq!(shown("exact.wild.test"), second.der(), "the exact name goes before the wildcard");
}

/// What the store shows to a client that takes whatever it is shown.
fn shown_to_anyone(store: &ServerTls, name: &str, sni: bool) -> Vec<u8> {
    let (mut client, seen) = credulous();
    client.enable_sni = sni;
    shake(store, client, name).unwrap();
    let shown = seen.lock().unwrap();
    shown.clone()
}

#[test]
fn a_client_that_asks_for_no_name_that_there_is_gets_the_first() {
    let authority = Authority::new();
    let ([first, _], store) = store_of(&authority, [&["first.test"], &["*.wild.test", "other.test"]]);
    assert_eq!(shown_to_anyone(&store, "other.test", false), first.der().to_vec(), "no name is asked for");
    assert_eq!(shown_to_anyone(&store, "unknown.test", true), first.der().to_vec());
    assert_eq!(shown_to_anyone(&store, "wild.test", true), first.der().to_vec(), "a wildcard is one label, not none");
    assert_eq!(shown_to_anyone(&store, "a.b.wild.test", true), first.der().to_vec(), "and not two");
}

#[test]
fn of_several_for_one_name_the_client_gets_one_that_it_can_verify() {
    let authority = Authority::new();
    let dir = tempfile::tempdir().unwrap();
    let p256 = authority.certify(&["a.test"]);
    let p384 = authority.certify_with(&["a.test"], &rcgen::PKCS_ECDSA_P384_SHA384, |_| {});
    let pairs = vec![p256.write(dir.path(), "p256"), p384.write(dir.path(), "p384")];
    let store = ServerTls::open(&settings(pairs)).unwrap();
    assert_eq!(shake(&store, authority.client(), "a.test").unwrap().certificate, p256.der());
    let (mut client, seen) = credulous();
    client.dangerous().set_certificate_verifier(Arc::new(Credulous {
        seen: Arc::clone(&seen),
        schemes: vec![SignatureScheme::ECDSA_NISTP384_SHA384],
        algorithms: algorithms(),
    }));
    shake(&store, client, "a.test").unwrap();
    assert_eq!(*seen.lock().unwrap(), p384.der().to_vec());
}

#[test]
fn a_certificate_that_nobody_can_ask_for_is_refused() {
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

/// Takes whatever it is shown, and remembers it.
#[derive(Debug)]
struct Credulous {
    seen: Shown,
    schemes: Vec<SignatureScheme>,
    algorithms: WebPkiSupportedAlgorithms,
}

fn algorithms() -> WebPkiSupportedAlgorithms {
    rustls::crypto::aws_lc_rs::default_provider().signature_verification_algorithms
}

fn credulous() -> (rustls::ClientConfig, Shown) {
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
