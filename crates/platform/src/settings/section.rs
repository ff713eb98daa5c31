//! Sections and values of a settings file: which keys and items there are, and the report of an error at its location.

use std::collections::HashMap;
use std::fmt::Display;

use super::error::{ErrorCollector, Location, Reported, SecretSource};
use super::suggestion::find_nearest;
use super::tree::{Entry, Kind, Node};

/// One mapping of the file, or the absence of one.
///
/// - A reader takes every key by name, exactly once. Keys that are left when the reader is done are
///   reported as unknown.
pub struct Section<'a> {
    errors: &'a ErrorCollector<'a>,
    /// The place of the section, for keys that are missing in it.
    at: Location,
    path: String,
    entries: &'a [Entry],
    /// The names taken so far.
    known: Vec<&'static str>,
}

/// A value and its place in the file. The readers of each type are in `value`.
pub struct Value<'a> {
    pub(super) node: &'a Node,
    /// The place of the value's key; for list items, of the item itself.
    key_at: Location,
    pub(super) errors: &'a ErrorCollector<'a>,
    path: String,
}

impl<'a> Section<'a> {
    fn new(errors: &'a ErrorCollector<'a>, at: Location, path: String, entries: &'a [Entry]) -> Self {
        let section = Self { errors, at, path, entries, known: Vec::new() };
        section.report_duplicates();
        section
    }

    /// The value of a key that must be present.
    ///
    /// # Errors
    /// [`Reported`]: the key is missing, or its value is wrong.
    pub fn required<T>(
        &mut self,
        name: &'static str,
        read: impl FnOnce(&Value<'a>) -> Result<T, Reported>,
    ) -> Result<T, Reported> {
        match self.take(name) {
            Some(value) => read(&value),
            None => Err(self.report_at(self.at, name, "is required".into())),
        }
    }

    /// The value of a key that may be absent; `None` when it is.
    ///
    /// # Errors
    /// [`Reported`]: the value is wrong.
    pub fn optional<T>(
        &mut self,
        name: &'static str,
        read: impl FnOnce(&Value<'a>) -> Result<T, Reported>,
    ) -> Result<Option<T>, Reported> {
        self.take(name).map(|value| read(&value)).transpose()
    }

    /// The value of a key, or its default when the key is absent.
    ///
    /// The default also stands in for a wrong value, whose error was reported, so that the remaining settings can be
    /// checked in the same reading.
    pub fn value_or<T>(
        &mut self,
        name: &'static str,
        default: T,
        read: impl FnOnce(&Value<'a>) -> Result<T, Reported>,
    ) -> T {
        self.value_or_else(name, || default, read)
    }

    /// As [`Section::value_or`], with a default that is computed only when it is needed.
    pub fn value_or_else<T>(
        &mut self,
        name: &'static str,
        default: impl FnOnce() -> T,
        read: impl FnOnce(&Value<'a>) -> Result<T, Reported>,
    ) -> T {
        match self.optional(name, read) {
            Ok(Some(value)) => value,
            Ok(None) | Err(Reported { .. }) => default(),
        }
    }

    /// A section within this one. When it is absent, the reader reads an empty one, and so takes all its defaults.
    ///
    /// # Errors
    /// [`Reported`]: the value is not a section, or the reader failed.
    pub fn section<T>(
        &mut self,
        name: &'static str,
        read: impl FnOnce(&mut Section<'_>) -> Result<T, Reported>,
    ) -> Result<T, Reported> {
        match self.take(name) {
            Some(value) => value.section(read),
            None => read(&mut Section::new(self.errors, self.at, join(&self.path, name), &[])),
        }
    }

    /// Returns whether a key is present, without taking it.
    pub fn contains(&self, name: &str) -> bool {
        self.entries.iter().any(|entry| entry.key == name)
    }

    /// Reports an error of a key that shows only in comparison with other keys.
    pub fn report(&self, name: &str, what: impl ToString) -> Reported {
        let at = self.entries.iter().find(|entry| entry.key == name).map_or(self.at, |entry| entry.value.at);
        self.report_at(at, name, what.to_string())
    }

    /// Reports a key that is no setting any more, with what to write instead. It is no known key where it is absent.
    /// Returns the report, for a reader that has no value without it.
    pub fn removed(&mut self, name: &'static str, advice: &str) -> Option<Reported> {
        self.contains(name).then(|| {
            self.known.push(name);
            self.report(name, advice)
        })
    }

    /// Sources of the secrets that were read so far, anywhere in the file.
    pub fn secret_sources(&self) -> Vec<SecretSource> {
        self.errors.secrets()
    }

    /// Reports the keys that the reader did not take.
    fn report_unknown(&self) {
        for entry in self.entries.iter().filter(|entry| !self.known.contains(&entry.key.as_str())) {
            let advice = match find_nearest(&entry.key, &self.known) {
                Some(near) => format!("is not a known key; did you mean `{near}`?"),
                None => format!("is not a known key; known here: {}", self.known.join(", ")),
            };
            self.report_at(entry.at, &entry.key, advice);
        }
    }

    fn take(&mut self, name: &'static str) -> Option<Value<'a>> {
        self.known.push(name);
        let entry = self.entries.iter().find(|entry| entry.key == name)?;
        let path = join(&self.path, name);
        Some(Value { node: &entry.value, key_at: entry.at, errors: self.errors, path })
    }

    fn report_duplicates(&self) {
        let mut firsts: HashMap<&str, Location> = HashMap::with_capacity(self.entries.len());
        for entry in self.entries {
            let first = *firsts.entry(&entry.key).or_insert(entry.at);
            if first != entry.at {
                let what = format!("is given twice, first in line {}; remove one", first.line);
                self.report_at(entry.at, &entry.key, what);
            }
        }
    }

    fn report_at(&self, at: Location, name: &str, what: String) -> Reported {
        self.errors.report(at, &join(&self.path, name), what)
    }
}

impl<'a> Value<'a> {
    pub(super) fn root(node: &'a Node, errors: &'a ErrorCollector<'a>) -> Self {
        Self { node, key_at: node.at, errors, path: String::new() }
    }

    /// The value as a section; an empty value counts as an empty section.
    ///
    /// # Errors
    /// [`Reported`]: the value is not a section, or the reader failed.
    pub fn section<T>(&self, read: impl FnOnce(&mut Section<'_>) -> Result<T, Reported>) -> Result<T, Reported> {
        self.part(|section| {
            let read = read(section);
            section.report_unknown();
            read
        })
    }

    /// Returns whether the value is a block of `key: value`.
    pub fn is_block(&self) -> bool {
        matches!(self.node.kind, Kind::Mapping(_))
    }

    /// The value as a section of which not all keys need be taken.
    ///
    /// # Errors
    /// As [`Value::section`].
    pub fn part<T>(&self, read: impl FnOnce(&mut Section<'_>) -> Result<T, Reported>) -> Result<T, Reported> {
        let entries = match &self.node.kind {
            Kind::Empty => &[],
            Kind::Mapping(entries) => &entries[..],
            Kind::Scalar(_) | Kind::Sequence(_) => return self.reject("a block of `key: value` is expected"),
        };
        read(&mut Section::new(self.errors, self.key_at, self.path.clone(), entries))
    }

    /// The values of a block whose keys are names that the file's author has chosen. All are read,
    /// also after a wrong one.
    ///
    /// # Errors
    /// [`Reported`]: the value is not such a block, or a value in it is wrong.
    pub fn named<T>(
        &self,
        mut read: impl FnMut(&'a str, &Value<'a>) -> Result<T, Reported>,
    ) -> Result<Vec<T>, Reported> {
        let Kind::Mapping(entries) = &self.node.kind else {
            return self.reject("a block of `name: value` is expected");
        };
        Section::new(self.errors, self.key_at, self.path.clone(), entries);
        let value = |entry: &'a Entry| {
            let path = join(&self.path, &entry.key);
            read(&entry.key, &Value { node: &entry.value, key_at: entry.at, errors: self.errors, path })
        };
        // Collected twice, as the items of a list.
        let values: Vec<Result<T, Reported>> = entries.iter().map(value).collect();
        values.into_iter().collect()
    }

    /// The value as a list. All items are read, also after a wrong one.
    ///
    /// # Errors
    /// [`Reported`]: the value is not a list, or an item is wrong.
    pub fn list<T>(&self, mut read: impl FnMut(&Value<'a>) -> Result<T, Reported>) -> Result<Vec<T>, Reported> {
        let Kind::Sequence(items) = &self.node.kind else {
            return self.reject("a list is expected; write `- ` before each item, or [a, b]");
        };
        let item = |(index, node): (usize, &'a Node)| {
            let path = format!("{}[{index}]", self.path);
            read(&Value { node, key_at: node.at, errors: self.errors, path })
        };
        // Collected twice, because collecting into a `Result` would stop at the first wrong item.
        let items: Vec<Result<T, Reported>> = items.iter().enumerate().map(item).collect();
        items.into_iter().collect()
    }

    /// The value as a list, or as a single item.
    ///
    /// # Errors
    /// As [`Value::list`].
    pub fn one_or_list<T>(&self, mut read: impl FnMut(&Value<'a>) -> Result<T, Reported>) -> Result<Vec<T>, Reported> {
        if matches!(self.node.kind, Kind::Sequence(_)) { self.list(read) } else { Ok(vec![read(self)?]) }
    }

    /// Notes that the value is a secret of the file itself.
    pub(super) fn add_inline_secret(&self) {
        self.errors.add_secret(SecretSource::Inline(self.path.clone()));
    }

    /// Reports what is wrong with the value. Never pass the text of a secret.
    pub fn report(&self, what: impl Display) -> Reported {
        self.errors.report(self.node.at, &self.path, what.to_string())
    }

    /// Reports what is wrong with the value's key.
    pub fn report_key(&self, what: impl Display) -> Reported {
        self.errors.report(self.key_at, &self.path, what.to_string())
    }

    /// [`Value::report`] as the result of a reader.
    ///
    /// # Errors
    /// Always [`Reported`].
    pub fn reject<T>(&self, what: impl Display) -> Result<T, Reported> {
        Err(self.report(what))
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}
