//! Retries: which failed requests are sent again, and how many.
//!
//! | the try ended with | sent again | to |
//! |---|---|---|
//! | a pooled connection that died before a byte of the response (`stale`) | repeatable requests | another endpoint, or the same one |
//! | a new connection, or a stream, that broke before a byte of the response (`broken`) | repeatable requests | another endpoint |
//! | no byte of a response within `per_try_timeout` (`timeout`) | repeatable requests | another endpoint |
//! | a response with one of `statuses` (`status`) | repeatable requests | another endpoint |
//! | REFUSED_STREAM, or a GOAWAY that excludes the stream (`refused`) | every request: it was not processed | another endpoint, or the same one |
//!
//! - A request is repeatable when its method is idempotent (RFC 9110, section 9.2.2), or its route declares it so, and
//!   its body is not larger than `max_body`: up to then its bytes are kept.
//! - The client has seen nothing of a response that is not its own: a try ends before the head is returned.
//! - A try that reaches `per_try_timeout` is given up only when the request can be sent again; else it goes on.
//! - No retry prolongs an exchange: `timeouts.exchange` counts from the first try, and all tries together have
//!   `timeouts.response` for the head.
//! - The retries of all workers share one budget ([`crate::endpoint::retry_budget`]): of N requests at most
//!   `N * budget + 10` are sent again.
//! - An endpoint that has sent 503 with `Retry-After` twice in a row gets no retries, and is avoided until then
//!   ([`crate::endpoint::pause`]).

mod settings;
mod reason;

pub(crate) use reason::RetryReason;
pub use settings::{RetrySettings, RetryStatuses};
