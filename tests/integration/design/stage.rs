//! Redis as the story has it: servers whose clock stands where the story is.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::support::redis::{Clock, Redis};

/// Time between now and the story's beginning: later than anything that the gateways note while they start.
const AHEAD: Duration = Duration::from_secs(3600);

/// Servers with one clock.
pub(super) struct Stage {
    clock: Clock,
    zero: Duration,
    pub(super) servers: Vec<Redis>,
}

impl Stage {
    /// Starts servers, at second 0.
    pub(super) fn start(count: usize) -> Self {
        let clock = Clock::new();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let zero = Duration::from_secs(now.as_secs()) + AHEAD;
        clock.stand_at(zero);
        // A replica is sent its data at once: the time that Redis waits for further ones never passes here.
        let options = Redis::options().clock(&clock).arg("repl-diskless-sync-delay", "0");
        Self { servers: options.start_many(count), clock, zero }
    }

    /// Moves to a second of the story.
    pub(super) fn at(&self, second: u64) {
        self.clock.stand_at(self.zero + Duration::from_secs(second));
    }

    /// The story's beginning, in microseconds.
    pub(super) fn zero(&self) -> f64 {
        self.zero.as_micros() as f64
    }
}

/// The state of a gateway at this address of Redis.
pub(super) fn state(address: std::net::SocketAddr, lease: &str) -> String {
    format!("{{ redis: {{ url: 'redis://{address}', deadline: 2s, lease: {lease} }} }}")
}
