//! Certificates for servers that speak TLS and for their clients.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};
use tempfile::TempDir;

/// The files (PEM) of an authority and of what it certified: a server, as `localhost` and 127.0.0.1, and a client.
/// Each `Certificates` has an authority of its own, which no other peer trusts.
#[derive(Clone)]
pub struct Certificates {
    /// Shared with the servers that read them when they start again.
    dir: Arc<TempDir>,
}

impl Certificates {
    pub fn generate() -> Self {
        let certificates = Self { dir: Arc::new(tempfile::tempdir().unwrap()) };
        let authority = authority();
        fs::write(certificates.ca(), authority.pem()).unwrap();
        // Servers are each other's clients, as replicas and as nodes of a Cluster.
        let both = [ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        certificates.certify(&authority, certificates.server(), &["localhost", "127.0.0.1"], &both);
        certificates.certify(&authority, certificates.client(), &["client.test"], &both[1..]);
        certificates
    }

    /// The authority's certificate.
    pub fn ca(&self) -> PathBuf {
        self.file("ca.pem")
    }

    /// The server's certificate and its key.
    pub fn server(&self) -> (PathBuf, PathBuf) {
        (self.file("server.pem"), self.file("server.key"))
    }

    /// The client's certificate and its key.
    pub fn client(&self) -> (PathBuf, PathBuf) {
        (self.file("client.pem"), self.file("client.key"))
    }

    fn certify(
        &self,
        authority: &CertifiedIssuer<'_, KeyPair>,
        (certificate, key): (PathBuf, PathBuf),
        names: &[&str],
        purposes: &[ExtendedKeyUsagePurpose],
    ) {
        let pair = KeyPair::generate().unwrap();
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let mut params = CertificateParams::new(names.clone()).unwrap();
        params.distinguished_name.push(DnType::CommonName, &names[0]);
        params.extended_key_usages = purposes.to_vec();
        fs::write(certificate, params.signed_by(&pair, authority).unwrap().pem()).unwrap();
        fs::write(key, pair.serialize_pem()).unwrap();
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

fn authority() -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "an authority for tests");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}
