//! The downstream side of the gateway: connections and strict heads ([`transport`]), and the rewriting of heads in both
//! directions ([`forward`]).

pub mod transport;
pub mod forward;
