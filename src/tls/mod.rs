//! TLS: what is read from files, and the configurations of both sides that are made of it.
//!
//! [`ServerTls`] is the server's side: certificates by name, client certificates, session tickets. [`ClientTls`] is the
//! client's: whom we believe, and who we are.
//!
//! - Versions 1.2 and 1.3 with the suites and groups of Mozilla's "intermediate" recommendation, and the post-quantum
//!   group X25519MLKEM768. The cryptography is aws-lc-rs, named explicitly: no process-wide default decides.
//! - Early data (0-RTT) is never accepted: it can be replayed, and a request must cost one token, once.
//! - Peers that we connect to are always verified; there is no switch that turns it off.
//! - Files are read whole and checked before anything is made of them. While serving they are replaced together, or not
//!   at all: a key that is not its certificate's, or an empty file, leaves what was in force.

mod certificate;
mod client_config;
mod error;
mod files;
mod reloadable;
mod resolver;
mod server_config;
mod server_tls;
mod tickets;

pub use certificate::{CertificateExpiry, CertificateFiles};
pub use client_config::ClientSettings;
pub use error::Error;
pub use server_config::{ClientAuth, ServerSettings, Version};
pub use server_tls::{ClientTls, PreparedTls, ServerTls};

use std::sync::Arc;

use rustls::crypto::{CryptoProvider, aws_lc_rs};

/// The one source of cryptography.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}
