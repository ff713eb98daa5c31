//! Not yet.

mod settings;

pub use settings::RouteSettings;
