//! Value of a file of another program, with its place.

use std::str::FromStr;

use super::report::{Place, Report};
use platform::settings::{Kind, Node};

/// A text of the file with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) place: Place,
    pub(crate) text: Box<str>,
}

impl Named {
    /// A part of the text.
    pub(crate) fn part(&self, text: &str) -> Self {
        Self { place: self.place.clone(), text: text.into() }
    }
}

/// A value, and the path that leads to it.
pub(crate) struct Field<'a> {
    node: &'a Node,
    path: String,
}

impl<'a> Field<'a> {
    /// An item of a list of the file.
    pub(crate) fn item(list: &str, index: usize, node: &'a Node) -> Self {
        Self { node, path: format!("{list}[{index}]") }
    }

    /// A value of the file as a whole.
    pub(crate) fn whole(path: &str, node: &'a Node) -> Self {
        Self { node, path: path.to_owned() }
    }

    /// The same value by another path.
    pub(crate) fn renamed(self, path: String) -> Self {
        Self { path, ..self }
    }

    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// A copy of the value, with its path.
    pub(crate) fn detached(&self) -> (String, Node) {
        (self.path.clone(), self.node.clone())
    }

    pub(crate) fn is_list(&self) -> bool {
        matches!(self.node.kind, Kind::Sequence(_))
    }

    pub(crate) fn place(&self) -> Place {
        Place { at: self.node.at, path: self.path.as_str().into() }
    }

    /// Returns whether there is nothing in it.
    pub(crate) fn is_empty(&self) -> bool {
        match &self.node.kind {
            Kind::Empty => true,
            Kind::Scalar(text) => text.expose().is_empty(),
            Kind::Sequence(items) => items.is_empty(),
            Kind::Mapping(entries) => entries.is_empty(),
        }
    }

    /// The values of a block, by their keys; nothing when it is none.
    pub(crate) fn fields(&self) -> impl Iterator<Item = (&'a str, Self)> {
        let entries = if let Kind::Mapping(entries) = &self.node.kind { &entries[..] } else { &[] };
        entries.iter().map(|entry| (entry.key.as_str(), Self { node: &entry.value, path: self.path_of(&entry.key) }))
    }

    /// The value at a path of keys; none when it is absent or `null`.
    pub(crate) fn at(&self, path: &str) -> Option<Self> {
        let mut node = self.node;
        for key in path.split('.') {
            let Kind::Mapping(entries) = &node.kind else { return None };
            node = &entries.iter().find(|entry| entry.key == key)?.value;
        }
        (!matches!(node.kind, Kind::Empty)).then(|| Self { node, path: self.path_of(path) })
    }

    fn path_of(&self, inner: &str) -> String {
        if self.path.is_empty() { inner.to_owned() } else { format!("{}.{inner}", self.path) }
    }

    /// Its items. Reports a value that is no list.
    pub(crate) fn items(&self, report: &mut Report) -> Vec<Self> {
        let Kind::Sequence(items) = &self.node.kind else {
            report.error(&self.place(), "is no list");
            return Vec::new();
        };
        items.iter().enumerate().map(|(index, node)| Self::item(&self.path, index, node)).collect()
    }

    /// Its text; none of a list or a block. Numbers are texts, too.
    pub(crate) fn text(&self) -> Option<&'a str> {
        if let Kind::Scalar(text) = &self.node.kind { Some(text.expose()) } else { None }
    }

    /// Its text with its place; none when it is empty.
    pub(crate) fn named(&self) -> Option<Named> {
        let text = self.text().filter(|text| !text.is_empty())?;
        Some(Named { place: self.place(), text: text.into() })
    }

    /// Its whole number, also when it is written as `5.0`.
    pub(crate) fn number<T: FromStr>(&self) -> Option<T> {
        let text = self.text()?;
        text.strip_suffix(".0").unwrap_or(text).parse().ok()
    }
}
