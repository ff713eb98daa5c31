//! PostgreSQL, version 15 or newer: its settings, connections to it, and the migrations of schemas.
//!
//! ```text
//! Settings::parse(url)?               host, database, user; the password may come from a file
//!     Connector::open(&settings)?     reads the TLS files
//!         .connect(name).await?       a client; its connection runs in a task until the client is dropped
//! migrate(&mut client, &SCHEMA)       brings one schema to the version of this program, never back
//! build_pool(&connector, options)?    a pool of such connections (`deadpool-postgres`), each with its session set up
//! ```
//!
//! - A URL never shows up in an error or in `Debug`: it may contain a password.
//! - TLS is either required or not used. `sslmode=prefer` is rejected, because it falls back to plain text when
//!   a machine in the path removes the offer of TLS.

mod connector;
mod error;
mod migrations;
mod pool;
mod section;
mod settings;

pub use connector::Connector;
pub use error::Error;
pub use migrations::{Migration, Schema, migrate};
pub use pool::{Pool, PoolOptions, build_pool};
pub use section::read_database;
pub use settings::{InvalidUrl, Settings};
