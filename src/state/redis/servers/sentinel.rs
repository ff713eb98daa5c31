//! Asking the sentinels who the primary is.

use redis::{RedisConnectionInfo, cmd};

use super::connect::{ConnectError, Connector};
use crate::state::redis::settings::Address;

/// The primary of the service, as the first sentinel that answers says.
pub(super) async fn primary(
    connector: &Connector,
    sentinels: &[Address],
    service: &str,
) -> Result<Address, ConnectError> {
    let mut error = ConnectError::NoSentinel;
    for sentinel in sentinels {
        match ask(connector, sentinel, service).await {
            Ok(Some(primary)) => return Ok(primary),
            Ok(None) => error = ConnectError::UnknownService(service.to_owned()),
            Err(failed) => error = failed,
        }
    }
    Err(error)
}

async fn ask(connector: &Connector, sentinel: &Address, service: &str) -> Result<Option<Address>, ConnectError> {
    let login = connector.login(&connector.settings().sentinel_login, 0);
    let login: RedisConnectionInfo = login;
    let (mut connection, _driver) = connector.establish(sentinel, &login).await?;
    let mut question = cmd("SENTINEL");
    question.arg("GET-MASTER-ADDR-BY-NAME").arg(service);
    let answer: Option<(String, u16)> = question.query_async(&mut connection).await?;
    Ok(answer.map(|(host, port)| Address { host, port }))
}
