//! Typed reader of settings files: one YAML file in, typed values out, and all errors of the file at once.
//!
//! ```text
//! Document::load(path)?           the file as written: a tree in which every node knows its line and column
//!     .read(|section| …)?         a reader takes each key of a Section by name, type, range and default
//! ```
//!
//! - An error never stops the reading. All errors are returned together, in the order of the file, each with file,
//!   line, column, path and what to do.
//! - An absent value and a value whose error was reported are different: readers return `Result<T, Reported>`, and
//!   `Ok(None)` for an optional key that is absent.
//! - A key that no reader takes is an error, as is a key given twice.
//! - Durations and sizes carry units. Paths are relative to the file. Secrets may be in other files or in environment
//!   variables, and are never shown.
//! - The files are a plain subset of YAML 1.2: no anchors, no tags, one document.

use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

mod error;
mod section;
mod suggestion;
mod value;
mod units;
mod tree;
mod lists;

pub use error::{Location, Reported, SecretSource, SettingsError, SettingsErrors};
pub use lists::{Part, Treatment, read_documents, read_lists};
pub use section::{Section, Value};
pub use tree::{Entry, Kind, Node};
pub use units::{InvalidDuration, InvalidSize, WithUnit, parse_duration, parse_size};

use error::ErrorCollector;

/// The outline of a text that another parser reads: the places of its values.
///
/// - The text is one YAML document without aliases and tags that is nested no deeper than settings may be: so another
///   parser can read it without growing it.
/// - Its `Debug` shows no value.
#[derive(Debug)]
pub struct Outline(Node);

/// A step from a value to one in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// To the value of a key.
    Key(&'static str),
    /// To an item of a list, from 0.
    Item(usize),
}

impl Outline {
    /// Parses a text.
    ///
    /// # Errors
    /// The first error, with its line and column.
    pub fn parse(text: &str) -> Result<Self, String> {
        let located = |(at, problem): (Location, String)| format!("{problem} at line {} column {}", at.line, at.column);
        tree::parse(text).map(Self).map_err(located)
    }

    /// The place of the value that these steps lead to; of the last value on the way where there is none.
    pub fn locate(&self, steps: &[Step]) -> Location {
        let mut node = &self.0;
        for step in steps {
            let next = match (step, &node.kind) {
                (Step::Key(name), Kind::Mapping(entries)) => {
                    entries.iter().find(|entry| entry.key == *name).map(|entry| &entry.value)
                }
                (Step::Item(index), Kind::Sequence(items)) => items.get(*index),
                _ => None,
            };
            match next {
                Some(next) => node = next,
                None => break,
            }
        }
        node.at
    }
}

/// A settings file as it was written.
///
/// - Its `Debug` shows no value: there may be secrets among them.
#[derive(Debug)]
pub struct Document {
    path: PathBuf,
    root: Node,
}

impl Document {
    /// Reads and parses a file.
    ///
    /// # Errors
    /// [`SettingsErrors`] when it cannot be read, or is not YAML.
    pub fn load(path: &Path) -> Result<Self, SettingsErrors> {
        Self::parse(path, &Self::read_text(path)?)
    }

    /// Reads the text of a file.
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

    /// Parses a text as the content of the file at `path`. Errors name this path, and relative paths start there.
    ///
    /// # Errors
    /// [`SettingsErrors`] when it is not YAML.
    pub fn parse(path: &Path, text: &str) -> Result<Self, SettingsErrors> {
        let root = tree::parse(text).map_err(|(at, what)| SettingsError::new(path, at, "", what))?;
        Ok(Self { path: path.to_owned(), root })
    }

    /// Reads the whole file.
    ///
    /// # Errors
    /// [`SettingsErrors`]: all errors that the reader reported, and all keys that it did not take.
    pub fn read<T>(&self, reader: impl FnOnce(&mut Section<'_>) -> Result<T, Reported>) -> Result<T, SettingsErrors> {
        let collector = ErrorCollector::new(&self.path);
        let read = Value::root(&self.root, &collector).section(reader);
        collector.into_result(read)
    }

    /// Reads a part of the file; keys that the reader does not take are no errors.
    ///
    /// # Errors
    /// [`SettingsErrors`]: all errors that the reader reported.
    pub fn read_part<T>(
        &self,
        reader: impl FnOnce(&mut Section<'_>) -> Result<T, Reported>,
    ) -> Result<T, SettingsErrors> {
        let collector = ErrorCollector::new(&self.path);
        let read = Value::root(&self.root, &collector).part(reader);
        collector.into_result(read)
    }
}
