//! A command that was sent, and whose reply its caller has not got yet.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use redis::Value;

use super::command_error::CommandError;
use super::connection::ReplyReceiver;
use super::link::{InFlight, ServerLink};
use super::resp::PackedCommand;

/// A command in flight. It runs whatever becomes of this handle.
///
/// - A caller with a deadline of its own polls it, and hands it to [`SentCommand::finish`] when the deadline has
///   passed. So a reply in time costs no timer here.
pub struct SentCommand {
    link: InFlight<Arc<ServerLink>>,
    /// Number of the connection that carries it.
    connection: u64,
    reply: ReplyReceiver,
    sent: Instant,
}

impl ServerLink {
    /// Sends a command.
    ///
    /// # Errors
    /// It was not sent: the link is down, or has too many commands in flight.
    pub(super) fn begin(self: &Arc<Self>, command: &PackedCommand) -> Result<SentCommand, CommandError> {
        let link = InFlight::begin(Arc::clone(self))?;
        let (connection, reply) = self.send_now(command).ok_or(CommandError::Unreachable)?;
        Ok(SentCommand { link, connection, reply, sent: Instant::now() })
    }
}

impl SentCommand {
    /// Polls for the reply, which counts as one in time.
    pub fn poll_reply(&mut self, cx: &mut Context<'_>) -> Poll<Result<Value, CommandError>> {
        let reply = ready!(Pin::new(&mut self.reply).poll(cx));
        let link = self.link.link();
        link.count_reply(self.connection);
        Poll::Ready(link.classify_reply(self.connection, reply))
    }

    /// Waits for the reply, also beyond the deadline of the link: it counts as late then, and as lost after the
    /// time-out for late replies.
    pub async fn finish(self) -> Result<Value, CommandError> {
        let link = self.link.link();
        let rest = link.connector.settings().deadline.saturating_sub(self.sent.elapsed());
        let reply = link.await_reply(self.connection, rest, self.reply).await?;
        link.classify_reply(self.connection, reply)
    }

    /// The link that it was sent over.
    pub fn link(&self) -> &Arc<ServerLink> {
        self.link.link()
    }
}
