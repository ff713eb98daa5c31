//! Web sessions and tickets.

use super::Embedded;
use crate::clock::Micros;
use crate::session::TokenDigest;
use crate::state::{ChangeError, Session};

impl Embedded {
    /// See [`crate::state::State::session`].
    pub fn session(&self, _digest: &TokenDigest, _now: Micros) -> Option<Session> {
        None
    }

    /// See [`crate::state::State::sessions`].
    pub fn sessions(&self, _now: Micros) -> Vec<Session> {
        Vec::new()
    }

    /// See [`crate::state::State::take_ticket`].
    pub async fn take_ticket(&self, _digest: &TokenDigest, _now: Micros) -> Result<Option<Vec<u8>>, ChangeError> {
        Ok(None)
    }
}
