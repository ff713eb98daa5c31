//! One connection to a server, which carries the commands of many callers in order.
//!
//! - Commands are put into a buffer, and the task of the connection writes them: all that callers of one turn of the
//!   event loop have put there go in one system call. It reads in one system call whatever has arrived, too.
//! - A caller gets a [`ReplyReceiver`]. When the connection ends, every reply that is awaited is lost.
//! - No future of a caller is needed for a command to be sent, nor for its reply to be taken off the wire.
//!
//! Own code instead of the crate's multiplexed connection: the command is packed once, into the buffer that is written,
//! where the crate copies it three times and hands it over by a channel; a reply is found by its length, where the
//! crate has a parser of general combinators (`benches/cost/ideas.md` has the figures).

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_util::task::AtomicWaker;
use parking_lot::{Mutex, MutexGuard};
use redis::{RedisError, RedisResult, Value};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;

use super::resp::{PackedCommand, ReplyScanner, malformed};

/// Bytes that are read at a time at first: a hundred decisions.
const BUFFER: usize = 8 * 1024;

/// A handle to a connection. Clones share it.
#[derive(Clone)]
pub(super) struct Connection(Arc<Shared>);

/// State that the handles share with the task. A drop of the last handle ends nothing: its commands are still sent, and
/// their replies taken off the wire.
#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    task: AtomicWaker,
}

/// Commands to be written, and replies to come.
#[derive(Default)]
struct Queue {
    /// Added by the handles, taken by the task.
    commands: Vec<u8>,
    /// In the order of their commands, those that are not written yet among them. Answered by the task; at its drop
    /// they are dropped, which tells their callers that the replies are lost.
    awaited: VecDeque<oneshot::Sender<RedisResult<Value>>>,
    /// Set by the task, once.
    has_ended: bool,
}

/// A reply to come.
pub(super) struct ReplyReceiver(oneshot::Receiver<RedisResult<Value>>);

/// The task of a connection: the future ends with the connection, and the connection with the future.
pub(super) struct ConnectionTask<S> {
    shared: Arc<Shared>,
    stream: S,
    /// Commands that are being written, and how many bytes of them are.
    writing: Vec<u8>,
    written: usize,
    needs_flush: bool,
    /// Bytes received: those from `begin` to `end` are not decoded yet.
    received: Vec<u8>,
    begin: usize,
    end: usize,
    scanner: ReplyScanner,
}

impl Connection {
    /// A connection over a stream, and its task.
    pub(super) fn new<S: AsyncRead + AsyncWrite + Unpin>(stream: S) -> (Self, ConnectionTask<S>) {
        let shared = Arc::<Shared>::default();
        let task = ConnectionTask {
            shared: Arc::clone(&shared),
            stream,
            writing: Vec::new(),
            written: 0,
            needs_flush: false,
            received: vec![0; BUFFER],
            begin: 0,
            end: 0,
            scanner: ReplyScanner::new(),
        };
        (Self(shared), task)
    }

    /// Sends a command. After the end of the connection, the reply is lost.
    pub(super) fn send(&self, command: &PackedCommand) -> ReplyReceiver {
        let reply = self.0.queue().add(command);
        self.0.task.wake();
        reply
    }

    /// Sends commands, with no other between them.
    pub(super) fn send_all(&self, commands: &[PackedCommand]) -> Vec<ReplyReceiver> {
        let mut queue = self.0.queue();
        let replies = commands.iter().map(|command| queue.add(command)).collect();
        drop(queue);
        self.0.task.wake();
        replies
    }

    /// Sends a command and waits for its reply.
    ///
    /// # Errors
    /// The error that the server replied, or that ended the connection.
    pub(super) async fn query<T: redis::FromRedisValue>(&self, command: &redis::Cmd) -> RedisResult<T> {
        let reply = self.send(&command.into()).await?.extract_error()?;
        Ok(T::from_redis_value(reply)?)
    }
}

/// Waits for several replies.
pub(super) async fn all_replies(replies: Vec<ReplyReceiver>) -> RedisResult<Vec<Value>> {
    let mut values = Vec::with_capacity(replies.len());
    for reply in replies {
        values.push(reply.await?);
    }
    Ok(values)
}

impl Queue {
    fn add(&mut self, command: &PackedCommand) -> ReplyReceiver {
        let (sender, receiver) = oneshot::channel();
        // Without the sender, the reply is lost at once.
        if !self.has_ended {
            self.commands.extend_from_slice(command.as_bytes());
            self.awaited.push_back(sender);
        }
        ReplyReceiver(receiver)
    }
}

impl Shared {
    /// A panic under this lock leaves nothing half changed: its holders only move bytes and handles.
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock()
    }

    /// Ends the connection: awaited replies are lost, the first of them with the reason.
    fn end(&self, reason: Option<RedisError>) {
        let mut queue = self.queue();
        queue.has_ended = true;
        let mut awaited = std::mem::take(&mut queue.awaited);
        drop(queue);
        if let (Some(reason), Some(first)) = (reason, awaited.pop_front()) {
            // An error says that its caller has gone.
            let _ = first.send(Err(reason));
        }
    }
}

impl Future for ReplyReceiver {
    type Output = RedisResult<Value>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let reply = ready!(Pin::new(&mut self.0).poll(cx));
        Poll::Ready(reply.unwrap_or_else(|_| Err(closed())))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> ConnectionTask<S> {
    /// Receives and hands out what is there. Completes with the reason when the connection has ended.
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<RedisError> {
        loop {
            self.make_room();
            let mut buffer = ReadBuf::new(&mut self.received[self.end..]);
            if let Err(error) = ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buffer)) {
                return Poll::Ready(error.into());
            }
            let count = buffer.filled().len();
            self.end += count;
            if count == 0 {
                return Poll::Ready(closed());
            }
            if let Err(error) = self.hand_out() {
                return Poll::Ready(error);
            }
        }
    }

    /// Hands out all replies that are complete.
    fn hand_out(&mut self) -> RedisResult<()> {
        let mut queue = self.shared.queue();
        while let Some((reply, length)) = self.scanner.decode(&self.received[self.begin..self.end])? {
            self.begin += length;
            debug_assert!(self.begin <= self.end, "a reply is among the bytes that were received");
            let caller = queue.awaited.pop_front().ok_or_else(malformed)?;
            // An error says that the caller has gone.
            let _ = caller.send(Ok(reply));
        }
        Ok(())
    }

    /// Makes room to receive into: behind what is not decoded yet, or in a larger buffer.
    fn make_room(&mut self) {
        if self.begin == self.end {
            (self.begin, self.end) = (0, 0);
            if self.received.len() > BUFFER {
                // A large reply leaves no large buffer behind.
                self.received = vec![0; BUFFER];
            }
        } else if self.end == self.received.len() {
            self.received.copy_within(self.begin.., 0);
            (self.begin, self.end) = (0, self.end - self.begin);
            if self.end * 2 > self.received.len() {
                self.received.resize(self.received.len() * 2, 0);
            }
        }
    }

    /// Writes all commands that are there. Completes with the reason when the connection has ended.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<RedisError> {
        loop {
            if self.written == self.writing.len() {
                self.writing.clear();
                self.written = 0;
                std::mem::swap(&mut self.writing, &mut self.shared.queue().commands);
                if self.writing.is_empty() {
                    return self.poll_flush(cx);
                }
            }
            match ready!(Pin::new(&mut self.stream).poll_write(cx, &self.writing[self.written..])) {
                Ok(0) => return Poll::Ready(closed()),
                Ok(count) => {
                    self.written += count;
                    debug_assert!(self.written <= self.writing.len(), "no more is written than there is");
                }
                Err(error) => return Poll::Ready(error.into()),
            }
            self.needs_flush = true;
        }
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<RedisError> {
        if self.needs_flush {
            if let Err(error) = ready!(Pin::new(&mut self.stream).poll_flush(cx)) {
                return Poll::Ready(error.into());
            }
            self.needs_flush = false;
        }
        Poll::Pending
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Future for ConnectionTask<S> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let task = self.get_mut();
        // Before the look at the queue: a command that comes meanwhile wakes the task once more.
        task.shared.task.register(cx.waker());
        // Both directions go on in each turn: a server that cannot get rid of its replies reads no commands.
        let reason = match task.poll_receive(cx) {
            Poll::Ready(reason) => reason,
            Poll::Pending => ready!(task.poll_send(cx)),
        };
        task.shared.end(Some(reason));
        Poll::Ready(())
    }
}

impl<S> Drop for ConnectionTask<S> {
    fn drop(&mut self) {
        self.shared.end(None);
    }
}

fn closed() -> RedisError {
    io::Error::from(io::ErrorKind::BrokenPipe).into()
}

#[cfg(test)]
mod tests {
    use redis::cmd;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

    use super::*;

    fn connect(capacity: usize) -> (Connection, DuplexStream) {
        let (stream, server) = tokio::io::duplex(capacity);
        let (connection, task) = Connection::new(stream);
        tokio::spawn(task);
        (connection, server)
    }

    fn ping() -> PackedCommand {
        cmd("PING").into()
    }

    #[tokio::test]
    async fn commands_of_one_turn_are_written_at_once_and_answered_in_order() {
        let (connection, mut server) = connect(1 << 16);
        let replies: Vec<_> = (0..3).map(|_| connection.send(&ping())).collect();
        let mut received = [0; 1000];
        assert_eq!(server.read(&mut received).await.unwrap(), 3 * ping().as_bytes().len());
        server.write_all(b":1\r\n:2\r").await.unwrap();
        server.write_all(b"\n:3\r\n").await.unwrap();
        for (reply, number) in replies.into_iter().zip(1..) {
            assert_eq!(reply.await, Ok(Value::Int(number)));
        }
    }

    #[tokio::test]
    async fn end_of_the_connection_loses_what_is_awaited_and_what_follows() {
        let (connection, server) = connect(1 << 16);
        let replies = connection.send_all(&[ping(), ping()]);
        drop(server);
        for reply in replies {
            assert!(reply.await.unwrap_err().is_io_error());
        }
        assert!(connection.send(&ping()).await.unwrap_err().is_io_error());
    }

    #[tokio::test]
    async fn reply_of_a_dropped_call_is_skipped() {
        let (connection, mut server) = connect(1 << 16);
        drop(connection.send(&ping()));
        let reply = connection.send(&ping());
        server.write_all(b":1\r\n:2\r\n").await.unwrap();
        assert_eq!(reply.await, Ok(Value::Int(2)));
    }

    #[tokio::test]
    async fn reply_without_a_command_ends_the_connection() {
        let (connection, mut server) = connect(1 << 16);
        server.write_all(b":1\r\n").await.unwrap();
        assert_eq!(server.read(&mut [0]).await.unwrap(), 0);
        assert!(connection.send(&ping()).await.is_err());
    }

    #[tokio::test]
    async fn large_replies_and_commands_pass_through_small_buffers() {
        let (connection, mut server) = connect(100);
        let large = "x".repeat(100_000);
        let mut command = cmd("SET");
        command.arg(&large);
        let replies = [connection.send(&PackedCommand::from(&command)), connection.send(&ping())];
        let answer = async {
            let mut received = vec![0; PackedCommand::from(&command).as_bytes().len() + ping().as_bytes().len()];
            server.read_exact(&mut received).await.unwrap();
            server.write_all(format!("${}\r\n{large}\r\n+PONG\r\n", large.len()).as_bytes()).await.unwrap();
        };
        let [first, second] = replies;
        let (first, second, ()) = tokio::join!(first, second, answer);
        assert_eq!(first, Ok(Value::BulkString(large.clone().into_bytes())));
        assert_eq!(second, Ok(Value::SimpleString("PONG".into())));
    }
}
