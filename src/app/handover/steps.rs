//! Steps of the new process, as the old one awaits them: each for a bounded time.

use std::io;
use std::time::{Duration, Instant};

use super::channel::Channel;
use super::message::FromNew;
use super::peer::PeerProcess;

/// Time for a process that was killed to end, or for one that cannot be killed to serve after all.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// End of the wait for the new process.
pub(super) enum Service {
    Begun,
    /// The process has ended.
    Ended(io::Error),
    /// It hangs, and cannot be killed: it may go on at any time.
    Unknown(io::Error),
}

/// Waits until the new process serves. When it hangs, it is killed: two processes must not have the same state.
pub(super) fn wait_for_service(channel: &mut Channel, peer: PeerProcess) -> Service {
    let Err(error) = expect(channel, &FromNew::Serving) else { return Service::Begun };
    let is_killed = peer.kill();
    let deadline = Instant::now() + END_TIMEOUT;
    if let Err(error) = channel.set_timeout(Some(END_TIMEOUT)) {
        return Service::Unknown(error);
    }
    loop {
        match expect(channel, &FromNew::Serving) {
            // Slow, and alive.
            Ok(()) if !is_killed => return Service::Begun,
            // Its end closes the channel.
            Err(end) if has_closed(&end) => return Service::Ended(error),
            _ if Instant::now() >= deadline => return Service::Unknown(error),
            _ => {}
        }
    }
}

fn has_closed(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset)
}

/// Receives a message, which must be this one.
pub(super) fn expect(channel: &Channel, expected: &FromNew) -> io::Result<()> {
    let (message, _) = channel.receive::<FromNew>()?;
    if message == *expected {
        Ok(())
    } else {
        Err(io::Error::other(format!("{message:?} came in place of {expected:?}")))
    }
}
