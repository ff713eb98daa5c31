//! Settings files: one YAML file in, typed values out, and every problem of the file at once.
//!
//! ```text
//! Document::load(path)?           the file as written: a tree in which every node knows its line and column
//!     .read(|section| …)?         a reader asks a Section for its keys, each by name, type, range and default
//! ```
//!
//! - A problem never stops the reading: all of them come back together, in the order of the file, each with file, line,
//!   column, path and what to do about it.
//! - A key that no reader asked for is a problem, as is a key given twice.
//! - Durations and sizes carry units. Paths are relative to the file. Secrets may live elsewhere and are never shown.
//! - This is a plain subset of YAML 1.2: no anchors, no tags, one document.

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

mod error;
mod section;
mod value;
mod units;
mod tree;

pub use error::{Location, SettingsError, SettingsErrors};
pub use section::Section;
pub use units::{InvalidDuration, InvalidSize, WithUnit, parse_duration, parse_size};
pub use value::Value;

use tree::Node;

/// A settings file as it was written.
///
/// - Its `Debug` shows no value: there may be secrets among them.
#[derive(Debug)]
pub struct Document {
    path: PathBuf,
    root: Node,
}

/// What all values of one reading share: the file they are relative to, and the problems found so far.
struct Source<'a> {
    file: &'a Path,
    problems: RefCell<Vec<SettingsError>>,
}

impl Document {
    /// Reads a file.
    ///
    /// # Errors
    /// [`SettingsErrors`] when it cannot be read, or is not YAML.
    pub fn load(path: &Path) -> Result<Self, SettingsErrors> {
        Self::parse(path, &Self::read_text(path)?)
    }

    /// The text of a file.
    ///
    /// # Errors
    /// [`SettingsErrors`] when it cannot be read, or is not UTF-8.
    pub fn read_text(path: &Path) -> Result<Zeroizing<String>, SettingsErrors> {
        let text = std::fs::read_to_string(path).map(Zeroizing::new);
        text.map_err(|e| {
            let missing = e.kind() == std::io::ErrorKind::NotFound;
            let advice = if missing { "; name another with --config" } else { "" };
            SettingsError::of_file(path, format!("cannot be read: {e}{advice}")).into()
        })
    }

    /// Takes a text as the content of a file; the path is what problems name and what paths are relative to.
    ///
    /// # Errors
    /// [`SettingsErrors`] when it is not YAML.
    pub fn parse(path: &Path, text: &str) -> Result<Self, SettingsErrors> {
        let root = tree::parse(text).map_err(|(at, what)| SettingsError::new(path, at, "", what))?;
        Ok(Self { path: path.to_owned(), root })
    }

    /// Has a reader read the whole file. A reader that returns nothing has reported why.
    ///
    /// # Errors
    /// [`SettingsErrors`]: all that the reader met, and all keys that it did not ask for.
    pub fn read<T>(&self, reader: impl FnOnce(&mut Section<'_>) -> Option<T>) -> Result<T, SettingsErrors> {
        let source = Source { file: &self.path, problems: RefCell::new(Vec::new()) };
        let read = Value::root(&self.root, &source).section(reader);
        Self::outcome(read, source)
    }

    /// Has a reader read as much of the file as it wants, whatever else is in it.
    ///
    /// # Errors
    /// [`SettingsErrors`]: all that the reader met.
    pub fn read_part<T>(&self, reader: impl FnOnce(&mut Section<'_>) -> Option<T>) -> Result<T, SettingsErrors> {
        let source = Source { file: &self.path, problems: RefCell::new(Vec::new()) };
        let read = Value::root(&self.root, &source).part(reader);
        Self::outcome(read, source)
    }

    fn outcome<T>(read: Option<T>, source: Source<'_>) -> Result<T, SettingsErrors> {
        match SettingsErrors::from_unsorted(source.problems.into_inner()) {
            Some(problems) => Err(problems),
            None => Ok(read.expect("a reader that returns nothing has reported why")),
        }
    }
}
