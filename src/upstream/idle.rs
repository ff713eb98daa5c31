//! The idle connections to one endpoint.

use std::time::Duration;

use tokio::time::Instant;

use super::http1_connection::Connection;

/// IdleConnections connections kept per worker and endpoint; more than an organization may use at once is rarely of use.
const MOST: usize = 256;

/// A connection that was idle for longer is not used again: many servers close theirs after 60 s or more, and a request
/// that crosses the closing on its way is lost.
const MAX_AGE: Duration = Duration::from_secs(50);

/// A stack: the connection used last is used next, so that the others grow old.
pub(super) struct IdleConnections(Vec<(Connection, Instant)>);

impl Default for IdleConnections {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl IdleConnections {
    /// Keeps a connection, unless there are enough.
    pub(super) fn push(&mut self, connection: Connection) {
        if self.0.len() < MOST {
            self.0.push((connection, Instant::now()));
        }
    }

    /// A connection that can take a request. Old and unclean ones are closed on the way.
    pub(super) fn pop(&mut self) -> Option<Connection> {
        while let Some((connection, since)) = self.0.pop() {
            if since.elapsed() >= MAX_AGE {
                // The ones below are older still.
                self.0.clear();
            } else if connection.is_clean() {
                return Some(connection);
            }
        }
        None
    }
}
