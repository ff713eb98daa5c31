//! An upstream that holds the response to each path until the story releases it.

use std::collections::HashSet;
use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use crate::support::{Client, Response, Upstream, head};

/// Time between two looks at the upstream.
const LOOK: Duration = Duration::from_millis(5);

/// Upstream that responds with 200 to the request of a path once the path is released. Dropped, it releases all.
pub(super) struct HeldUpstream {
    upstream: Upstream,
    released: Arc<(Mutex<Released>, Condvar)>,
}

#[derive(Default)]
struct Released {
    paths: HashSet<String>,
    all: bool,
}

/// Outcome of a request.
pub(super) enum Sent {
    /// The upstream has it; the client waits.
    Forwarded(Client),
    /// The gateway has answered it.
    Answered(Response),
}

impl HeldUpstream {
    pub(super) fn start() -> Self {
        let released = Arc::new((Mutex::new(Released::default()), Condvar::new()));
        let waiting = Arc::clone(&released);
        let upstream = Upstream::answering(move |received, stream| {
            let (released, changed) = &*waiting;
            let holds = |released: &mut Released| !released.all && !released.paths.contains(received.path());
            drop(changed.wait_while(released.lock().unwrap(), holds).unwrap());
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").ok();
        });
        Self { upstream, released }
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.upstream.address
    }

    /// Sends a request to a gateway, and returns when it is at the upstream or answered.
    pub(super) fn send(&self, gateway: SocketAddr, path: &str, key: &str) -> Sent {
        let mut client = Client::connect(gateway);
        client.send(head("GET", path, key, &[], 0));
        loop {
            if self.upstream.received().iter().any(|received| received.path() == path) {
                return Sent::Forwarded(client);
            }
            if client.hears_within(LOOK) {
                return Sent::Answered(client.response());
            }
        }
    }

    /// Answers the request of a path, and waits until its client has the response.
    pub(super) fn release(&self, path: &str, mut client: Client) {
        self.released.0.lock().unwrap().paths.insert(path.to_owned());
        self.released.1.notify_all();
        assert_eq!(client.response().status, 200);
    }
}

impl Drop for HeldUpstream {
    fn drop(&mut self) {
        self.released.0.lock().unwrap().all = true;
        self.released.1.notify_all();
    }
}

impl Sent {
    pub(super) fn forwarded(self) -> Client {
        match self {
            Self::Forwarded(client) => client,
            Self::Answered(response) => panic!("answered: {response:?}"),
        }
    }

    /// The answer in a few words. `Retry-After` is exact where a token is missing; where a slot is,
    /// it is drawn at random.
    pub(super) fn words(&self) -> String {
        let Self::Answered(response) = self else { return "forwarded".to_owned() };
        let (status, code) = (response.status, response.code());
        match response.header("retry-after") {
            Some(after) if code == "rate_limited" => format!("{status} {code}, retry after {after} s"),
            _ => format!("{status} {code}"),
        }
    }
}
