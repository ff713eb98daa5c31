//! Certificate authorities of the tests, and the certificates that they issue.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use platform::tls::{CertificateFiles, ServerSettings, Version};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose, SignatureAlgorithm,
};
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, SupportedCipherSuite, SupportedProtocolVersion};

/// An authority that is trusted only where it is configured.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key.
#[derive(Clone)]
pub struct Issued {
    pub chain: String,
    pub key: String,
}

impl Authority {
    pub fn new() -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, format!("authority {}", uuid::Uuid::new_v4()));
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// A certificate for these names, which are DNS names and IP addresses, until the year 4096.
    pub fn certify(&self, names: &[&str]) -> Issued {
        self.certify_with(names, &rcgen::PKCS_ECDSA_P256_SHA256, |_| {})
    }

    pub fn certify_with(
        &self,
        names: &[&str],
        algorithm: &'static SignatureAlgorithm,
        change: impl FnOnce(&mut CertificateParams),
    ) -> Issued {
        let pair = KeyPair::generate_for(algorithm).unwrap();
        let mut params = CertificateParams::new(names.iter().map(ToString::to_string).collect::<Vec<_>>()).unwrap();
        change(&mut params);
        let certificate = params.signed_by(&pair, &self.0).unwrap();
        Issued { chain: certificate.pem(), key: pair.serialize_pem() }
    }

    /// Writes the authority's own certificate to a file.
    pub fn write(&self, path: &Path) -> PathBuf {
        fs::write(path, self.0.pem()).unwrap();
        path.to_owned()
    }

    /// A client that trusts this authority alone, and has no certificate.
    pub fn client(&self) -> ClientConfig {
        self.client_with_versions(rustls::DEFAULT_VERSIONS)
    }

    pub fn client_with_versions(&self, versions: &[&'static SupportedProtocolVersion]) -> ClientConfig {
        self.builder(default_provider(), versions).with_no_client_auth()
    }

    /// A client that offers these suites, in this order.
    pub fn client_with_suites(&self, suites: &[SupportedCipherSuite]) -> ClientConfig {
        let provider = CryptoProvider { cipher_suites: suites.to_vec(), ..default_provider() };
        self.builder(provider, rustls::DEFAULT_VERSIONS).with_no_client_auth()
    }

    /// A client with this certificate.
    pub fn client_with_certificate(
        &self,
        issued: &Issued,
        versions: &[&'static SupportedProtocolVersion],
    ) -> ClientConfig {
        let key = PrivateKeyDer::from_pem_slice(issued.key.as_bytes()).unwrap();
        self.builder(default_provider(), versions).with_client_auth_cert(vec![issued.der()], key).unwrap()
    }

    fn builder(
        &self,
        provider: CryptoProvider,
        versions: &[&'static SupportedProtocolVersion],
    ) -> rustls::ConfigBuilder<ClientConfig, rustls::client::WantsClientCert> {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).unwrap();
        ClientConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(roots)
    }
}

impl Issued {
    /// Writes both files, `name.pem` and `name.key`.
    pub fn write(&self, dir: &Path, name: &str) -> CertificateFiles {
        let pair = CertificateFiles { chain: dir.join(format!("{name}.pem")), key: dir.join(format!("{name}.key")) };
        fs::write(&pair.chain, &self.chain).unwrap();
        fs::write(&pair.key, &self.key).unwrap();
        pair
    }

    pub fn der(&self) -> CertificateDer<'static> {
        CertificateDer::from_pem_slice(self.chain.as_bytes()).unwrap()
    }
}

/// Settings of a listener with these certificates and the defaults.
pub fn settings(certificates: Vec<CertificateFiles>) -> ServerSettings {
    ServerSettings { certificates, client_auth: None, minimum: Version::Tls12, ticket_key: None }
}
