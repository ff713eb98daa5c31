//! Shared state on Redis: any number of gateways over one truth.

mod settings;
mod url;

pub use settings::{Address, Clock, Durability, Login, OnUnavailable, Servers, Settings, Tls};
pub use url::{InvalidUrl, Url};
