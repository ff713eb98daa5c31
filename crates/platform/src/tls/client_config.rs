//! TLS settings of outgoing connections, and the configuration that is built of them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::sign::SingleCertAndKey;
use rustls::{ClientConfig, RootCertStore};

use super::certificate::{Certificate, CertificateFiles, Validity};
use super::error::Error;
use super::files::FileContents;
use super::provider::provider;
use crate::settings::{Section, Value};

/// TLS settings of outgoing connections.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientSettings {
    /// The file of the authorities (PEM) that certify servers; `None` for those that the system trusts.
    pub ca: Option<PathBuf>,
    /// Our own certificate, for servers that request one.
    pub identity: Option<CertificateFiles>,
}

/// Configuration built of the settings and the contents of their files.
pub(super) struct BuiltClientConfig {
    pub(super) config: Arc<ClientConfig>,
    /// Validity of our own certificate.
    pub(super) validity: Option<Validity>,
}

impl ClientSettings {
    /// Reads the keys `ca`, `certificate` and `key` of a section.
    ///
    /// A file that cannot be read was reported, and is left out here, so that the others are checked
    /// in the same reading.
    pub fn read(section: &mut Section<'_>) -> Self {
        let mut file = |name| section.optional(name, Value::readable_file).unwrap_or(None);
        let ca = file("ca");
        let certificate = file("certificate");
        let key = file("key");
        for (name, other) in [("certificate", "key"), ("key", "certificate")] {
            if section.contains(name) && !section.contains(other) {
                section.report(name, format_args!("has no effect without `{other}`; give both, or neither"));
            }
        }
        let identity = certificate.zip(key).map(|(chain, key)| CertificateFiles { chain, key });
        Self { ca, identity }
    }

    /// The configuration of connections that negotiate no protocol (ALPN).
    ///
    /// # Errors
    /// [`Error`] when a file cannot be used.
    pub fn config(&self) -> Result<Arc<ClientConfig>, Error> {
        Ok(BuiltClientConfig::build(self, &self.read_files(), &[], None)?.config)
    }

    pub(super) fn read_files(&self) -> FileContents {
        let identity = self.identity.iter().flat_map(CertificateFiles::paths);
        FileContents::read(self.ca.iter().map(PathBuf::as_path).chain(identity))
    }
}

impl BuiltClientConfig {
    /// Builds the configuration of connections that offer these protocols (ALPN). `active` is the one that it replaces.
    pub(super) fn build(
        settings: &ClientSettings,
        files: &FileContents,
        protocols: &[&[u8]],
        active: Option<&Self>,
    ) -> Result<Self, Error> {
        let config = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()?
            .with_root_certificates(load_roots(settings.ca.as_deref(), files)?);
        let own = settings.identity.as_ref().map(|paths| Certificate::load(paths, files)).transpose()?;
        let validity = own.as_ref().map(|own| own.validity);
        if let Some((validity, paths)) = validity.zip(settings.identity.as_ref()) {
            validity.check_replacement(active.and_then(|active| active.validity), &paths.chain)?;
        }
        let mut config = match own {
            Some(own) => config.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(own.key))),
            None => config.with_no_client_auth(),
        };
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        Ok(Self { config: Arc::new(config), validity })
    }
}

fn load_roots(ca: Option<&Path>, files: &FileContents) -> Result<RootCertStore, Error> {
    let Some(path) = ca else { return load_system_roots() };
    files.authorities(path)
}

fn load_system_roots() -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    // A system may have certificates that cannot be parsed; the others are enough.
    let (added, _) = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if added == 0 { Err(Error::NoSystemRoots) } else { Ok(roots) }
}
