//! Not yet.

mod settings;

pub use settings::Settings;
