//! Client of systemd's notification protocol (`sd_notify(3)`). Inert when systemd did not start the process.
//!
//! - `READY=1` when every listener is served, and again after each reload; `RELOADING=1` when a reload begins;
//!   `STOPPING=1` when the drain begins.
//! - `MAINPID=` when another process has taken over: then that one notifies, and this one no more.
//! - `WATCHDOG=1` is sent by [`super::watchdog`].

use std::time::Duration;

use sd_notify::NotifyState;

/// Notifies systemd of the service's state.
#[derive(Clone, Copy, Debug, Default)]
pub struct ServiceNotifier {
    is_enabled: bool,
    watchdog_period: Option<Duration>,
}

impl ServiceNotifier {
    /// The notifier that the environment asks for (`NOTIFY_SOCKET`, `WATCHDOG_USEC`); inert without them.
    pub fn from_environment() -> Self {
        let is_enabled = std::env::var_os("NOTIFY_SOCKET").is_some();
        let watchdog_period = sd_notify::watchdog_enabled().filter(|period| is_enabled && !period.is_zero());
        Self { is_enabled, watchdog_period }
    }

    /// The time without a watchdog notification after which systemd restarts the service; none without a watchdog.
    pub(super) fn watchdog_period(self) -> Option<Duration> {
        self.watchdog_period
    }

    /// Notifies that the service serves, after the start or a reload.
    pub(super) fn notify_ready(self, status: &str) {
        self.notify(&[NotifyState::Ready, NotifyState::Status(status)]);
    }

    /// Notifies that a reload begins; [`ServiceNotifier::notify_ready`] ends it.
    pub(super) fn notify_reloading(self) {
        // systemd ignores `RELOADING=1` without the time at which the reload began.
        match NotifyState::monotonic_usec_now() {
            Ok(now) => self.notify(&[NotifyState::Reloading, now, NotifyState::Status("reloading the configuration")]),
            Err(error) => {
                tracing::warn!(%error, "cannot read the monotonic clock; systemd is not notified of the reload")
            }
        }
    }

    /// Notifies that the drain begins.
    pub(super) fn notify_stopping(self) {
        self.notify(&[NotifyState::Stopping, NotifyState::Status("draining")]);
    }

    /// Notifies that another process is the service's main process from now on.
    pub(super) fn notify_main_process(self, pid: u32) {
        self.notify(&[NotifyState::MainPid(pid)]);
    }

    /// Notifies that the service is alive, which restarts the watchdog's period.
    pub(super) fn notify_alive(self) {
        self.notify(&[NotifyState::Watchdog]);
    }

    fn notify(self, states: &[NotifyState<'_>]) {
        if self.is_enabled
            && let Err(error) = sd_notify::notify(states)
        {
            tracing::warn!(%error, "cannot notify systemd; check the socket in NOTIFY_SOCKET");
        }
    }
}
