//! Reconnection: the task of a link connects, watches the connection, and reconnects with back-off and jitter: gateways
//! that come back together after an outage (thundering herd) are spread over time.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use redis::cmd;
use tokio::time::{sleep, timeout};

use super::connect::Connected;
use super::fault::Fault;
use super::link::{LinkStatus, LiveConnection, ServerLink};
use super::live_links::LiveLink;

/// Silence on a connection after which its liveness is checked: about as soon as an operator wants to know.
const IDLE_BEFORE_PING: Duration = Duration::from_secs(1);
/// Pings without a reply after which the server counts as dead. One reply may be late with a fork or a page fault.
const PINGS: u32 = 3;
/// The first pause before connecting again, and the longest. The longest keeps the promise to be back within 2 s, also
/// when the server came back right after the start of an attempt that ran into its time-out.
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(400));

impl ServerLink {
    /// Keeps the link connected for as long as the task lives.
    pub(super) async fn run(self: Arc<Self>) {
        let mut last = None;
        for number in 1.. {
            let Connected { connection, driver, address, run_id, incarnation } = self.connect_with_backoff().await;
            // Another process, or another history: writes that the previous one had acknowledged may be missing.
            if last.replace(incarnation.clone()).is_some_and(|last| last != incarnation) {
                self.connector.shared.count_failover();
            }
            let ended = driver.ended();
            let shared = &self.connector.shared;
            let may_block = self.connector.may_block;
            // Registered before the first command can be sent.
            let link = LiveLink { server: run_id, address, connection: connection.clone(), may_block };
            let registration = shared.live_links().register(link);
            self.mark_up(LiveConnection {
                connection,
                number,
                late: 0,
                replies: 0,
                _driver: driver,
                _registration: registration,
            });
            tracing::debug!(server = %self, "connected to Redis");
            self.connector.shared.topology_changed();
            let mut status = self.status.subscribe();
            let unreachable = Fault::Unreachable;
            tokio::select! {
                // An error: this link holds the sender, so waiting cannot fail.
                _ = status.wait_for(|status| !matches!(status, LinkStatus::Up)) => {}
                () = ended.notified() => self.mark_down(number, unreachable, "the server closed the connection"),
                () = self.wait_until_dead() => self.mark_down(number, unreachable, "the server does not answer pings"),
            }
            self.connector.shared.topology_changed();
        }
    }

    /// Pings an idle connection; returns when it is dead.
    async fn wait_until_dead(&self) {
        let mut replies_before = 0;
        loop {
            sleep(IDLE_BEFORE_PING).await;
            let live = self.current().as_ref().map(|live| (live.connection.clone(), live.replies, live.number));
            let Some((connection, replies, number)) = live else { return };
            // Commands in flight detect a dead server by themselves, and may legitimately wait for replicas.
            let is_active = std::mem::replace(&mut replies_before, replies) != replies;
            if is_active || self.in_flight.load(Ordering::Relaxed) > 0 {
                continue;
            }
            let ping = cmd("PING").into();
            let mut tries = 0;
            let deadline = self.connector.settings().deadline;
            while !matches!(timeout(deadline, connection.send(&ping)).await, Ok(Ok(_))) {
                tries += 1;
                if tries == PINGS {
                    return;
                }
            }
            self.count_reply(number);
        }
    }

    /// Connects until it succeeds. Logs once for a streak of equal errors.
    async fn connect_with_backoff(&self) -> Connected {
        let (mut pause, longest) = PAUSES;
        let mut logged = None;
        loop {
            match self.connector.connect().await {
                Ok(connected) => {
                    if logged.is_some() {
                        tracing::info!(server = %self, "connected to Redis again");
                    }
                    return connected;
                }
                Err(error) => {
                    let text = error.to_string();
                    if logged.as_ref() != Some(&text) {
                        let cause = std::error::Error::source(&error).map(ToString::to_string);
                        tracing::warn!(server = %self, %error, cause, "cannot connect to Redis; retrying");
                    }
                    logged = Some(text);
                    self.last_fault.set(Fault::from(&error));
                    self.status.send_replace(LinkStatus::Down(Some(Arc::new(error))));
                }
            }
            sleep(jittered(pause)).await;
            pause = longest.min(pause * 2);
        }
    }
}

/// The pause, jittered to 50 % to 150 %: gateways that lost their server together do not reconnect together (thundering
/// herd).
pub(super) fn jittered(pause: Duration) -> Duration {
    // Without randomness an unjittered pause will do.
    let random = getrandom::u32().unwrap_or(u32::MAX / 2);
    pause / 2 + pause.mul_f64(f64::from(random) / f64::from(u32::MAX))
}
