//! Idle connections to one endpoint.

use std::time::Duration;

use tokio::time::Instant;

use super::http1_connection::Connection;

/// Idle connections kept for each worker and endpoint. More than an organization may use at once are rarely needed.
const MAX_IDLE: usize = 256;

/// Age at which an idle connection is not used again: many servers close theirs after 60 s or more, and a request that
/// crosses the closing on its way is lost.
const MAX_AGE: Duration = Duration::from_secs(50);

/// Stack of idle connections: the one used last is used next, so that the others grow old.
#[derive(Default)]
pub(super) struct IdleConnections(Vec<(Connection, Instant)>);

impl IdleConnections {
    /// Keeps a connection, unless there are enough.
    pub(super) fn push(&mut self, connection: Connection) {
        if self.0.len() < MAX_IDLE {
            self.0.push((connection, Instant::now()));
        }
    }

    /// Takes a connection that can carry a request. Old and unclean ones are closed on the way.
    pub(super) fn pop(&mut self) -> Option<Connection> {
        while let Some((connection, since)) = self.0.pop() {
            if since.elapsed() >= MAX_AGE {
                // The connections below it in the stack are older still.
                self.0.clear();
            } else if connection.is_clean() {
                return Some(connection);
            }
        }
        None
    }
}
