//! TLS: settings, the files that they name, and the configurations of both sides, which are replaced while in use.
//!
//! [`ServerTls`] is a listener's side: certificates by name, client certificates, session tickets. [`ClientTls`] is the
//! side of outgoing connections: trusted authorities and our own certificate.
//!
//! - Versions 1.2 and 1.3 with the suites and groups of Mozilla's "intermediate" recommendation, and the post-quantum
//!   group X25519MLKEM768. The cryptography is aws-lc-rs, named explicitly: no process-wide default decides.
//! - Early data (0-RTT) is never accepted: it can be replayed, and a request must cost one token, once.
//! - Servers that we connect to are always verified; no switch turns that off.
//! - All files are read and checked before a configuration is built of them. While serving they are replaced together,
//!   or not at all: a key that is not its certificate's, or an empty file, leaves the active configuration as it is. So
//!   does a certificate that has expired, while the active one has not.
//! - An error says what is wrong in words, never by an identifier of the library ([`explain`]).

mod server_tls;
mod client_tls;
mod server_config;
mod client_config;
mod resolver;
mod tickets;
mod certificate;
mod certificate_facts;
mod reloadable;
mod files;
mod explanation;
mod error;
mod provider;

pub use certificate::{CertificateExpiry, CertificateFiles};
pub use certificate_facts::CertificateFacts;
pub use client_config::ClientSettings;
pub use client_tls::ClientTls;
pub use error::Error;
pub use explanation::{Explanation, connect, explain, find_error};
pub use server_config::{ClientAuth, ServerSettings, Version};
pub use server_tls::{PreparedTls, ServerTls};
