//! Maps errors of commands to the ways in which a state can be unavailable, and bounds reads.

use std::time::Duration;

use tokio::time::timeout;

use crate::Unavailable;
use redis_client::CommandError;

/// Time-out of a read for management.
const READ_TIMEOUT: Duration = Duration::from_secs(5);

impl From<&CommandError> for Unavailable {
    fn from(error: &CommandError) -> Self {
        match error {
            CommandError::Unreachable | CommandError::Lost(_) => Self::Unreachable,
            CommandError::Overloaded => Self::Overloaded,
            CommandError::Refused(_) | CommandError::UnexpectedReply => Self::ErrorReply,
        }
    }
}

impl From<CommandError> for Unavailable {
    fn from(error: CommandError) -> Self {
        Self::from(&error)
    }
}

/// Runs a read for management within its time-out.
///
/// # Errors
/// [`Unavailable`].
pub(crate) async fn read<T, E>(read: impl Future<Output = Result<T, E>>) -> Result<T, Unavailable>
where
    E: std::fmt::Display,
    for<'a> Unavailable: From<&'a E>,
{
    match timeout(READ_TIMEOUT, read).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => {
            tracing::debug!(%error, "cannot read from Redis");
            Err((&error).into())
        }
        Err(_) => Err(Unavailable::TimedOut),
    }
}
