//! Certificate files that change while they are in use.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use platform::tls::{CertificateFiles, ClientAuth, Error, ServerSettings, ServerTls};

use super::authority::{Authority, Issued, settings};
use super::handshake::handshake;

/// True if the listener presents this certificate for `a.test`.
fn shows(store: &ServerTls, authority: &Authority, issued: &Issued) -> bool {
    handshake(store, authority.client(), "a.test").unwrap().certificate == issued.der()
}

fn error_of(settings: &ServerSettings) -> Error {
    match ServerTls::open(settings) {
        Ok(_) => panic!("it opens"),
        Err(error) => error,
    }
}

#[test]
fn mismatched_or_invalid_files_are_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let good = authority.certify(&["a.test"]).write(dir.path(), "good");
    let other = authority.certify(&["a.test"]).write(dir.path(), "other");
    let file = |name: &str, content: &str| {
        fs::write(dir.path().join(name), content).unwrap();
        dir.path().join(name)
    };
    let (empty, junk) = (file("empty", ""), file("junk", "-----BEGIN CERTIFICATE-----\nAAAA\n"));
    let not_a_certificate = file("no-der", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    let not_a_key = file("no-key", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n");
    let (missing, endless) = (dir.path().join("missing"), Path::new("/dev/zero").to_owned());
    let shown = |path: &Path| path.display().to_string();
    for (chain, key, what) in [
        (&good.chain, &other.key, format!("{} and {} do not belong together", shown(&good.chain), shown(&other.key))),
        (&good.chain, &not_a_key, format!("{} holds a private key that cannot be used", shown(&not_a_key))),
        (&empty, &good.key, format!("{} has no certificate", shown(&empty))),
        (&good.chain, &empty, format!("{} has no private key", shown(&empty))),
        (&good.chain, &good.chain, format!("{} has no private key", shown(&good.chain))),
        (&junk, &good.key, format!("{} is not PEM: missing section end", shown(&junk))),
        (&not_a_certificate, &good.key, format!("{} holds a certificate that", shown(&not_a_certificate))),
        (&missing, &good.key, format!("{} cannot be read: No such file", shown(&missing))),
        (&endless, &good.key, "/dev/zero cannot be read: file too large".into()),
        (&good.chain, &missing, format!("{} cannot be read: No such file", shown(&missing))),
    ] {
        let pair = CertificateFiles { chain: chain.clone(), key: key.clone() };
        let error = error_of(&settings(vec![good.clone(), pair])).in_full();
        assert!(error.starts_with(&what), "{error} does not contain {what}");
        assert!(!error.contains("PRIVATE KEY"), "{error}");
    }
    for (ca, what) in
        [(&empty, "has no certificate"), (&missing, "cannot be read"), (&not_a_certificate, "an authority")]
    {
        let client_auth = Some(ClientAuth { ca: ca.clone(), required: true });
        let error = error_of(&ServerSettings { client_auth, ..settings(vec![good.clone()]) }).in_full();
        assert!(error.starts_with(&shown(ca)) && error.contains(what), "{error} does not contain {what}");
    }
}

#[test]
fn changed_files_are_used_for_new_connections() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let old = authority.certify(&["a.test"]);
    let pair = old.write(dir.path(), "a");
    let store = ServerTls::open(&settings(vec![pair.clone()])).unwrap();
    assert_eq!(store.files(), [pair.key.clone(), pair.chain.clone()]);
    assert_eq!(store.reload().unwrap(), store.files()[..0], "nothing has changed");
    let new = authority.certify(&["a.test"]);
    new.write(dir.path(), "a");
    assert!(shows(&store, &authority, &old), "nothing was reloaded yet");
    assert_eq!(store.reload().unwrap(), [pair.key, pair.chain]);
    assert!(shows(&store, &authority, &new));
    assert!(store.reload().unwrap().is_empty());
}

#[test]
fn swapped_link_is_a_change() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    // The layout of a Kubernetes volume: the names are links through `..data`, which is replaced in one step.
    let write = |version: &str| {
        fs::create_dir(dir.path().join(version)).unwrap();
        let issued = authority.certify(&["a.test"]);
        issued.write(&dir.path().join(version), "tls");
        symlink(version, dir.path().join("..new")).unwrap();
        fs::rename(dir.path().join("..new"), dir.path().join("..data")).unwrap();
        issued
    };
    let old = write("..1");
    for name in ["tls.pem", "tls.key"] {
        symlink(Path::new("..data").join(name), dir.path().join(name)).unwrap();
    }
    let pair = CertificateFiles { chain: dir.path().join("tls.pem"), key: dir.path().join("tls.key") };
    let store = ServerTls::open(&settings(vec![pair])).unwrap();
    assert!(shows(&store, &authority, &old));
    let new = write("..2");
    assert_eq!(store.reload().unwrap().len(), 2);
    assert!(shows(&store, &authority, &new));
}

#[test]
fn unusable_files_keep_the_active_certificates_and_are_reported_once() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let (first, second) = (authority.certify(&["a.test"]), authority.certify(&["b.test"]));
    let pairs = vec![first.write(dir.path(), "a"), second.write(dir.path(), "b")];
    let store = ServerTls::open(&settings(pairs.clone())).unwrap();
    // The first certificate changes and is valid, of the second only one file: they are replaced
    // together or not at all.
    let new = authority.certify(&["a.test"]);
    new.write(dir.path(), "a");
    fs::write(&pairs[1].key, authority.certify(&["b.test"]).key).unwrap();
    assert!(store.reload().unwrap().is_empty(), "the files may be in the middle of being written");
    let error = store.reload().unwrap_err();
    assert!(matches!(&error, Error::KeyMismatch { key, .. } if *key == pairs[1].key), "{error}");
    assert!(
        store.reload().unwrap().is_empty() && store.reload().unwrap().is_empty(),
        "the failure was reported already"
    );
    assert!(shows(&store, &authority, &first));
    // Other contents are reported again.
    fs::write(&pairs[1].key, "").unwrap();
    assert!(store.reload().unwrap().is_empty());
    assert!(matches!(store.reload().unwrap_err(), Error::NoKey(_)));
    fs::remove_file(&pairs[1].key).unwrap();
    assert!(store.reload().unwrap().is_empty());
    assert!(matches!(store.reload().unwrap_err(), Error::Read { .. }));
    assert!(shows(&store, &authority, &first));
    second.write(dir.path(), "b");
    assert_eq!(store.reload().unwrap().len(), 2, "the first certificate has waited for the second");
    assert!(shows(&store, &authority, &new));
}

#[test]
fn other_settings_are_prepared_before_they_are_installed() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let (old, new) = (authority.certify(&["a.test"]), authority.certify(&["a.test"]));
    let store = ServerTls::open(&settings(vec![old.write(dir.path(), "old")])).unwrap();
    let pair = new.write(dir.path(), "new");
    let ready = store.prepare(&settings(vec![pair.clone()])).unwrap();
    assert!(shows(&store, &authority, &old));
    store.install(ready);
    assert!(shows(&store, &authority, &new));
    assert_eq!(store.files(), [pair.key.clone(), pair.chain.clone()]);
    fs::write(&pair.key, "").unwrap();
    assert!(matches!(store.prepare(&settings(vec![pair])), Err(Error::NoKey(_))));
}

#[test]
fn certificate_ends_are_listed() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let ending = |names: &[&str], year| {
        authority.certify_with(names, &rcgen::PKCS_ECDSA_P256_SHA256, |params| {
            params.not_after = rcgen::date_time_ymd(year, 1, 1);
        })
    };
    let nameless = ending(&["192.0.2.1"], 2040).write(dir.path(), "0");
    let named = ending(&["B.test", "c.test"], 2050).write(dir.path(), "1");
    let store = ServerTls::open(&settings(vec![nameless, named])).unwrap();
    let ends: Vec<(String, i64)> =
        store.expiries().into_iter().map(|expiry| (expiry.certificate, expiry.not_after)).collect();
    assert_eq!(ends, [("0".into(), 2_208_988_800), ("b.test".into(), 2_524_608_000)]);
}
