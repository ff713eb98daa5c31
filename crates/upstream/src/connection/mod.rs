//! Connections: what carries a request. Their sockets, what is scanned of the bytes that come over them, their bounds,
//! and how a request gets one: a pooled one, or a new one.

pub(super) mod limits;
pub(super) mod lifetime;
pub(super) mod held_writes;
pub(super) mod socket;
pub(super) mod head_scan;
pub(super) mod added_lines;
pub(super) mod sent_head;
pub(super) mod scanned_stream;
pub(super) mod scanned_http2;
pub(super) mod http1;
pub(super) mod http2;
pub(super) mod http2_connections;
pub(super) mod idle;
pub(super) mod endpoint_connections;
pub(super) mod connect_budget;
pub(super) mod carrier;
pub(super) mod pool_state;
pub(super) mod reservation;
pub(super) mod upkeep;
