//! Settings and scripts of the product that all gateways run with: its defaults, and `known_keys`.

use std::sync::Arc;
use std::time::Duration;

use domain::quota::Quota;
use state::redis::{Clock, Durability, Login, OnUnavailable, Scripts, Servers, Settings};

use super::budgets;
use super::gateway::DEADLINE;
use super::options::Break;

/// Settings and scripts of the product, which all gateways share.
pub struct Product {
    pub settings: Arc<Settings>,
    pub scripts: Arc<Scripts>,
    /// False when that is broken on purpose.
    pub keeps_revocations: bool,
}

impl Product {
    pub fn new(broken: Option<Break>) -> Self {
        let settings = Settings {
            // No link of the product is opened.
            servers: Servers::Cluster(Vec::new()),
            login: Login::default(),
            sentinel_login: Login::default(),
            database: 0,
            tls: None,
            prefix: "keygate".to_owned(),
            // Each key and each organization has its own.
            quota: Quota { requests: 1000, per: Duration::from_secs(3600), burst: 1000, strict: false },
            concurrent: 100,
            plans: budgets::plans(),
            deadline: Duration::from_micros(DEADLINE),
            lease: Duration::from_secs(10),
            max_loss: Duration::from_secs(10),
            on_unavailable: OnUnavailable::KnownKeys { max_staleness: Duration::from_secs(60) },
            // That of each revocation is chosen by its gateway.
            durability: Durability { replicas: 0, timeout: Duration::from_secs(1) },
            clock: Clock::Server,
        };
        let keeps_revocations = broken != Some(Break::Revocation);
        Self { settings: Arc::new(settings), scripts: Arc::new(Scripts::new()), keeps_revocations }
    }

    /// Longest time between two renewals of a lease.
    pub fn renew(&self) -> u64 {
        u64::try_from(self.settings.renew_interval().as_micros()).unwrap()
    }
}
