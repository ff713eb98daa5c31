//! Consumers and keys of other gateways, read from their files: what `keygate convert` makes a document of.
//!
//! - A pure function of the text and the options, which have the time: it opens no state and no socket.
//! - Keys are hashed where they are read. No output has one: findings name places, and a name that is a key is an
//!   error.
//! - An error anywhere means no users at all. What has no counterpart is listed.
//! - Memory: the text of the file, one of its records, and some 400 bytes for each consumer.
//!
//! One table says what becomes of each field in each dialect (`table`); one reader goes by it (`reader`). Operations of
//! an OpenAPI document become routes (`openapi`). Nothing on the path of a request links this crate.

mod options;
mod table;
mod policies;
mod reader;
mod limit;
mod key_text;
mod placeholder;
mod consumer;
mod users;
mod field;
mod report;
mod openapi;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use domain::plan_name::PlanName;
use domain::quota::Quota;
use zeroize::Zeroizing;

pub use openapi::{PermissionFrom, Route, routes};
pub use options::{Dialect, Options};
pub use report::Report;
pub use users::{User, UserKey};

/// Bytes of a file at most: more than a million consumers.
const MAX_FILE: u64 = 512 << 20;

/// Users and keys of a file.
#[derive(Debug)]
pub struct Conversion {
    /// Users with their keys.
    pub users: Vec<User>,
    /// Plans that the configuration needs: limits that many users have.
    pub plans: BTreeMap<PlanName, Quota>,
    /// Values that are left out, and warnings.
    pub report: Report,
}

/// Error of a conversion.
#[derive(Debug, thiserror::Error)]
pub enum ConvertError {
    /// The file cannot be read.
    #[error("cannot be read")]
    Unreadable(#[source] io::Error),
    /// The file is too large.
    #[error("cannot be read: it is larger than {} MiB; split it", MAX_FILE >> 20)]
    TooLarge,
    /// The file has errors, which the report lists.
    #[error("{0}, so nothing was converted")]
    Flawed(Box<Report>),
}

/// Reads a file, whose text has keys; `-` is standard input.
///
/// # Errors
/// [`ConvertError::Unreadable`], [`ConvertError::TooLarge`].
pub fn read(file: &Path) -> Result<Zeroizing<String>, ConvertError> {
    let mut text = Zeroizing::new(String::new());
    let length = if file == Path::new("-") {
        io::stdin().lock().take(MAX_FILE + 1).read_to_string(&mut text)
    } else {
        File::open(file).and_then(|file| file.take(MAX_FILE + 1).read_to_string(&mut text))
    };
    let length = length.map_err(ConvertError::Unreadable)?;
    if length as u64 > MAX_FILE { Err(ConvertError::TooLarge) } else { Ok(text) }
}

/// Converts a text; `progress` is told the number of records so far, and of characters before the last one.
///
/// # Errors
/// [`ConvertError::Flawed`].
pub fn convert(text: &str, options: Options, progress: impl FnMut(usize, usize)) -> Result<Conversion, ConvertError> {
    let mut report = Report::default();
    let consumers = reader::read(text, options, &mut report, progress);
    let mut users = users::users(consumers, options, &mut report);
    if report.errors() > 0 {
        return Err(ConvertError::Flawed(Box::new(report)));
    }
    let plans = users::share_limits(&mut users);
    Ok(Conversion { users, plans, report })
}

/// The example of the README is compiled and run with the tests of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
