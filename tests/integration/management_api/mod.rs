//! The management API, as programs on other machines see it, on both states.

pub(crate) mod fixture;
mod caller;
mod callers;
mod lists;
mod inputs;
mod calls;
mod apply;
mod conditions;
mod patches;
mod plans;
mod isolation;
mod calls_at_random;
mod stranger;
mod races;
mod tokens;
mod export;
mod federation_rules;
mod leaks;
mod schemathesis;
