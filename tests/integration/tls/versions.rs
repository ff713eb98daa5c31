//! Versions, suites, groups and protocols.

use std::sync::Arc;

use platform::tls::{ServerSettings, ServerTls, Version};
use rustls::pki_types::ServerName;
use rustls::version::{TLS12, TLS13};
use rustls::{CipherSuite, Error, NamedGroup, ProtocolVersion, SupportedCipherSuite};
use tokio_rustls::TlsConnector;

use super::authority::{Authority, settings};
use super::handshake::handshake;

fn store(authority: &Authority, minimum: Version) -> ServerTls {
    let dir = tempfile::tempdir().unwrap();
    let pair = authority.certify(&["a.test"]).write(dir.path(), "a");
    ServerTls::open(&ServerSettings { minimum, ..settings(vec![pair]) }).unwrap()
}

#[test]
fn versions_below_the_minimum_are_refused() {
    let authority = Authority::new();
    let spoken = |minimum, version| {
        let client = authority.client_with_versions(&[version]);
        handshake(&store(&authority, minimum), client, "a.test").map(|seen| seen.version)
    };
    assert_eq!(spoken(Version::Tls12, &TLS12).unwrap(), ProtocolVersion::TLSv1_2);
    assert_eq!(spoken(Version::Tls12, &TLS13).unwrap(), ProtocolVersion::TLSv1_3);
    assert_eq!(spoken(Version::Tls13, &TLS13).unwrap(), ProtocolVersion::TLSv1_3);
    let refused = spoken(Version::Tls13, &TLS12).unwrap_err();
    assert!(matches!(refused, Error::PeerIncompatible(_)), "{refused:?}");
}

#[test]
fn alpn_selects_our_preferred_protocol() {
    let authority = Authority::new();
    let store = store(&authority, Version::Tls12);
    let agreed = |offered: &[&[u8]]| {
        let mut client = authority.client();
        client.alpn_protocols = offered.iter().map(|protocol| protocol.to_vec()).collect();
        handshake(&store, client, "a.test").map(|seen| seen.protocol)
    };
    assert_eq!(agreed(&[b"http/1.1", b"h2"]).unwrap().as_deref(), Some(&b"h2"[..]));
    assert_eq!(agreed(&[b"http/1.1"]).unwrap().as_deref(), Some(&b"http/1.1"[..]));
    assert_eq!(agreed(&[]).unwrap(), None);
    let refused = agreed(&[b"h3", b"smtp"]).unwrap_err();
    assert!(matches!(refused, Error::NoApplicationProtocol), "{refused:?}");
}

#[test]
fn suites_and_groups_are_those_of_the_intermediate_recommendation() {
    let authority = Authority::new();
    let store = store(&authority, Version::Tls12);
    let acceptor = store.acceptor();
    let provider = acceptor.config().crypto_provider();
    let mut suites: Vec<CipherSuite> = provider.cipher_suites.iter().map(|suite| suite.suite()).collect();
    // Mozilla, "Server Side TLS", version 5.7 and later, without its DHE suites.
    let listed = [
        CipherSuite::TLS13_AES_128_GCM_SHA256,
        CipherSuite::TLS13_AES_256_GCM_SHA384,
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256,
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
        CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
        CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
        CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
        CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
    ];
    suites.retain(|suite| !listed.contains(suite));
    assert!(suites.is_empty(), "{suites:?} are not listed");
    assert_eq!(provider.cipher_suites.len(), listed.len());
    let mut groups: Vec<NamedGroup> = provider.kx_groups.iter().map(|group| group.name()).collect();
    let listed = [NamedGroup::X25519MLKEM768, NamedGroup::X25519, NamedGroup::secp256r1, NamedGroup::secp384r1];
    groups.retain(|group| !listed.contains(group));
    assert!(groups.is_empty(), "{groups:?} are not listed");
}

/// The suite of a handshake with a client that offers these, in its order.
fn agreed(store: &ServerTls, authority: &Authority, offered: &[SupportedCipherSuite]) -> CipherSuite {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let connector = TlsConnector::from(Arc::new(authority.client_with_suites(offered)));
    let (client, server) = tokio::io::duplex(64 * 1024);
    let name = ServerName::try_from("a.test").unwrap();
    let (client, server) =
        runtime.block_on(async { tokio::join!(connector.connect(name, client), store.accept(server)) });
    drop(client.unwrap());
    server.unwrap().get_ref().1.negotiated_cipher_suite().unwrap().suite()
}

#[test]
fn aes_128_is_preferred_unless_the_client_prefers_chacha() {
    use rustls::crypto::aws_lc_rs::cipher_suite as suite;
    let authority = Authority::new();
    let store = store(&authority, Version::Tls12);
    let aes_128 = suite::TLS13_AES_128_GCM_SHA256;
    let aes_256 = suite::TLS13_AES_256_GCM_SHA384;
    let chacha = suite::TLS13_CHACHA20_POLY1305_SHA256;
    let agreed = |offered: &[SupportedCipherSuite]| agreed(&store, &authority, offered);
    assert_eq!(agreed(&[aes_256, chacha, aes_128]), aes_128.suite());
    assert_eq!(agreed(&[aes_256, chacha]), aes_256.suite());
    assert_eq!(agreed(&[chacha, aes_128]), chacha.suite());
    let old_128 = suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256;
    let old_256 = suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384;
    let old_chacha = suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256;
    assert_eq!(agreed(&[old_256, old_chacha, old_128]), old_128.suite());
    assert_eq!(agreed(&[old_chacha, old_256]), old_chacha.suite());
}
