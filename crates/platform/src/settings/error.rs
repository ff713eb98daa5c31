//! Errors of a settings file: what is wrong, at which location, and what to do.

use std::cell::RefCell;
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

/// One error. Displayed as `file:line:column: path: what is wrong; what to do`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingsError {
    /// The file.
    pub file: PathBuf,
    /// The place in the file; none when the file could not be read at all.
    pub location: Option<Location>,
    /// The setting, such as `limits.key.requests`; empty for the file as a whole.
    pub path: String,
    /// The error, and advice: `is required`.
    pub what: String,
}

/// All errors of a file, in the order of the file; never empty. Displayed one per line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingsErrors(Vec<SettingsError>);

/// Proof that the error of a value was reported: the value exists, and cannot be used.
///
/// - Only reporting an error makes one, so a reader cannot fail silently.
/// - It is not an absent value, which is `None`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reported(());

/// Collects the errors of one reading of a file.
pub(super) struct ErrorCollector<'a> {
    /// The file, which relative paths start from.
    pub(super) file: &'a Path,
    errors: RefCell<Vec<SettingsError>>,
    /// Sources of the secrets that were read, in the order of the reading.
    secrets: RefCell<Vec<SecretSource>>,
}

/// Source of a secret of the settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretSource {
    /// The settings file itself, at this key.
    Inline(String),
    /// Another file.
    File(PathBuf),
    /// An environment variable.
    Environment,
}

impl SettingsError {
    pub(super) fn new(file: &Path, location: Location, path: &str, what: String) -> Self {
        Self { file: file.to_owned(), location: Some(location), path: path.to_owned(), what }
    }

    pub(super) fn of_file(file: &Path, what: String) -> Self {
        Self { file: file.to_owned(), location: None, path: String::new(), what }
    }
}

impl SettingsErrors {
    /// Each error, in the order of the file.
    pub fn iter(&self) -> std::slice::Iter<'_, SettingsError> {
        self.0.iter()
    }
}

impl<'a> ErrorCollector<'a> {
    pub(super) fn new(file: &'a Path) -> Self {
        Self { file, errors: RefCell::default(), secrets: RefCell::default() }
    }

    pub(super) fn report(&self, location: Location, path: &str, what: String) -> Reported {
        self.errors.borrow_mut().push(SettingsError::new(self.file, location, path, what));
        Reported(())
    }

    pub(super) fn add_secret(&self, source: SecretSource) {
        self.secrets.borrow_mut().push(source);
    }

    pub(super) fn secrets(&self) -> Vec<SecretSource> {
        self.secrets.borrow().clone()
    }

    /// The result of the reading, which fails if any error was reported.
    pub(super) fn into_result<T>(self, read: Result<T, Reported>) -> Result<T, SettingsErrors> {
        let mut errors = self.errors.into_inner();
        // A reader continues with a default after an error, so an `Ok` alone does not say that the file is good.
        if errors.is_empty() {
            return Ok(read.expect("a `Reported` is made only together with an error"));
        }
        errors.sort_by_key(|error| error.location);
        Err(SettingsErrors(errors))
    }
}

impl From<SettingsError> for SettingsErrors {
    fn from(error: SettingsError) -> Self {
        Self(vec![error])
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
        for (at, error) in self.0.iter().enumerate() {
            let separator = if at == 0 { "" } else { "\n" };
            write!(f, "{separator}{error}")?;
        }
        Ok(())
    }
}
