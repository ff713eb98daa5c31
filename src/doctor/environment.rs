//! The things that several checks look at: the configuration file and the running gateway.

use std::path::Path;

use super::running_gateway::RunningGateway;
use crate::config::Config;
use domain::clock::{self, Micros};
use platform::settings::SettingsErrors;

/// Configuration file, gateway that runs by it, and the time.
pub(super) struct Environment {
    pub(super) config: Config,
    /// The gateway behind the admin socket; the error when there is none.
    pub(super) gateway: Result<RunningGateway, String>,
    pub(super) now: Micros,
}

impl Environment {
    /// Reads the file, and asks the gateway.
    pub(super) async fn collect(file: &Path) -> Result<Self, SettingsErrors> {
        let config = Config::load(file)?;
        let gateway = RunningGateway::inspect(&config).await;
        Ok(Self { config, gateway, now: clock::now() })
    }
}
