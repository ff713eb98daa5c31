//! Rewriting of heads, in both directions: pure functions, which first remove and then set.
//!
//! Two doors, each used once for an exchange: [`rewrite_request`] turns the head of a client's request into the head
//! that goes to the upstream, and [`rewrite_response`] the head of the upstream's response into the head that goes to
//! the client. The trailers of a response follow later, through [`rewrite_trailers`].
//!
//! - Only a head that every server reads alike ([`ValidatedHead`]) can be forwarded.
//! - Nothing of the client's identity headers survives: a field is removed when its name is reserved, or has a
//!   character other than letters, digits and `-`. So `X_User_Id`, `x.user-id` and the like never arrive, whatever
//!   names the upstream's server takes for the same.
//! - Fields that upstreams commonly trust and clients can spoof (the client's address, another URL or method, another
//!   proxy's identity) are removed, unless the configuration lets one through by name.
//! - Hop-by-hop fields, and those that `Connection` names, are removed before the identity is set: a client cannot have
//!   the gateway's own fields removed by naming them.
//! - The gateway's own cookies are credentials, and are not forwarded.
//! - Framing is set anew, from the body, in both directions.

mod validated_head;
mod client;
mod request;
mod target;
mod response;
mod trailers;
mod features;
mod hop_by_hop;
mod field_names;
mod passed_fields;
mod cookies;

pub use client::{Client, ConnectionClients, Proto, TrustedProxies};
pub use features::{AllowedFeatures, RequestFeatures};
pub use field_names::untrusted_names;
pub use passed_fields::{InvalidPassedField, PassedField, PassedFields};
pub use request::{ForwardContext, HostPolicy, UpstreamRequest, identity_fields, rewrite_request};
pub use response::{InvalidResponse, ResponseOrigin, rewrite_response};
pub use trailers::rewrite_trailers;
pub use validated_head::{InvalidHead, ValidatedHead};
