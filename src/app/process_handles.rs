//! Process facilities that the caller hands to the app.

use super::systemd::ServiceNotifier;
use platform::telemetry::LogHandle;

/// Process facilities handed to the app: the log handle and the service notifier. Both are inert by default.
#[derive(Clone, Debug, Default)]
pub struct ProcessHandles {
    /// Handle on the process's logs. A reload sets their level.
    pub logs: LogHandle,
    /// `sd_notify` client.
    pub notifier: ServiceNotifier,
    /// Place of a gateway that runs already.
    pub succession: Succession,
}

/// Way in which a gateway starts beside one of the same configuration, and with sockets of systemd.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Succession {
    /// It binds its listeners itself, and fails when another gateway runs.
    #[default]
    None,
    /// It takes sockets of systemd, and takes over from a gateway that drains.
    FromDraining,
    /// It takes over from a gateway in full service.
    Replace,
}
