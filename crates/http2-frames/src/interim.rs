//! Interim responses (1xx) of an upstream, before the final ones.

use super::FrameError;

/// Error code that stands for any code in a reset of a stream that interim responses have answered: such a request was
/// not refused before it was processed, whatever the upstream says.
pub const ANSWERED: u32 = 0x6b67_0001;

/// Streams that interim responses have answered and no final one yet. Nearly always none.
#[derive(Debug, Default)]
pub(super) struct InterimResponses(Vec<(u32, u8)>);

impl InterimResponses {
    /// Counts an interim response of a stream. Returns false when it is one more than `most`.
    pub(super) fn count(&mut self, stream: u32, most: u8) -> bool {
        match self.0.iter_mut().find(|(counted, _)| *counted == stream) {
            None => self.0.push((stream, 1)),
            Some((_, count)) if *count < most => *count += 1,
            Some(_) => {
                self.end(stream);
                return false;
            }
        }
        true
    }

    /// Forgets a stream: a final response has come, or the stream has ended. Returns whether interim ones had answered
    /// it.
    pub(super) fn end(&mut self, stream: u32) -> bool {
        let before = self.0.len();
        self.0.retain(|(counted, _)| *counted != stream);
        self.0.len() < before
    }

    /// The highest of the streams; none when there are none.
    pub(super) fn highest(&self) -> Option<u32> {
        self.0.iter().map(|(stream, _)| *stream).max()
    }

    /// Raises the last stream of a GOAWAY to those that interim responses have answered: the upstream has begun with
    /// them.
    pub(super) fn raise_last_stream(&self, payload: &mut [u8]) -> Result<(), FrameError> {
        let Some(highest) = self.highest() else { return Ok(()) };
        let last = payload.first_chunk_mut::<4>().ok_or(FrameError::Malformed)?;
        if u32::from_be_bytes(*last) & 0x7fff_ffff < highest {
            *last = highest.to_be_bytes();
        }
        Ok(())
    }
}
