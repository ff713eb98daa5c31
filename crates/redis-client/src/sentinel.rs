//! Finding the primary by asking the sentinels.

use std::time::Duration;

use redis::cmd;
use tokio::time::timeout;

use super::dial::{ConnectError, dial};
use super::settings::Address;
use super::shared::ClientShared;

/// Time-out of one sentinel; then the next one is asked.
const SENTINEL_TIMEOUT: Duration = Duration::from_millis(300);

/// The primary of the service, as reported by the first sentinel that answers.
///
/// `attempt` selects the sentinel to begin with. It must differ from call to call: a sentinel that is cut off from the
/// others keeps naming a primary that has been replaced.
pub(super) async fn find_primary(
    shared: &ClientShared,
    sentinels: &[Address],
    service: &str,
    attempt: usize,
) -> Result<Address, ConnectError> {
    let mut error = ConnectError::NoSentinel;
    let first = attempt % sentinels.len().max(1);
    for sentinel in sentinels[first..].iter().chain(&sentinels[..first]) {
        match timeout(SENTINEL_TIMEOUT, query_sentinel(shared, sentinel, service)).await {
            Ok(Ok(Some(primary))) => return Ok(primary),
            Ok(Ok(None)) => error = ConnectError::UnknownService(service.to_owned()),
            Ok(Err(failed)) => error = failed,
            Err(_) => error = ConnectError::Silent(SENTINEL_TIMEOUT),
        }
    }
    Err(error)
}

async fn query_sentinel(
    shared: &ClientShared,
    sentinel: &Address,
    service: &str,
) -> Result<Option<Address>, ConnectError> {
    let (connection, _driver) = dial(shared, sentinel, &shared.settings.sentinel_login.load(), 0).await?;
    let mut query = cmd("SENTINEL");
    query.arg("GET-MASTER-ADDR-BY-NAME").arg(service);
    let reply: Option<(String, u16)> = connection.query(&query).await?;
    Ok(reply.map(|(host, port)| Address { host, port }))
}
