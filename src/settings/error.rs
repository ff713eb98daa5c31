//! What is wrong with a settings file, where, and what to do about it.

use std::fmt;
use std::path::{Path, PathBuf};

/// A place in a file; lines and columns count from 1, columns in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Location {
    /// The line.
    pub line: usize,
    /// The column.
    pub column: usize,
}

/// One thing that is wrong. Displayed as `file:line:column: path: what is wrong; what to do`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingsError {
    /// The file.
    pub file: PathBuf,
    /// Where in it; none when it could not be read at all.
    pub location: Option<Location>,
    /// The setting, such as `limits.key.requests`; empty for the file as a whole.
    pub path: String,
    /// What is wrong, and what to do.
    pub what: String,
}

/// Everything that is wrong with a file, in its order; never empty. Displayed one per line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingsErrors(Vec<SettingsError>);

impl SettingsError {
    pub(super) fn new(file: &Path, location: Location, path: &str, what: String) -> Self {
        Self { file: file.to_owned(), location: Some(location), path: path.to_owned(), what }
    }

    pub(super) fn of_file(file: &Path, what: String) -> Self {
        Self { file: file.to_owned(), location: None, path: String::new(), what }
    }
}

impl SettingsErrors {
    /// The problems in the order of the file, or none.
    pub(super) fn from_unsorted(mut problems: Vec<SettingsError>) -> Option<Self> {
        problems.sort_by_key(|problem| problem.location);
        (!problems.is_empty()).then_some(Self(problems))
    }

    /// Each of them.
    pub fn iter(&self) -> std::slice::Iter<'_, SettingsError> {
        self.0.iter()
    }
}

impl From<SettingsError> for SettingsErrors {
    fn from(problem: SettingsError) -> Self {
        Self(vec![problem])
    }
}

impl std::error::Error for SettingsErrors {}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.file.display())?;
        if let Some(Location { line, column }) = self.location {
            write!(f, "{line}:{column}:")?;
        }
        if !self.path.is_empty() {
            write!(f, " {}:", self.path)?;
        }
        write!(f, " {}", self.what)
    }
}

impl fmt::Display for SettingsErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, problem) in self.0.iter().enumerate() {
            let separator = if at == 0 { "" } else { "\n" };
            write!(f, "{separator}{problem}")?;
        }
        Ok(())
    }
}
