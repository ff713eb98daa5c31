//! The view of the audit over all gateways: what PostgreSQL has, and what a gateway has not shipped.

mod fixture;
mod fleet;
mod gateways;
mod missing;
mod queries;
mod rollup;
