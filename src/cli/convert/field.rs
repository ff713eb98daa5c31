//! Value of a file of another program, with its place.

use std::str::FromStr;

use super::consumer::{Named, Place};
use super::report::Report;
use platform::settings::{Kind, Node};

/// A value, and the path that leads to it.
pub(super) struct Field<'a> {
    node: &'a Node,
    path: String,
}

impl<'a> Field<'a> {
    /// An item of a list of the file.
    pub(super) fn item(list: &str, index: usize, node: &'a Node) -> Self {
        Self { node, path: format!("{list}[{index}]") }
    }

    pub(super) fn place(&self) -> Place {
        Place { at: self.node.at, path: self.path.as_str().into() }
    }

    /// Returns whether there is nothing in it.
    fn is_empty(&self) -> bool {
        match &self.node.kind {
            Kind::Empty => true,
            Kind::Scalar(text) => text.expose().is_empty(),
            Kind::Sequence(items) => items.is_empty(),
            Kind::Mapping(entries) => entries.is_empty(),
        }
    }

    /// The values of a block, by their keys; nothing when it is none.
    pub(super) fn fields(&self) -> impl Iterator<Item = (&'a str, Self)> {
        let entries = if let Kind::Mapping(entries) = &self.node.kind { &entries[..] } else { &[] };
        let path = self.path.clone();
        entries
            .iter()
            .map(move |entry| (entry.key.as_str(), Self { node: &entry.value, path: format!("{path}.{}", entry.key) }))
    }

    /// The value of a key; none when it is absent or `null`.
    pub(super) fn get(&self, key: &str) -> Option<Self> {
        let Kind::Mapping(entries) = &self.node.kind else { return None };
        let entry = entries.iter().find(|entry| entry.key == key)?;
        let field = Self { node: &entry.value, path: format!("{}.{key}", self.path) };
        (!matches!(field.node.kind, Kind::Empty)).then_some(field)
    }

    /// The items of the list under a key; none when it is absent. Reports a value that is no list.
    pub(super) fn list(&self, key: &str, report: &mut Report) -> Vec<Self> {
        let Some(field) = self.get(key) else { return Vec::new() };
        let Kind::Sequence(items) = &field.node.kind else {
            report.error(&field.place(), "is no list");
            return Vec::new();
        };
        items.iter().enumerate().map(|(index, node)| Self::item(&field.path, index, node)).collect()
    }

    /// Its text; none of a list or a block. Numbers are texts, too.
    pub(super) fn text(&self) -> Option<&'a str> {
        if let Kind::Scalar(text) = &self.node.kind { Some(text.expose()) } else { None }
    }

    /// The text under a key; none when there is no text.
    pub(super) fn text_of(&self, key: &str) -> Option<&'a str> {
        self.get(key)?.text()
    }

    /// The text under a key with its place; none when it is absent or empty.
    pub(super) fn named(&self, key: &str) -> Option<Named> {
        let field = self.get(key)?;
        let text = field.text().filter(|text| !text.is_empty())?;
        Some(Named { place: field.place(), text: text.into() })
    }

    /// The whole number under a key, also when it is written as `5.0`.
    pub(super) fn number<T: FromStr>(&self, key: &str) -> Option<T> {
        let text = self.text_of(key)?;
        text.strip_suffix(".0").unwrap_or(text).parse().ok()
    }

    /// Leaves what has something in it and is not one of these: with the reason that `reasons` has for its key, or that
    /// it is not known.
    pub(super) fn leave_others(&self, known: &[&str], reasons: &[(&str, &str)], report: &mut Report) {
        for (key, field) in self.fields() {
            if known.contains(&key) || key.starts_with('_') || field.is_empty() {
                continue;
            }
            let reason = reasons.iter().find(|(name, _)| *name == key).map(|(_, reason)| *reason);
            match reason {
                Some(reason) => report.leave(field.place(), reason),
                None => report.leave(field.place(), format!("`{key}` has no counterpart")),
            }
        }
    }
}
