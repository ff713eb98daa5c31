//! Exchange: what happens to a request, from its first try to the end of its response.

pub(super) mod retry;
pub(super) mod send_options;
pub(super) mod replay_body;
pub(super) mod attempt;
mod http1_send;
mod http2_send;
pub(super) mod send_again;
mod finish;
pub(super) mod response;
pub(super) mod response_body;
pub(super) mod tunnel;
