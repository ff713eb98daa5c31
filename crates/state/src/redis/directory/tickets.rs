//! Tickets: values that can be taken once. Each is a record in a hash slot by its digest, which Redis deletes when it
//! expires.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use redis::{FromRedisValue as _, Value};
use tokio::time::timeout;

use super::check::Check;
use super::commit_error::CommitError;
use super::sessions::milliseconds;
use super::transactions::{CHANGE_TIMEOUT, Transactions};
use crate::{ChangeError, StorageError, TicketSource, Unavailable};
use domain::clock::Micros;
use domain::session::TokenDigest;
use redis_client::CommandError;

/// Tickets, over the transactions of one thread.
#[derive(Clone, Copy)]
pub(crate) struct Tickets<'a>(pub(crate) &'a Transactions);

impl Tickets<'_> {
    pub(super) async fn put(
        self,
        digest: &TokenDigest,
        content: &[u8],
        expires: Micros,
        source: TicketSource,
    ) -> Result<u32, CommitError> {
        let name = self.0.shared.names.ticket(digest);
        let (mut transaction, record) = self.0.transaction_on::<CommitError>(name);
        let content = BASE64.encode(content);
        if source == TicketSource::Gateway {
            transaction.check(Check::Free(record, "content", &content), ChangeError::Taken("ticket").into());
        }
        transaction.hset(record, &[("content", content), ("expires", expires.0.to_string())]);
        transaction.pexpireat(record, milliseconds(expires));
        self.0.commit(transaction).await?.into_replicas()
    }

    /// Takes a ticket. See [`crate::State::take_ticket`].
    ///
    /// # Errors
    /// [`ChangeError::Unavailable`]; the ticket may be gone then. Also when too few replicas know that it was taken:
    /// after a failover it could be taken again.
    pub(crate) async fn take(self, digest: &TokenDigest, now: Micros) -> Result<Option<Vec<u8>>, ChangeError> {
        let limit = CHANGE_TIMEOUT + self.0.shared.settings.durability.timeout;
        let taken = timeout(limit, self.take_once(digest, now)).await;
        taken
            .unwrap_or(Err(Unavailable::TimedOut))
            .map_err(|error| ChangeError::Unavailable(StorageError::Redis(error)))
    }

    async fn take_once(self, digest: &TokenDigest, now: Micros) -> Result<Option<Vec<u8>>, Unavailable> {
        let name = self.0.shared.names.ticket(digest);
        let (reply, replicas) = self.0.run_take_ticket(&name).await?;
        if reply == Value::Nil {
            return Ok(None);
        }
        if replicas < self.0.shared.settings.durability.replicas {
            return Err(Unavailable::TimedOut);
        }
        let (content, expires) = <(String, u64)>::from_redis_value(reply).map_err(CommandError::from)?;
        let content = BASE64.decode(content).map_err(|_| CommandError::UnexpectedReply)?;
        Ok(Some(content).filter(|_| now.0 < expires))
    }
}
