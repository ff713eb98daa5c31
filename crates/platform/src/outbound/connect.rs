//! TCP connection to a host, whose addresses are tried in turn.

use std::io;
use std::time::Duration;

use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

/// Time-out of a connection to one address, so that one that does not answer leaves time for the next.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Reason why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The host name cannot be resolved.
    #[error("its name cannot be resolved")]
    Name(#[source] io::Error),
    /// No address of the host accepts a connection.
    #[error("cannot connect to it")]
    Connect(#[source] io::Error),
}

/// Connects to a host, a name or an address without brackets.
///
/// # Errors
/// [`ConnectError`]: there is no such name, or the failure of the last address.
pub async fn connect(host: &str, port: u16) -> Result<TcpStream, ConnectError> {
    let addresses = lookup_host((host, port)).await.map_err(ConnectError::Name)?;
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for address in addresses {
        match timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => last = error,
            Err(_) => last = io::ErrorKind::TimedOut.into(),
        }
    }
    Err(ConnectError::Connect(last))
}
