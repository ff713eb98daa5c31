//! The view of the audit over all gateways: PostgreSQL, joined with what a gateway has not shipped.

mod fixture;
mod joined;
mod gateways;
mod missing;
mod queries;
mod rollup;
