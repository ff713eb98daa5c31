//! Requests at a rate of their own, whatever the answers take: an open loop, as independent clients make it.
//!
//! The time of a request begins when it is due, also while it waits for a free connection. So a stall counts for all
//! requests that come meanwhile, which a closed loop would leave out (coordinated omission).

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::sync::{Mutex, mpsc};
use tokio::time::MissedTickBehavior;

use super::{Latencies, Shape, connect, http1, microseconds, runtime};

/// Time between two ticks. Requests are due on ticks, since the runtime's timers have no finer ones.
const TICK: Duration = Duration::from_millis(1);

/// Small requests over HTTP/1.1, evenly in time.
pub(crate) struct OpenLoop<'a> {
    /// Each connection has the next of these keys.
    pub(crate) keys: &'a [String],
    pub(crate) connections: usize,
    pub(crate) requests: usize,
    /// Requests a second.
    pub(crate) rate: f64,
}

impl OpenLoop<'_> {
    /// Sends the requests, and returns their times since each was due.
    pub(crate) fn run(&self, proxy: SocketAddr) -> Latencies {
        runtime().block_on(async {
            let (due, requests) = mpsc::unbounded_channel();
            let requests = Rc::new(Mutex::new(requests));
            let connections: Vec<_> = self.keys.iter().cycle().take(self.connections).cloned().collect();
            let tasks: Vec<_> = connections
                .into_iter()
                .map(|key| tokio::task::spawn_local(connection(proxy, key, Rc::clone(&requests))))
                .collect();
            self.send_due(due).await;
            Latencies::of(tasks).await
        })
    }

    /// Sends the time at which each request is due.
    async fn send_due(&self, due: mpsc::UnboundedSender<Instant>) {
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
        let for_each_tick = self.rate * TICK.as_secs_f64();
        let mut missing = 0.0;
        let mut sent = 0;
        while sent < self.requests {
            let tick = ticks.tick().await.into_std();
            missing += for_each_tick;
            while missing >= 1.0 && sent < self.requests {
                due.send(tick).unwrap();
                sent += 1;
                missing -= 1.0;
            }
        }
    }
}

/// Sends on one connection, one after the other, what is due and not yet taken by another one.
async fn connection(proxy: SocketAddr, key: String, requests: Rc<Mutex<mpsc::UnboundedReceiver<Instant>>>) -> Vec<u32> {
    let mut stream = connect(proxy).await;
    let request = http1::request(&key, Shape::Small);
    let mut buffer = http1::buffer();
    let mut times = Vec::new();
    loop {
        let next = requests.lock().await.recv().await;
        let Some(due) = next else { return times };
        http1::exchange(&mut stream, &request, &mut buffer).await;
        times.push(microseconds(due));
    }
}
