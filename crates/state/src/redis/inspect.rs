//! Inspection of the Redis of a configuration, for diagnosis. It writes nothing.

use super::settings::Settings;
use platform::tls;
use redis_client::{ClientShared, ConnectError, describe_servers};

pub use redis_client::{InspectedServer, ServerDescription};

/// Reason why no server can be found.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    /// A TLS file cannot be used.
    #[error("the TLS files cannot be used")]
    Tls(#[from] tls::Error),
    /// No sentinel reports the primary.
    #[error("the sentinels report no primary")]
    Sentinels(#[from] ConnectError),
}

/// Describes all servers that hold the state.
///
/// # Errors
/// [`InspectError`]; a server that does not answer is in the list, with its error.
pub async fn inspect(settings: &Settings) -> Result<Vec<InspectedServer>, InspectError> {
    let shared = ClientShared::new(settings.connections())?;
    Ok(describe_servers(&shared).await?)
}
