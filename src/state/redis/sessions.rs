//! Web sessions and tickets.

use super::Redis;
use crate::clock::Micros;
use crate::session::TokenDigest;
use crate::state::{ChangeError, Session, Unavailable};

impl Redis {
    /// See [`crate::state::State::session`].
    pub async fn session(&self, _digest: &TokenDigest, _now: Micros) -> Result<Option<Session>, Unavailable> {
        Ok(None)
    }

    /// See [`crate::state::State::sessions`].
    pub async fn sessions(&self, _now: Micros) -> Result<Vec<Session>, Unavailable> {
        Ok(Vec::new())
    }

    /// See [`crate::state::State::take_ticket`].
    pub async fn take_ticket(&self, _digest: &TokenDigest, _now: Micros) -> Result<Option<Vec<u8>>, ChangeError> {
        Ok(None)
    }
}
