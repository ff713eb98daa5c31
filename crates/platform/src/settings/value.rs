//! Readers of values by type: text, numbers, durations, sizes, paths and secrets.
//!
//! Every reader returns [`Reported`] after it has reported what is wrong with the value.

use std::fmt::Display;
use std::fs::File;
use std::io::Read as _;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use super::error::{Reported, SecretSource};
use super::section::Value;
use super::suggestion::find_nearest;
use super::tree::Kind;
use super::units::{WithUnit, parse_duration, parse_size};
use domain::secret::Secret;

impl<'a> Value<'a> {
    /// A text that is not empty. Numbers are texts, too.
    ///
    /// # Errors
    /// [`Reported`], as from every reader here.
    pub fn text(&self) -> Result<String, Reported> {
        self.scalar("a text").map(str::to_owned)
    }

    /// Returns whether it is a list, where one is a choice beside a single value.
    pub fn is_list(&self) -> bool {
        matches!(self.node.kind, Kind::Sequence(_))
    }

    /// `true` or `false`.
    pub fn boolean(&self) -> Result<bool, Reported> {
        self.choice(&[("true", true), ("false", false)])
    }

    /// One of a few words.
    pub fn choice<T: Clone>(&self, choices: &[(&str, T)]) -> Result<T, Reported> {
        let text = self.scalar("a word")?;
        let found = choices.iter().find(|(word, _)| *word == text).map(|(_, choice)| choice.clone());
        found.ok_or_else(|| {
            let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
            self.report(format_args!("`{text}` is not one of the choices; give {}", words.join(" or ")))
        })
    }

    /// One of the names that another part of the file has given, by its place among them. `what` is what they
    /// name, with its article.
    pub fn name_of(&self, what: &str, names: &[&str]) -> Result<usize, Reported> {
        let text = self.scalar("a name")?;
        names.iter().position(|name| *name == text).ok_or_else(|| match find_nearest(text, names) {
            Some(near) => self.report(format_args!("`{text}` is not {what}; did you mean `{near}`?")),
            None => self.report(format_args!("`{text}` is not {what}; give {}", names.join(" or "))),
        })
    }

    /// A whole number within a range.
    pub fn integer<T: FromStr + PartialOrd + Display>(&self, range: RangeInclusive<T>) -> Result<T, Reported> {
        let text = self.scalar("a whole number")?;
        let is_number = text.bytes().all(|c| c.is_ascii_digit());
        match text.parse() {
            Ok(value) if is_number && range.contains(&value) => Ok(value),
            Err(_) if !is_number => {
                self.reject(format_args!("`{text}` is not a whole number; give one without a unit"))
            }
            _ => self.reject(format_args!("{text} is out of range; give {} to {}", range.start(), range.end())),
        }
    }

    /// A duration with its unit, within a range.
    pub fn duration(&self, range: RangeInclusive<Duration>) -> Result<Duration, Reported> {
        let text = self.scalar("a duration with its unit")?;
        match parse_duration(text) {
            Ok(duration) if range.contains(&duration) => Ok(duration),
            Ok(_) => {
                let least = WithUnit::Duration(*range.start());
                let most = WithUnit::Duration(*range.end());
                self.reject(format_args!("{text} is out of range; give {least} to {most}"))
            }
            Err(e) => self.reject(format_args!("`{text}` {e}")),
        }
    }

    /// A number of bytes, within a range.
    pub fn size(&self, range: RangeInclusive<u64>) -> Result<u64, Reported> {
        let text = self.scalar("a size")?;
        match parse_size(text) {
            Ok(size) if range.contains(&size) => Ok(size),
            Ok(_) => {
                let least = WithUnit::Size(*range.start());
                let most = WithUnit::Size(*range.end());
                self.reject(format_args!("{text} is out of range; give {least} to {most}"))
            }
            Err(e) => self.reject(format_args!("`{text}` {e}")),
        }
    }

    /// A value of a type with [`FromStr`]; `what` names the type in the error message, with an example.
    pub fn parsed<T: FromStr>(&self, what: &str) -> Result<T, Reported> {
        let text = self.scalar(what)?;
        text.parse().map_err(|_| self.report(format_args!("`{text}` is not {what}")))
    }

    /// A path; a relative one starts at the directory of the file.
    pub fn path(&self) -> Result<PathBuf, Reported> {
        let text = self.scalar("a path")?;
        Ok(self.errors.file.parent().map_or_else(|| PathBuf::from(text), |directory| directory.join(text)))
    }

    /// A path, as by [`Value::path`], of a directory that exists, or is made when it is missing.
    pub fn path_of_directory(&self) -> Result<PathBuf, Reported> {
        let path = self.path()?;
        self.check_directory(&path)?;
        Ok(path)
    }

    /// A path, as by [`Value::path`], of a file whose directory exists, or is made when it is missing.
    pub fn path_of_file(&self) -> Result<PathBuf, Reported> {
        let path = self.path()?;
        self.check_directory(path.parent().unwrap_or(&path))?;
        Ok(path)
    }

    /// Reports a directory that no user could make. Permissions are no part of this: the file may be checked on another
    /// machine, and by another user than the one that the gateway runs as.
    fn check_directory(&self, directory: &Path) -> Result<(), Reported> {
        let existing = directory.ancestors().find_map(|above| Some((above, above.metadata().ok()?)));
        let Some((above, _)) = existing.filter(|(_, metadata)| !metadata.is_dir()) else { return Ok(()) };
        let (above, shown) = (above.display(), directory.display());
        if directory.exists() {
            return self.reject(format_args!("{above} is no directory; choose another path"));
        }
        self.reject(format_args!("{shown} cannot be made, because {above} is no directory; choose another path"))
    }

    /// A path, as by [`Value::path`], of a file that can be read now.
    pub fn readable_file(&self) -> Result<PathBuf, Reported> {
        let path = self.path()?;
        // A directory can be opened; only reading it fails.
        match File::open(&path).and_then(|mut file| file.read(&mut [0])) {
            Ok(_) => Ok(path),
            Err(e) => self.reject(format_args!("{} cannot be read: {e}", path.display())),
        }
    }

    /// A secret: inline, `{file: …}` (a trailing line break is not part of it), or `{env: …}`.
    pub fn secret(&self) -> Result<Secret, Reported> {
        if !matches!(self.node.kind, Kind::Mapping(_)) {
            self.add_inline_secret();
            return self.scalar("a secret").map(|text| Secret::new(text.to_owned()));
        }
        self.section(|section| {
            let has_file = section.contains("file");
            let has_env = section.contains("env");
            let from_file = section.optional("file", Value::secret_from_file);
            let from_environment = section.optional("env", Value::secret_from_environment);
            if has_file == has_env {
                return Err(section.report("env", "give the secret itself, or {file: …}, or {env: …}"));
            }
            let secret = from_file?.or(from_environment?);
            Ok(secret.expect("one of the two keys is present"))
        })
    }

    fn scalar(&self, expected: &str) -> Result<&'a str, Reported> {
        match &self.node.kind {
            Kind::Scalar(text) if !text.expose().is_empty() => Ok(text.expose()),
            Kind::Scalar(_) | Kind::Empty => self.reject(format_args!("is empty; give {expected}, or remove the key")),
            Kind::Sequence(_) => self.reject(format_args!("is a list; give {expected}")),
            Kind::Mapping(_) => self.reject(format_args!("is a block; give {expected}")),
        }
    }

    fn secret_from_file(&self) -> Result<Secret, Reported> {
        let path = self.path()?;
        self.errors.add_secret(SecretSource::File(path.clone()));
        match std::fs::read_to_string(&path).map(Secret::new) {
            Ok(text) => self.non_empty_secret(text.expose().strip_suffix('\n').unwrap_or(text.expose())),
            Err(e) => self.reject(format_args!("{} cannot be read: {e}", path.display())),
        }
    }

    fn secret_from_environment(&self) -> Result<Secret, Reported> {
        let name = self.scalar("the name of an environment variable")?;
        self.errors.add_secret(SecretSource::Environment);
        match std::env::var(name).map(Secret::new) {
            Ok(text) => self.non_empty_secret(text.expose()),
            Err(_) => self.reject(format_args!("the environment variable {name} is not set, or not UTF-8")),
        }
    }

    fn non_empty_secret(&self, text: &str) -> Result<Secret, Reported> {
        let text = text.strip_suffix('\r').unwrap_or(text);
        if text.is_empty() { self.reject("holds an empty secret") } else { Ok(Secret::new(text.to_owned())) }
    }
}
