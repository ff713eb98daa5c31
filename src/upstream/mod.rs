//! Not yet.

mod settings;

pub use settings::{Endpoint, Settings};
