//! Channel between two processes: messages as JSON with open files, over a Unix socket.
//!
//! A message is its length in four bytes, big-endian, and then its JSON. The files come with its first byte.

use std::io::{self, IoSlice, IoSliceMut, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Time in which the other process must take its next step. Requests at an embedded state wait for two of them at most.
pub(super) const STEP_TIMEOUT: Duration = Duration::from_secs(10);
/// Files of one message at most; the kernel takes 253.
pub(super) const MAX_FILES: usize = 128;
/// Bytes of a message at most.
const MAX_MESSAGE: usize = 1 << 20;

/// One end of a channel. Blocks, at most for its time-out.
#[derive(Debug)]
pub(super) struct Channel {
    stream: UnixStream,
    timeout: Option<Duration>,
}

impl Channel {
    pub(super) fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(false)?;
        Ok(Self { stream, timeout: None })
    }

    /// Another handle on the same end.
    pub(super) fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { stream: self.stream.try_clone()?, timeout: self.timeout })
    }

    /// Sets the time that receiving a whole message, and sending a part of one, may take; none: any time.
    pub(super) fn set_timeout(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.timeout = timeout;
        self.stream.set_read_timeout(timeout)?;
        self.stream.set_write_timeout(timeout)
    }

    /// Sends a message without files.
    pub(super) fn send(&self, message: &impl Serialize) -> io::Result<()> {
        self.send_with_files(message, &[])
    }

    /// Sends a message with at most [`MAX_FILES`] files.
    pub(super) fn send_with_files(&self, message: &impl Serialize, files: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut bytes = vec![0; 4];
        serde_json::to_writer(&mut bytes, message)?;
        let length = u32::try_from(bytes.len() - 4).map_err(io::Error::other)?;
        bytes[..4].copy_from_slice(&length.to_be_bytes());
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FILES))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() && !control.push(SendAncillaryMessage::ScmRights(files)) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let sent = rustix::net::sendmsg(&self.stream, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL)?;
        (&self.stream).write_all(&bytes[sent..])
    }

    /// Receives the next message, and its files.
    ///
    /// # Errors
    /// `TimedOut` when the message is not whole in time, however steadily its bytes come.
    pub(super) fn receive<T: DeserializeOwned>(&self) -> io::Result<(T, Vec<OwnedFd>)> {
        let deadline = self.timeout.map(|timeout| Instant::now() + timeout);
        let mut files = Vec::new();
        let mut length = [0; 4];
        self.read_exact(&mut length, &mut files, deadline)?;
        let length = u32::from_be_bytes(length) as usize;
        if length > MAX_MESSAGE {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut bytes = vec![0; length];
        self.read_exact(&mut bytes, &mut files, deadline)?;
        Ok((serde_json::from_slice(&bytes)?, files))
    }

    fn read_exact(&self, mut out: &mut [u8], files: &mut Vec<OwnedFd>, deadline: Option<Instant>) -> io::Result<()> {
        while !out.is_empty() {
            self.limit_read(deadline)?;
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FILES))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let flags = RecvFlags::CMSG_CLOEXEC;
            let read = match rustix::net::recvmsg(&self.stream, &mut [IoSliceMut::new(out)], &mut control, flags) {
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => return Err(io::ErrorKind::TimedOut.into()),
                received => received?.bytes,
            };
            for message in control.drain() {
                if let RecvAncillaryMessage::ScmRights(rights) = message {
                    files.extend(rights);
                }
            }
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            out = &mut out[read..];
        }
        Ok(())
    }

    /// Limits the next read to the time that is left.
    fn limit_read(&self, deadline: Option<Instant>) -> io::Result<()> {
        let Some(deadline) = deadline else { return Ok(()) };
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::fd::AsFd as _;

    use super::*;

    #[test]
    fn messages_arrive_one_by_one_each_with_its_own_files() {
        let (one, other) = UnixStream::pair().unwrap();
        let one = Channel::new(one).unwrap();
        let other = Channel::new(other).unwrap();
        let files: Vec<_> = (0..3).map(|_| UnixStream::pair().unwrap()).collect();
        one.send(&"first").unwrap();
        one.send_with_files(&"second", &[files[0].0.as_fd(), files[1].0.as_fd()]).unwrap();
        one.send_with_files(&"third", &[files[2].0.as_fd()]).unwrap();
        let (text, none) = other.receive::<String>().unwrap();
        assert_eq!((text.as_str(), none.len()), ("first", 0));
        let (text, two) = other.receive::<String>().unwrap();
        assert_eq!((text.as_str(), two.len()), ("second", 2));
        let (text, third) = other.receive::<String>().unwrap();
        assert_eq!((text.as_str(), third.len()), ("third", 1));
        let mut received = UnixStream::from(third.into_iter().next().unwrap());
        received.write_all(b"x").unwrap();
        drop(received);
        (&files[2].1).read_exact(&mut [0]).unwrap();
        drop(one);
        assert_eq!(other.receive::<String>().unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn received_files_are_not_inherited_by_children() {
        let (one, other) = UnixStream::pair().unwrap();
        let one = Channel::new(one).unwrap();
        let other = Channel::new(other).unwrap();
        one.send_with_files(&"files", &[one.stream.as_fd()]).unwrap();
        let (_, files) = other.receive::<String>().unwrap();
        let flags = rustix::io::fcntl_getfd(&files[0]).unwrap();
        assert!(flags.contains(rustix::io::FdFlags::CLOEXEC), "{flags:?}");
    }

    #[test]
    fn message_that_is_too_long_is_refused_before_it_comes() {
        let (mut one, other) = UnixStream::pair().unwrap();
        one.write_all(&u32::MAX.to_be_bytes()).unwrap();
        let mut other = Channel::new(other).unwrap();
        other.set_timeout(Some(Duration::from_secs(60))).unwrap();
        assert_eq!(other.receive::<String>().unwrap_err().kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn silent_peer_times_out() {
        let (one, _other) = UnixStream::pair().unwrap();
        let mut one = Channel::new(one).unwrap();
        one.set_timeout(Some(Duration::from_millis(10))).unwrap();
        assert_eq!(one.receive::<String>().unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn peer_that_sends_a_byte_now_and_then_times_out() {
        let (one, mut other) = UnixStream::pair().unwrap();
        let mut one = Channel::new(one).unwrap();
        one.set_timeout(Some(Duration::from_millis(200))).unwrap();
        std::thread::scope(|scope| {
            // Ends when the other end is closed.
            scope.spawn(move || {
                other.write_all(&1000_u32.to_be_bytes()).unwrap();
                while other.write_all(b" ").is_ok() {
                    std::thread::sleep(Duration::from_millis(20));
                }
            });
            assert_eq!(one.receive::<String>().unwrap_err().kind(), io::ErrorKind::TimedOut);
            drop(one);
        });
    }
}
