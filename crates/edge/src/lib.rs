//! The downstream side of the gateway: connections and strict heads ([`transport`]), and the rewriting of heads in both
//! directions ([`forward`]).

pub mod transport;
pub mod forward;

/// The example of the README is compiled and run with the tests of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
