//! The audit journal ([`audit`]), and the shippers that follow it and deliver its records ([`shipping`]).

pub mod audit;
pub mod shipping;
