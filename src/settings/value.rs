//! One value of the file, read as the type that its reader expects.

use std::fmt::Display;
use std::fs::File;
use std::io::Read as _;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use super::tree::{Kind, Node};
use super::units::{WithUnit, parse_duration, parse_size};
use super::{Location, Section, SettingsError, Source};
use crate::secret::Secret;

/// A value and where it stands. Every reader answers `None` after it has reported what is wrong.
pub struct Value<'a> {
    node: &'a Node,
    /// Where the key of the value is; for list items, the item itself.
    key_at: Location,
    source: &'a Source<'a>,
    path: String,
}

impl<'a> Value<'a> {
    pub(super) fn root(node: &'a Node, source: &'a Source<'a>) -> Self {
        Self { node, key_at: node.at, source, path: String::new() }
    }

    pub(super) fn new(node: &'a Node, key_at: Location, source: &'a Source<'a>, path: String) -> Self {
        Self { node, key_at, source, path }
    }

    /// A text that is not empty. Numbers are texts, too.
    pub fn text(&self) -> Option<String> {
        self.scalar("a text").map(str::to_owned)
    }

    /// `true` or `false`.
    pub fn boolean(&self) -> Option<bool> {
        self.choice(&[("true", true), ("false", false)])
    }

    /// One of a few words.
    pub fn choice<T: Clone>(&self, choices: &[(&str, T)]) -> Option<T> {
        let text = self.scalar("a word")?;
        let found = choices.iter().find(|(word, _)| *word == text).map(|(_, choice)| choice.clone());
        found.or_else(|| {
            let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
            self.reject(format_args!("`{text}` is not one of the choices; give {}", words.join(" or ")))
        })
    }

    /// A whole number within a range.
    pub fn integer<T: FromStr + PartialOrd + Display>(&self, range: RangeInclusive<T>) -> Option<T> {
        let text = self.scalar("a whole number")?;
        let number = text.bytes().all(|c| c.is_ascii_digit());
        match text.parse() {
            Ok(value) if number && range.contains(&value) => Some(value),
            Err(_) if !number => self.reject(format_args!("`{text}` is not a whole number; give one without a unit")),
            _ => self.reject(format_args!("{text} is out of range; give {} to {}", range.start(), range.end())),
        }
    }

    /// A duration with its unit, within a range.
    pub fn duration(&self, range: RangeInclusive<Duration>) -> Option<Duration> {
        let text = self.scalar("a duration with its unit")?;
        match parse_duration(text) {
            Ok(duration) if range.contains(&duration) => Some(duration),
            Ok(_) => {
                let (least, most) = (WithUnit::Duration(*range.start()), WithUnit::Duration(*range.end()));
                self.reject(format_args!("{text} is out of range; give {least} to {most}"))
            }
            Err(e) => self.reject(format_args!("`{text}` {e}")),
        }
    }

    /// A number of bytes, within a range.
    pub fn size(&self, range: RangeInclusive<u64>) -> Option<u64> {
        let text = self.scalar("a size")?;
        match parse_size(text) {
            Ok(size) if range.contains(&size) => Some(size),
            Ok(_) => {
                let (least, most) = (WithUnit::Size(*range.start()), WithUnit::Size(*range.end()));
                self.reject(format_args!("{text} is out of range; give {least} to {most}"))
            }
            Err(e) => self.reject(format_args!("`{text}` {e}")),
        }
    }

    /// What a type's own [`FromStr`] reads; `what` names it for the reader of the message, with an example.
    pub fn parsed<T: FromStr>(&self, what: &str) -> Option<T> {
        let text = self.scalar(what)?;
        text.parse().map_or_else(|_| self.reject(format_args!("`{text}` is not {what}")), Some)
    }

    /// A path; a relative one is relative to the directory of the file.
    pub fn path(&self) -> Option<PathBuf> {
        let text = self.scalar("a path")?;
        Some(self.source.file.parent().map_or_else(|| PathBuf::from(text), |directory| directory.join(text)))
    }

    /// A path, as [`Value::path`] has it, of a file that can be read now.
    pub fn readable_file(&self) -> Option<PathBuf> {
        let path = self.path()?;
        // Directories can be opened, and not read.
        match File::open(&path).and_then(|mut file| file.read(&mut [0])) {
            Ok(_) => Some(path),
            Err(e) => self.reject(format_args!("{} cannot be read: {e}", path.display())),
        }
    }

    /// A secret: inline, `{file: …}` (a trailing line break is not part of it), or `{env: …}`.
    pub fn secret(&self) -> Option<Secret> {
        if !matches!(self.node.kind, Kind::Mapping(_)) {
            return self.scalar("a secret").map(|text| Secret::new(text.to_owned()));
        }
        self.section(|section| {
            let from_file = section.maybe("file", |value| Some(value.secret_of_file()));
            let from_environment = section.maybe("env", |value| Some(value.secret_of_environment()));
            match (from_file, from_environment) {
                (Some(secret), None) | (None, Some(secret)) => secret,
                _ => {
                    section.report("env", "give the secret itself, or {file: …}, or {env: …}");
                    None
                }
            }
        })
    }

    /// A list, each item read by the same reader. All items are read, also after a bad one.
    pub fn list<T>(&self, mut read: impl FnMut(&Value<'a>) -> Option<T>) -> Option<Vec<T>> {
        let Kind::Sequence(items) = &self.node.kind else {
            return self.reject("a list is expected; write `- ` before each item, or [a, b]");
        };
        let item = |(index, node): (usize, &'a Node)| {
            read(&Value::new(node, node.at, self.source, format!("{}[{index}]", self.path)))
        };
        let items: Vec<Option<T>> = items.iter().enumerate().map(item).collect();
        items.into_iter().collect()
    }

    /// A list, or one item by itself, which is then the value.
    pub fn one_or_list<T>(&self, mut read: impl FnMut(&Value<'a>) -> Option<T>) -> Option<Vec<T>> {
        if matches!(self.node.kind, Kind::Sequence(_)) { self.list(read) } else { Some(vec![read(self)?]) }
    }

    /// A section; nothing at all counts as an empty one.
    pub fn section<T>(&self, read: impl FnOnce(&mut Section<'_>) -> Option<T>) -> Option<T> {
        self.part(|section| {
            let read = read(section);
            section.finish();
            read
        })
    }

    /// A section of which not all need be asked for.
    pub fn part<T>(&self, read: impl FnOnce(&mut Section<'_>) -> Option<T>) -> Option<T> {
        let entries = match &self.node.kind {
            Kind::Empty => &[],
            Kind::Mapping(entries) => &entries[..],
            Kind::Scalar(_) | Kind::Sequence(_) => return self.reject("a block of `key: value` is expected"),
        };
        read(&mut Section::new(self.source, self.key_at, self.path.clone(), entries))
    }

    /// Reports what is wrong with the value. Never pass the text of a secret.
    pub fn report(&self, what: impl Display) {
        let problem = SettingsError::new(self.source.file, self.node.at, &self.path, what.to_string());
        self.source.problems.borrow_mut().push(problem);
    }

    /// [`Value::report`], for the end of a reader.
    pub fn reject<T>(&self, what: impl Display) -> Option<T> {
        self.report(what);
        None
    }

    fn scalar(&self, expected: &str) -> Option<&'a str> {
        match &self.node.kind {
            Kind::Scalar(text) if !text.expose().is_empty() => Some(text.expose()),
            Kind::Scalar(_) | Kind::Empty => self.reject(format_args!("is empty; give {expected}, or remove the key")),
            Kind::Sequence(_) => self.reject(format_args!("is a list; give {expected}")),
            Kind::Mapping(_) => self.reject(format_args!("is a block; give {expected}")),
        }
    }

    fn secret_of_file(&self) -> Option<Secret> {
        let path = self.path()?;
        match std::fs::read_to_string(&path).map(Secret::new) {
            Ok(text) => self.secret_of(text.expose().strip_suffix('\n').unwrap_or(text.expose())),
            Err(e) => self.reject(format_args!("{} cannot be read: {e}", path.display())),
        }
    }

    fn secret_of_environment(&self) -> Option<Secret> {
        let name = self.scalar("the name of an environment variable")?;
        match std::env::var(name).map(Secret::new) {
            Ok(text) => self.secret_of(text.expose()),
            Err(_) => self.reject(format_args!("the environment variable {name} is not set, or not UTF-8")),
        }
    }

    fn secret_of(&self, text: &str) -> Option<Secret> {
        let text = text.strip_suffix('\r').unwrap_or(text);
        if text.is_empty() { self.reject("holds an empty secret") } else { Some(Secret::new(text.to_owned())) }
    }
}
