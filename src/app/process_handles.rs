//! Process facilities that the caller hands to the app.

use super::systemd::ServiceNotifier;
use crate::telemetry::LogHandle;

/// Process facilities handed to the app: the log handle and the service notifier. Both are inert by default.
#[derive(Clone, Debug, Default)]
pub struct ProcessHandles {
    /// Handle on the process's logs. A reload sets their level.
    pub logs: LogHandle,
    /// `sd_notify` client.
    pub notifier: ServiceNotifier,
}
