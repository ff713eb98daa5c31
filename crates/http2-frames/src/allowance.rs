//! Allowance of frames that ask for nothing.

use tokio::time::Instant;

use super::FrameError;

/// Credit for a second.
const PER_SECOND: u32 = 20;
/// Bytes that pay for one WINDOW_UPDATE of their receiver.
const BYTES_PER_UPDATE: u64 = 512;

/// Rest of a peer's allowance.
#[derive(Debug)]
pub(super) struct Allowance {
    /// The most that `left` can be.
    max: u32,
    left: u32,
    refilled: Instant,
    /// Bytes that were sent to the peer and have not paid for a WINDOW_UPDATE yet.
    sent: u64,
}

impl Allowance {
    /// Allowance of so many frames at the beginning, and of `max` when all credit is saved up.
    pub(super) fn new(left: u32, max: u32) -> Self {
        Self { max, left, refilled: Instant::now(), sent: 0 }
    }

    pub(super) fn credit(&mut self, frames: u32) {
        self.left = self.left.saturating_add(frames).min(self.max);
    }

    /// Credits bytes that were sent to the peer: it makes room for more with WINDOW_UPDATE frames.
    pub(super) fn credit_sent(&mut self, bytes: usize) {
        self.sent = self.sent.saturating_add(bytes as u64);
    }

    /// Spends the price of a WINDOW_UPDATE: bytes that were sent, or else one frame.
    pub(super) fn spend_update(&mut self) -> Result<(), FrameError> {
        match self.sent.checked_sub(BYTES_PER_UPDATE) {
            Some(rest) => {
                self.sent = rest;
                Ok(())
            }
            None => self.spend(1),
        }
    }

    pub(super) fn spend(&mut self, frames: u32) -> Result<(), FrameError> {
        // The clock is read only when the allowance is used up.
        if self.left < frames {
            let seconds = u32::try_from(self.refilled.elapsed().as_secs()).unwrap_or(u32::MAX);
            if seconds > 0 {
                self.refilled = Instant::now();
                self.credit(seconds.saturating_mul(PER_SECOND));
            }
        }
        self.left = self.left.checked_sub(frames).ok_or(FrameError::Flood)?;
        Ok(())
    }
}
