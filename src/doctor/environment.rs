//! The things that several checks look at: the configuration file and the running gateway.

use std::path::Path;

use super::running_gateway::RunningGateway;
use crate::config::Config;
use domain::clock::{self, Micros};
use platform::settings::SettingsErrors;

/// Configuration file, gateway that runs by it, and the time.
pub(super) struct Environment {
    pub(super) config: Config,
    /// The gateway behind the admin socket; the error when there is none, or it is not asked.
    pub(super) gateway: Result<RunningGateway, String>,
    /// True in the process of the gateway itself.
    pub(super) is_own: bool,
    pub(super) now: Micros,
}

impl Environment {
    /// Reads the file, and asks the gateway.
    pub(super) async fn collect(file: &Path) -> Result<Self, SettingsErrors> {
        let config = Config::load(file)?;
        let gateway = RunningGateway::inspect(&config).await;
        Ok(Self { config, gateway, is_own: false, now: clock::now() })
    }

    /// A configuration by itself; no gateway is asked.
    pub(super) fn of_config(config: Config, is_own: bool) -> Self {
        Self { config, gateway: Err("the gateway is not asked".to_owned()), is_own, now: clock::now() }
    }
}
