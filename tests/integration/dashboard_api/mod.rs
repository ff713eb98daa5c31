//! The management API, as programs in a browser use it: what it does, for whom, and that its description is true.

mod document;
mod rig;

mod users;
mod keys;
mod requests;
mod schemathesis;
