//! What is wrong with a settings file, where, and what to do about it.

use std::fmt;
use std::path::{Path, PathBuf};

/// A place in a file; lines and columns count from 1, columns in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The line.
    pub line: usize,
    /// The column.
    pub column: usize,
}

/// One thing that is wrong. Displayed as `file:line:column: path: what is wrong; what to do`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file.
    pub file: PathBuf,
    /// Where in it; none when it could not be read at all.
    pub position: Option<Position>,
    /// The setting, such as `limits.key.requests`; empty for the file as a whole.
    pub path: String,
    /// What is wrong, and what to do.
    pub what: String,
}

/// Everything that is wrong with a file, in its order; never empty. Displayed one per line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems(Vec<Problem>);

impl Problem {
    pub(super) fn new(file: &Path, position: Position, path: &str, what: String) -> Self {
        Self { file: file.to_owned(), position: Some(position), path: path.to_owned(), what }
    }

    pub(super) fn of_file(file: &Path, what: String) -> Self {
        Self { file: file.to_owned(), position: None, path: String::new(), what }
    }
}

impl Problems {
    /// The problems in the order of the file, or none.
    pub(super) fn of(mut problems: Vec<Problem>) -> Option<Self> {
        problems.sort_by_key(|problem| problem.position);
        (!problems.is_empty()).then_some(Self(problems))
    }

    /// Each of them.
    pub fn iter(&self) -> std::slice::Iter<'_, Problem> {
        self.0.iter()
    }
}

impl From<Problem> for Problems {
    fn from(problem: Problem) -> Self {
        Self(vec![problem])
    }
}

impl std::error::Error for Problems {}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.file.display())?;
        if let Some(Position { line, column }) = self.position {
            write!(f, "{line}:{column}:")?;
        }
        if !self.path.is_empty() {
            write!(f, " {}:", self.path)?;
        }
        write!(f, " {}", self.what)
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, problem) in self.0.iter().enumerate() {
            let separator = if at == 0 { "" } else { "\n" };
            write!(f, "{separator}{problem}")?;
        }
        Ok(())
    }
}
