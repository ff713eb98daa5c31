//! Asking the sentinels who the primary is.

use std::sync::atomic::Ordering;
use std::time::Duration;

use redis::cmd;
use tokio::time::timeout;

use super::connect::{ConnectError, Connector};
use crate::state::redis::settings::Address;

/// How long a sentinel may take: there are others.
const PATIENCE: Duration = Duration::from_millis(300);

/// The primary of the service, as the first sentinel that answers says.
pub(super) async fn primary(
    connector: &Connector,
    sentinels: &[Address],
    service: &str,
) -> Result<Address, ConnectError> {
    let mut error = ConnectError::NoSentinel;
    // Each time another one is asked first: one that is cut off from the others names a primary that is none any more.
    let first = connector.attempts.fetch_add(1, Ordering::Relaxed) % sentinels.len().max(1);
    for sentinel in sentinels[first..].iter().chain(&sentinels[..first]) {
        match timeout(PATIENCE, ask(connector, sentinel, service)).await {
            Ok(Ok(Some(primary))) => return Ok(primary),
            Ok(Ok(None)) => error = ConnectError::UnknownService(service.to_owned()),
            Ok(Err(failed)) => error = failed,
            Err(_) => error = ConnectError::Silent(PATIENCE),
        }
    }
    Err(error)
}

async fn ask(connector: &Connector, sentinel: &Address, service: &str) -> Result<Option<Address>, ConnectError> {
    let login = connector.login(&connector.settings().sentinel_login, 0);
    let (mut connection, _driver) = connector.establish(sentinel, &login).await?;
    let mut question = cmd("SENTINEL");
    question.arg("GET-MASTER-ADDR-BY-NAME").arg(service);
    let answer: Option<(String, u16)> = question.query_async(&mut connection).await?;
    Ok(answer.map(|(host, port)| Address { host, port }))
}
