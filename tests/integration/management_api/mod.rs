//! The management API, as programs on other machines see it, on both states.

mod fixture;
mod calls;
mod conditions;
mod isolation;
mod races;
mod tokens;
