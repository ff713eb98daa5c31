//! A mapping whose keys are asked for one by one; what nobody asked for is a problem.

use super::tree::Entry;
use super::{Location, SettingsError, Source, Value};

/// One mapping of the file, or the absence of one.
///
/// - Every key is asked for by name, exactly once; when the reader is done, all others are reported as unknown.
/// - Readers answer `None` after they have reported a problem, so `?` and `unwrap_or` lose nothing.
pub struct Section<'a> {
    source: &'a Source<'a>,
    /// Where the section is, for what is missing in it.
    at: Location,
    path: String,
    entries: &'a [Entry],
    /// The names asked for so far.
    known: Vec<&'static str>,
}

impl<'a> Section<'a> {
    pub(super) fn new(source: &'a Source<'a>, at: Location, path: String, entries: &'a [Entry]) -> Self {
        let section = Self { source, at, path, entries, known: Vec::new() };
        section.report_duplicates();
        section
    }

    /// The value of a key, or its default when the key is absent.
    pub fn optional<T>(&mut self, name: &'static str, default: T, read: impl FnOnce(&Value<'a>) -> Option<T>) -> T {
        self.maybe(name, read).unwrap_or(default)
    }

    /// The value of a key that has no default and may be absent.
    pub fn maybe<T>(&mut self, name: &'static str, read: impl FnOnce(&Value<'a>) -> Option<T>) -> Option<T> {
        self.value(name).and_then(|value| read(&value))
    }

    /// The value of a key that must be there.
    pub fn required<T>(&mut self, name: &'static str, read: impl FnOnce(&Value<'a>) -> Option<T>) -> Option<T> {
        let value = self.value(name);
        if value.is_none() {
            self.report_at(self.at, name, "is missing; it has no default".into());
        }
        value.and_then(|value| read(&value))
    }

    /// A section within this one. When it is absent, the reader reads an empty one, and so gets all its defaults.
    pub fn section<T>(&mut self, name: &'static str, read: impl FnOnce(&mut Section<'_>) -> T) -> Option<T> {
        match self.value(name) {
            Some(value) => value.section(|section| Some(read(section))),
            None => Some(read(&mut Section::new(self.source, self.at, join(&self.path, name), &[]))),
        }
    }

    /// Refuses a key for a reason, when it is there.
    pub fn refuse(&mut self, name: &'static str, why: &str) {
        if let Some(value) = self.value(name) {
            value.report(why);
        }
    }

    /// Whether a key is there. Does not count as asking for it.
    pub fn contains(&self, name: &str) -> bool {
        self.entries.iter().any(|entry| entry.key == name)
    }

    /// Reports a problem of a key that only shows when it is held against others.
    pub fn report(&self, name: &str, what: impl ToString) {
        let at = self.entries.iter().find(|entry| entry.key == name).map_or(self.at, |entry| entry.value.at);
        self.report_at(at, name, what.to_string());
    }

    /// Reports the keys that nobody asked for.
    pub(super) fn finish(&self) {
        for entry in self.entries.iter().filter(|entry| !self.known.contains(&entry.key.as_str())) {
            let advice = match nearest(&entry.key, &self.known) {
                Some(near) => format!("is not a known key; did you mean `{near}`?"),
                None => format!("is not a known key; known here: {}", self.known.join(", ")),
            };
            self.report_at(entry.at, &entry.key, advice);
        }
    }

    fn value(&mut self, name: &'static str) -> Option<Value<'a>> {
        self.known.push(name);
        let entry = self.entries.iter().find(|entry| entry.key == name)?;
        Some(Value::new(&entry.value, entry.at, self.source, join(&self.path, name)))
    }

    fn report_duplicates(&self) {
        for (index, entry) in self.entries.iter().enumerate() {
            if let Some(first) = self.entries[..index].iter().find(|first| first.key == entry.key) {
                let what = format!("is given twice, first in line {}; remove one", first.at.line);
                self.report_at(entry.at, &entry.key, what);
            }
        }
    }

    fn report_at(&self, at: Location, name: &str, what: String) {
        let problem = SettingsError::new(self.source.file, at, &join(&self.path, name), what);
        self.source.problems.borrow_mut().push(problem);
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// The known name that a misspelled one was probably meant to be: at most a third of it differs.
fn nearest<'k>(name: &str, known: &[&'k str]) -> Option<&'k str> {
    let name = name.to_lowercase().replace('-', "_");
    let candidates = known.iter().map(|candidate| (distance(&name, candidate), *candidate));
    candidates.min().filter(|(distance, candidate)| *distance <= candidate.len().div_ceil(3)).map(|(_, near)| near)
}

/// The edit distance of two words: insertions, deletions and substitutions.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggests_only_what_is_near() {
        let known = ["requests", "per", "burst"];
        assert_eq!(nearest("request", &known), Some("requests"));
        assert_eq!(nearest("Burst", &known), Some("burst"));
        assert_eq!(nearest("interval", &known), None);
        assert_eq!(nearest("x", &[]), None);
    }
}
