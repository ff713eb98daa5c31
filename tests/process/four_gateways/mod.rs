//! Four real gateways over one Redis, which together keep the limits of one.

use crate::support::redis::Redis;
use crate::support::{Client, Running, Setup, Upstream};

mod budget;
mod hammer;
mod lost_state;
pub mod in_flight;
mod windows;

/// Four gateways, a Redis and an organization.
struct Four {
    setups: Vec<Setup>,
    running: Vec<Running>,
    /// Keys of the organization.
    keys: Vec<String>,
    server: Redis,
}

impl Four {
    /// Starts the gateways with a number of keys. `redis` and `blocks` are added to the configuration.
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
        Self { setups, running, keys: made, server }
    }

    /// Connects to each gateway.
    fn clients(&self) -> Vec<Client> {
        self.setups.iter().map(Setup::client).collect()
    }

    fn kill(&mut self, number: usize) {
        self.running[number].kill();
    }
}
