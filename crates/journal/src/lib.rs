//! The audit journal ([`audit`]), and the shippers that follow it and deliver its records ([`shipping`]).

mod files;

pub mod audit;
pub mod shipping;

/// The example of the README is compiled and run with the tests of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
