//! Reason why a Redis state could not be opened.

use std::sync::Arc;

use platform::tls;
use redis_client::ConnectError;

use super::format::OtherVersion;

/// The Redis state could not be opened. It is no error that no server can be reached: one may come back.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The certificates cannot be used.
    #[error(transparent)]
    Tls(#[from] tls::Error),
    /// A server answers and cannot be used as it is configured.
    #[error("the Redis server cannot be used")]
    Server(#[source] Arc<ConnectError>),
    /// Another version of keygate wrote the records.
    #[error(transparent)]
    OtherVersion(#[from] OtherVersion),
    /// The operating system gives no randomness.
    #[error("the operating system gives no randomness")]
    Randomness(#[from] getrandom::Error),
}
