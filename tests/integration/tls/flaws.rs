//! Certificates that the other side refuses: each flaw in words, with its cure, wherever it is met.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use platform::outbound::Server;
use platform::tls::{CertificateFiles, ClientSettings, ClientTls, Error, ServerTls};
use rcgen::{BasicConstraints, CertificateParams, IsCa, date_time_ymd};

use super::authority::{Authority, Issued, settings};
use super::upstream::TlsUpstream;

/// Certifies `localhost`, with a change.
fn certify(authority: &Authority, change: impl FnOnce(&mut CertificateParams)) -> Issued {
    authority.certify_with(&["localhost"], &rcgen::PKCS_ECDSA_P256_SHA256, change)
}

fn expire(params: &mut CertificateParams) {
    params.not_after = date_time_ymd(2020, 1, 1);
    params.not_before = date_time_ymd(2019, 1, 1);
}

fn begin_later(params: &mut CertificateParams) {
    params.not_before = date_time_ymd(2090, 1, 1);
}

fn become_authority(params: &mut CertificateParams) {
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
}

/// A certificate of version 1, as `openssl x509 -req` makes without extensions.
fn of_version_1(dir: &Path) -> CertificateFiles {
    let script = "openssl req -newkey rsa:2048 -nodes -subj /CN=localhost -keyout v1.key -out v1.csr && openssl x509 \
                  -req -in v1.csr -signkey v1.key -days 30 -out v1.pem";
    let made = Command::new("sh").args(["-c", script]).current_dir(dir).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    CertificateFiles { chain: dir.join("v1.pem"), key: dir.join("v1.key") }
}

/// The error of a connection to a server with this certificate.
fn refused(certificate: CertificateFiles, ca: &Path) -> String {
    let server = TlsUpstream::start(&settings(vec![certificate]));
    let client = ClientSettings { ca: Some(ca.to_owned()), identity: None };
    let tls = Some(Arc::new(ClientTls::open(&client, &[]).unwrap()));
    let server = Server { host: "localhost".into(), port: server.address.port(), tls };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let error = runtime.block_on(server.connect()).err().expect("it is refused");
    platform::outbound::delivery::in_full(&error)
}

/// Asserts that a text has no identifier of the library, such as `CaUsedAsEndEntity`.
#[track_caller]
fn assert_words(text: &str) {
    let is_identifier = |word: &str| word.len() > 5 && word.chars().skip(1).any(char::is_uppercase);
    let paths = |word: &&str| word.contains('/');
    let words = text.split_whitespace().filter(|word| !paths(word));
    let word = words.flat_map(|word| word.split(|c: char| !c.is_alphanumeric())).find(|word| {
        is_identifier(word) && word.chars().any(char::is_lowercase) && !["basicConstraints"].contains(word)
    });
    assert_eq!(word, None, "{text}");
}

#[test]
fn flaw_of_a_servers_certificate_is_said_in_words() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let ca = authority.write(&dir.path().join("ca.pem"));
    let other_ca = Authority::new().write(&dir.path().join("other.pem"));
    let issued = |name: &str, change: fn(&mut CertificateParams)| certify(&authority, change).write(dir.path(), name);
    let cases = [
        (refused(issued("a", expire), &ca), "the certificate expired at 2020-01-01T00:00:00Z; renew it"),
        (refused(issued("b", begin_later), &ca), "not valid before 2090-01-01T00:00:00Z; use the one before it"),
        (refused(issued("c", become_authority), &ca), "an authority's (CA:TRUE), and no server's own; make one with"),
        (refused(issued("d", |_| {}), &other_ca), "no authority that is trusted here has issued"),
        (refused(authority.certify(&["b.test"]).write(dir.path(), "e"), &ca), "not for localhost, but for b.test"),
    ];
    for (text, expected) in cases {
        assert!(text.contains(expected), "{text}");
        assert_words(&text);
    }
}

#[test]
fn flaw_of_an_own_certificate_is_an_error_of_the_configuration() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let good = certify(&authority, |_| {}).write(dir.path(), "good");
    let other = certify(&authority, |_| {}).write(dir.path(), "other");
    let of_version_1 = of_version_1(dir.path());
    let mismatch = CertificateFiles { chain: good.chain.clone(), key: other.key.clone() };
    let error = |files: CertificateFiles| files.check().unwrap_err().in_full();
    for (text, expected) in [
        (error(of_version_1.clone()), "the certificate is of version 1; make one of version 3"),
        (error(mismatch), "do not belong together: the key is not that of the first certificate"),
    ] {
        assert!(text.contains(expected), "{text}");
        assert_words(&text);
    }
    let client = ClientSettings { ca: None, identity: Some(of_version_1) };
    assert!(client.config().unwrap_err().in_full().contains("version 1"));
}

/// A store of one certificate, and the file.
fn store(dir: &Path, issued: &Issued) -> ServerTls {
    ServerTls::open(&settings(vec![issued.write(dir, "a")])).unwrap()
}

fn presented(store: &ServerTls) -> i64 {
    store.expiries()[0].not_after
}

#[test]
fn valid_certificate_is_not_replaced_by_one_that_is_over() {
    let authority = Authority::new();
    let (good, better) =
        (certify(&authority, |_| {}), certify(&authority, |params| params.not_after = date_time_ymd(2050, 1, 1)));
    for flaw in [expire as fn(&mut CertificateParams), begin_later] {
        let dir = tempfile::tempdir().unwrap();
        let bad = certify(&authority, flaw);
        let active = store(dir.path(), &good);
        let before = presented(&active);
        bad.write(dir.path(), "a");
        assert!(active.reload().unwrap().is_empty());
        let error = active.reload().unwrap_err();
        assert!(matches!(error, Error::Outdated { .. }), "{error}");
        assert_words(&error.in_full());
        assert_eq!(presented(&active), before);
        // Another file in the same place is refused as well, by a reload of the configuration.
        let moved = settings(vec![bad.write(dir.path(), "moved")]);
        assert!(matches!(active.prepare(&moved), Err(Error::Outdated { .. })));
        better.write(dir.path(), "a");
        assert_eq!(active.reload().unwrap().len(), 2);
        assert_ne!(presented(&active), before);
    }
    // In the place of one that is over, a newer one is better than none.
    let dir = tempfile::tempdir().unwrap();
    let active = store(dir.path(), &certify(&authority, expire));
    let before = presented(&active);
    certify(&authority, |params| {
        expire(params);
        params.not_after = date_time_ymd(2021, 1, 1);
    })
    .write(dir.path(), "a");
    assert_eq!(active.reload().unwrap().len(), 2);
    assert_ne!(presented(&active), before);
}

#[test]
fn certificates_that_are_refused_elsewhere_are_warnings_of_check() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    certify(&authority, expire).write(dir.path(), "old");
    certify(&authority, become_authority).write(dir.path(), "ca");
    certify(&authority, begin_later).write(dir.path(), "client");
    let ca = authority.write(&dir.path().join("authority.pem"));
    let text = format!(
        "listen: [{{ address: 127.0.0.1:0, tls: {{ certificates: [{{ chain: old.pem, key: old.key }}, {{ chain: \
         ca.pem, key: ca.key }}] }} }}]
admin: {{ socket: s, address: 127.0.0.1:1 }}
upstream: {{ endpoints: ['https://127.0.0.1:1'], tls: {{ ca: '{}', certificate: client.pem, key: client.key }} }}
state: {{ embedded: {{ path: state.db }} }}
audit: {{ low_water: 0%, path: audit }}
",
        ca.display()
    );
    let config = dir.path().join("keygate.yaml");
    fs::write(&config, text).unwrap();
    let checked = Command::new(env!("CARGO_BIN_EXE_keygate")).arg("check").arg("--config").arg(&config).output();
    let checked = checked.unwrap();
    assert!(checked.status.success(), "a gateway starts with them: {checked:?}");
    let notes = String::from_utf8(checked.stderr).unwrap();
    for (file, expected) in [
        ("old.pem", "expired at 2020-01-01T00:00:00Z; renew it"),
        ("ca.pem", "an authority's (CA:TRUE)"),
        ("client.pem", "not valid before 2090-01-01T00:00:00Z"),
    ] {
        let line = notes.lines().find(|line| line.contains(&format!("/{file}")) && line.contains(expected));
        assert!(line.is_some(), "{file}: {notes}");
    }
    assert!(!notes.contains("authority.pem"), "{notes}");
    assert_words(&notes.replace(&dir.path().display().to_string(), ""));
}
