//! Configuration of the dashboard.

use std::time::Duration;

use super::claim_mapping::ClaimMapping;
use crate::management::SessionSettings;
use crate::oidc;
use domain::quota::Quota;

/// Address of the dashboard, lifetime of its sessions, and identity providers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Scheme, host, and port unless it is the scheme's default, as browsers show them: `https://gateway.example.com`.
    pub origin: String,
    /// Path of the dashboard; everything below it is the dashboard's. Begins with a slash, does not end with one.
    pub path: String,
    /// Time after which an unused session ends.
    pub idle: Duration,
    /// Time after which every session ends.
    pub lifetime: Duration,
    /// Time for which browsers use https only for the host of the dashboard; `None`: they are not told.
    pub hsts: Option<Duration>,
    /// True if sign-in links are created and accepted.
    pub links: bool,
    /// True if administrators add, remove and permit the people of their organizations; no provider's claims do.
    pub admins_manage_people: bool,
    /// Requests to the dashboard and its API that each person may send to one gateway.
    pub limit: Quota,
    /// Origin of the API for curl examples; `None` where it is the dashboard's.
    pub api_origin: Option<String>,
    /// Identity providers, in the order of the sign-in page.
    pub providers: Vec<ProviderSettings>,
}

/// One identity provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderSettings {
    /// The OpenID Connect client.
    pub oidc: oidc::Settings,
    /// Mapping of its claims to users, organizations and permissions.
    pub claim_mapping: ClaimMapping,
    /// True if the sign-in page has a button for it. Others are chosen by an address with
    /// `?provider=`, or by `domains`.
    pub listed: bool,
    /// Domains, in lower case, whose email addresses lead to it.
    pub domains: Vec<String>,
}

impl ProviderSettings {
    /// Returns whether its claims decide which organizations people belong to, or what they may do there.
    pub fn claims_people(&self) -> bool {
        self.claim_mapping.orgs.is_some() || self.claim_mapping.permissions.is_some()
    }
}

impl Settings {
    /// URL of the dashboard, without a slash at the end.
    pub fn url(&self) -> String {
        format!("{}{}", self.origin, self.path)
    }

    /// Returns `true` if the API has an origin other than the dashboard's.
    pub fn has_api_origin(&self) -> bool {
        self.api_origin.as_ref().is_some_and(|api| *api != self.origin)
    }

    /// Settings of web sessions.
    pub fn sessions(&self) -> SessionSettings {
        SessionSettings {
            url: self.url(),
            idle: self.idle,
            lifetime: self.lifetime,
            links: self.links,
            admins_manage_people: self.admins_manage_people,
        }
    }

    /// Returns `true` if a path is the dashboard's: its own or one below it.
    pub fn contains_path(&self, path: &str) -> bool {
        path.strip_prefix(&*self.path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}
