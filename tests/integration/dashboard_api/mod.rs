//! The management API, as programs in a browser use it: operations, permissions, errors, and its OpenAPI document.

mod fixture;

mod users;
mod changes;
mod keys;
mod examples;
mod plans;
mod policies;
mod requests;
mod lists;
mod limits;
mod people;
mod tokens;
mod schemathesis;
