//! The control plane: what changes the records that requests are decided by.
//!
//! [`management`] has one function for each operation on organizations, users, keys and sessions. [`admin`] offers them
//! on a socket for the operator, [`management_api`] to programs, [`dashboard`] to people, who sign in with [`oidc`]:
//! all three mount one [`api`], and the dashboard has pages.
//! [`federation`] exchanges tokens of CIs for keys, and [`leaks`] ends keys that others can read.

pub mod management;
pub mod api;
pub mod admin;
pub mod dashboard;
pub mod management_api;
pub mod federation;
pub mod leaks;
pub mod oidc;
mod request;
mod served_calls;
mod person_limiter;
mod json_input;
mod distinct_json;
mod secret_text;

/// The example of the README is compiled and run with the tests of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
