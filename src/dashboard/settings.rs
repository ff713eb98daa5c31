//! The dashboard as it is configured.

use std::time::Duration;

use super::claim_mapping::ClaimMapping;
use crate::management::SessionSettings;
use crate::oidc;

/// Where the dashboard is, how long its sessions last, and by whom people sign in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Scheme, host, and port where it is not the scheme's own, as browsers show them: `https://gateway.example.com`.
    pub origin: String,
    /// The path that everything of the dashboard is under; begins with a slash, and does not end with one.
    pub path: String,
    /// How long a session may go unused.
    pub idle: Duration,
    /// How long a session lasts, whatever happens.
    pub lifetime: Duration,
    /// Whether sign-in links are given out, and taken.
    pub links: bool,
    /// The origin of the API, where it is another: for lines to paste.
    pub api_origin: Option<String>,
    /// The identity providers, in the order in which they are offered.
    pub providers: Vec<ProviderSettings>,
}

/// One identity provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderSettings {
    /// How it is spoken to.
    pub oidc: oidc::Settings,
    /// What is made of what it says.
    pub claim_mapping: ClaimMapping,
}

impl Settings {
    /// The dashboard's address, without a slash at the end.
    pub fn url(&self) -> String {
        format!("{}{}", self.origin, self.path)
    }

    /// How web sessions are.
    pub fn sessions(&self) -> SessionSettings {
        SessionSettings { url: self.url(), idle: self.idle, lifetime: self.lifetime, links: self.links }
    }

    /// Whether a path is the dashboard's.
    pub fn contains_path(&self, path: &str) -> bool {
        path.strip_prefix(&*self.path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}
