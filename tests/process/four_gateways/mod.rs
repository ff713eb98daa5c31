//! Four real gateways over one Redis keep the limits of one.

use crate::client::Client;
use crate::redis::Redis;
use crate::running::{Running, Setup};
use crate::upstream::Upstream;

mod hammer;
mod in_flight;
mod windows;

/// Four gateways, a Redis and an organization.
struct Four {
    setups: Vec<Setup>,
    running: Vec<Running>,
    /// Keys of the organization.
    keys: Vec<String>,
    _server: Redis,
}

impl Four {
    /// Starts them with so many keys. `redis` and `blocks` are more of the configuration.
    fn start(upstream: &Upstream, keys: usize, redis: &str, blocks: &str) -> Self {
        let server = Redis::start();
        let state = format!("{{ redis: {{ url: '{}', {redis} }} }}", server.url());
        let setups: Vec<Setup> = (0..4).map(|_| Setup::with_state(upstream.address, &state, blocks)).collect();
        let mut made = vec![setups[0].key()];
        for number in 1..keys {
            let name = format!("key {number}");
            made.push(setups[0].ok(&["key", "create", "--org", "acme", "--user", "ada@example.com", &name]));
        }
        let running = std::thread::scope(|scope| {
            let starting: Vec<_> = setups.iter().map(|setup| scope.spawn(|| setup.start())).collect();
            starting.into_iter().map(|gateway| gateway.join().unwrap()).collect()
        });
        Self { setups, running, keys: made, _server: server }
    }

    /// A connection to each gateway.
    fn clients(&self) -> Vec<Client> {
        self.setups.iter().map(Setup::client).collect()
    }

    fn kill(&mut self, number: usize) {
        self.running[number].kill();
    }
}

/// Numbers that look random, and are the same in every run.
struct Random(u64);

impl Random {
    /// A number below `end`.
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % end
    }
}
