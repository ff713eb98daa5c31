//! Watched file of sources: one in each line; empty lines and those that begin with `#` count for nothing.
//!
//! - The content is compared once a second, which sees every way of changing a file alike. A content is used when it
//!   was read twice in a row, so that a half-written one is not.
//! - A file that cannot be read, or that has a wrong line, changes nothing: the sources of before stay. The log has
//!   each such content once.

use std::fs;
use std::path::{Path, PathBuf};

use rustls::pki_types::ServerName;

use super::settings::Sources;
use super::source::{Source, SourceError};

/// Largest file: sources beyond some thousands are a mistake.
const MAX_SIZE: u64 = 1024 * 1024;

/// Watched file, and what was read from it.
#[derive(Debug)]
pub(super) struct SourceFile {
    pub(super) path: PathBuf,
    pub(super) server_name: Option<ServerName<'static>>,
    /// Sources of the last content without an error.
    pub(super) sources: Vec<Source>,
    /// Content that was used, or rejected, last; the error's text of a file that could not be read.
    content: Result<String, String>,
    /// Content of the last reading, when it is another.
    unconfirmed: Option<Result<String, String>>,
}

/// Reason why a content is not used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum ContentError {
    #[error("it cannot be read: {0}")]
    Unreadable(String),
    #[error("line {line}: {error}")]
    Line {
        line: usize,
        #[source]
        error: SourceError,
    },
}

impl SourceFile {
    /// Reads the file for the first time.
    pub(super) fn open(path: &Path, server_name: Option<&ServerName<'static>>) -> Self {
        let content = read(path);
        let path = path.to_owned();
        let server_name = server_name.cloned();
        let mut file = Self { path, server_name, sources: Vec::new(), content: Ok(String::new()), unconfirmed: None };
        file.accept(content);
        file
    }

    /// Returns whether these are the sources of this file.
    pub(super) fn is_of(&self, sources: &Sources) -> bool {
        matches!(sources, Sources::File { path, server_name } if (path, server_name) == (&self.path, &self.server_name))
    }

    /// Sources, at least one: for a file without any, a place that has no address.
    pub(super) fn sources_or_placeholder(&self) -> Vec<Source> {
        if self.sources.is_empty() { vec![Source::placeholder(&self.path)] } else { self.sources.clone() }
    }

    /// Reads the file again. Returns whether its sources have changed.
    pub(super) fn poll(&mut self) -> bool {
        let content = read(&self.path);
        if content == self.content {
            self.unconfirmed = None;
        } else if self.unconfirmed.as_ref() == Some(&content) {
            self.unconfirmed = None;
            return self.accept(content);
        } else {
            self.unconfirmed = Some(content);
        }
        false
    }

    fn accept(&mut self, content: Result<String, String>) -> bool {
        let sources = content.clone().map_err(ContentError::Unreadable).and_then(|content| parse(&content));
        self.content = content;
        match sources {
            Ok(mut sources) => {
                if let Some(server_name) = &self.server_name {
                    sources.iter_mut().filter_map(Source::tls_name).for_each(|name| *name = server_name.clone());
                }
                tracing::info!(file = %self.path.display(), sources = sources.len(), "read the endpoints of a file");
                let has_changed = self.sources != sources;
                self.sources = sources;
                has_changed
            }
            Err(error) => {
                tracing::warn!(file = %self.path.display(), %error,
                    "cannot use the endpoints of a file; those of before stay in use");
                false
            }
        }
    }
}

fn read(path: &Path) -> Result<String, String> {
    let read = || match fs::metadata(path)? {
        file if file.is_file() && file.len() <= MAX_SIZE => fs::read_to_string(path),
        _ => Err(std::io::Error::other("it is no regular file of at most 1 MiB")),
    };
    read().map_err(|error| error.to_string())
}

fn parse(content: &str) -> Result<Vec<Source>, ContentError> {
    let lines = content.lines().enumerate().map(|(index, line)| (index + 1, line.trim()));
    let entries = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    entries.map(|(line, text)| text.parse().map_err(|error| ContentError::Line { line, error })).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(file: &SourceFile) -> Vec<&str> {
        file.sources.iter().map(Source::name).collect()
    }

    #[test]
    fn content_is_used_when_it_was_read_twice() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("endpoints");
        fs::write(&path, "# first\nhttp://a:1\n\n").unwrap();
        let mut file = SourceFile::open(&path, None);
        assert_eq!(names(&file), ["a:1"]);
        assert!(!file.poll(), "unchanged");
        fs::write(&path, "http://a:1\nhttp://b:1\n").unwrap();
        assert!(!file.poll(), "it may be half-written");
        assert!(file.poll());
        assert_eq!(names(&file), ["a:1", "b:1"]);
        assert!(!file.poll());
    }

    #[test]
    fn wrong_and_missing_content_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("endpoints");
        fs::write(&path, "http://a:1\n").unwrap();
        let mut file = SourceFile::open(&path, None);
        fs::write(&path, "http://b:1\nnonsense\n").unwrap();
        assert!(!file.poll() && !file.poll());
        fs::remove_file(&path).unwrap();
        assert!(!file.poll() && !file.poll());
        assert_eq!(names(&file), ["a:1"]);
        fs::write(&path, "http://b:1\n").unwrap();
        assert!(!file.poll() && file.poll());
        assert_eq!(names(&file), ["b:1"]);
    }

    #[test]
    fn error_names_its_line() {
        let error = parse("http://a:1\n\nftp://b\n").unwrap_err().to_string();
        assert!(error.starts_with("line 3: `ftp://b/` is not an endpoint"), "{error}");
    }

    #[test]
    fn server_name_replaces_the_host() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("endpoints");
        fs::write(&path, "https://a:1\nhttp://b:1\n").unwrap();
        let name = ServerName::try_from("store.internal").unwrap();
        let mut file = SourceFile::open(&path, Some(&name));
        assert_eq!(file.sources[0].tls_name(), Some(&mut name.clone()));
        assert_eq!(file.sources[1].tls_name(), None);
    }
}
