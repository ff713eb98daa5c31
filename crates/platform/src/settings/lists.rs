//! Reader of a data file item by item: the lists that a caller chooses are handed over one item at a time, and nothing
//! of the others is kept. Files of other programs are read so, however large.
//!
//! - Memory: the text, and the tree of one item.
//! - Aliases and tags are errors in the items, as in settings, and are read over elsewhere.
//! - A key given twice is an error: of two values, another reader may have taken the other.

use std::collections::HashSet;

use saphyr_parser::{Event, Span};

use super::Location;
use super::tree::{Events, Kind, Node, SyntaxError, location, syntax_error};

const GIVEN_TWICE: &str = "is given twice; remove one";

/// Reading of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Treatment {
    /// As a list, whose items are handed over.
    Items,
    /// As a whole, which is handed over as one item.
    Whole,
    /// As a block, of whose values the caller chooses again.
    Enter,
    /// Not at all.
    Skip,
}

/// A part of a file.
#[derive(Debug)]
pub enum Part<'a> {
    /// An item of a list.
    Item {
        /// Path of the list, such as `node.nodes`; empty for a file that is a list.
        list: &'a str,
        /// Number of the item, from 0.
        index: usize,
        /// The item.
        node: Node,
        /// Characters of the file before it.
        offset: usize,
    },
    /// A value that was not read.
    Skipped {
        /// Its path.
        path: &'a str,
        /// The place of its key.
        at: Location,
        /// Number of values in it: of a list, its items.
        values: usize,
    },
}

/// Reads the lists of a text, YAML or JSON, that `treat` chooses by their paths.
///
/// # Errors
/// The first error of syntax, with its place.
pub fn read_lists(
    text: &str,
    treat: impl Fn(&str) -> Treatment,
    take: impl FnMut(Part<'_>),
) -> Result<(), (Location, String)> {
    let mut reader = Reader { events: Events::new(text), treat, take };
    if reader.events.begin()?.is_some() {
        return Ok(());
    }
    match reader.events.next()? {
        (Event::SequenceStart(_, None), _) if (reader.treat)("") == Treatment::Items => reader.read_items("")?,
        (Event::MappingStart(_, None), _) => reader.read_block("")?,
        (_, span) => return Err(syntax_error(span, "this is no file of the kind that is expected")),
    }
    reader.events.end()
}

/// Reads each document of a text, YAML or JSON.
///
/// # Errors
/// The first error of syntax, with its place.
pub fn read_documents(text: &str, mut take: impl FnMut(Node)) -> Result<(), (Location, String)> {
    let mut events = Events::new(text);
    while events.begin()?.is_none() {
        let node = events.read_node()?;
        if let Some(at) = find_repetition(&node) {
            return Err((at, GIVEN_TWICE.to_owned()));
        }
        take(node);
    }
    Ok(())
}

struct Reader<'a, W, T> {
    events: Events<'a>,
    treat: W,
    take: T,
}

impl<'a, W: Fn(&str) -> Treatment, T: FnMut(Part<'_>)> Reader<'a, W, T> {
    fn read_block(&mut self, path: &str) -> Result<(), SyntaxError> {
        let mut seen = HashSet::new();
        loop {
            let (event, span) = self.events.next()?;
            let key = match event {
                Event::MappingEnd => return Ok(()),
                Event::Scalar(key, ..) => key,
                _ => return Err(syntax_error(span, "a key must be a plain word")),
            };
            let inner = if path.is_empty() { key.into_owned() } else { format!("{path}.{key}") };
            self.read_value(&inner, span)?;
            if !seen.insert(inner) {
                return Err(syntax_error(span, GIVEN_TWICE));
            }
        }
    }

    fn read_value(&mut self, path: &str, key: Span) -> Result<(), SyntaxError> {
        let treatment = (self.treat)(path);
        let (event, span) = self.events.next()?;
        match (treatment, event) {
            (Treatment::Skip, event) => {
                let values = self.skip(&event)?;
                (self.take)(Part::Skipped { path, at: location(key.start), values });
                Ok(())
            }
            (Treatment::Whole, event) => self.read_item(path, 0, event, span),
            (Treatment::Items, Event::SequenceStart(_, None)) => self.read_items(path),
            // No deeper than the paths that the caller knows.
            (Treatment::Enter, Event::MappingStart(_, None)) => self.read_block(path),
            (_, event) => match self.events.node_from(event, span)?.kind {
                Kind::Empty => Ok(()),
                _ => Err(syntax_error(span, "another kind of value is expected here")),
            },
        }
    }

    fn read_items(&mut self, list: &str) -> Result<(), SyntaxError> {
        for index in 0.. {
            let (event, span) = self.events.next()?;
            if matches!(event, Event::SequenceEnd) {
                break;
            }
            self.read_item(list, index, event, span)?;
        }
        Ok(())
    }

    fn read_item(&mut self, list: &str, index: usize, event: Event<'a>, span: Span) -> Result<(), SyntaxError> {
        let node = self.events.node_from(event, span)?;
        if let Some(at) = find_repetition(&node) {
            return Err((at, GIVEN_TWICE.to_owned()));
        }
        (self.take)(Part::Item { list, index, node, offset: span.start.index() });
        Ok(())
    }

    /// Reads over a value that begins with this event, and counts the values in it.
    fn skip(&mut self, begin: &Event<'_>) -> Result<usize, SyntaxError> {
        let is_block = matches!(begin, Event::MappingStart(..));
        if !is_block && !matches!(begin, Event::SequenceStart(..)) {
            return Ok(1);
        }
        let mut depth = 1_usize;
        let mut nodes = 0;
        while depth > 0 {
            let (event, span) = self.events.next()?;
            match event {
                Event::SequenceEnd | Event::MappingEnd => depth -= 1,
                Event::StreamEnd => return Err(syntax_error(span, "the file ends in the middle of a value")),
                _ => nodes += usize::from(depth == 1),
            }
            if matches!(event, Event::SequenceStart(..) | Event::MappingStart(..)) {
                depth += 1;
            }
        }
        // The nodes of a block are its keys and their values.
        Ok(if is_block { nodes / 2 } else { nodes })
    }
}

/// The place of a key that a block has twice. The recursion is as deep as the parser has built.
fn find_repetition(node: &Node) -> Option<Location> {
    match &node.kind {
        Kind::Empty | Kind::Scalar(_) => None,
        Kind::Sequence(items) => items.iter().find_map(find_repetition),
        Kind::Mapping(entries) => {
            let mut seen = HashSet::with_capacity(entries.len());
            let repeated = entries.iter().find(|entry| !seen.insert(&*entry.key)).map(|entry| entry.at);
            repeated.or_else(|| entries.iter().find_map(|entry| find_repetition(&entry.value)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn treat(path: &str) -> Treatment {
        match path {
            "" | "items" | "node.nodes" => Treatment::Items,
            "node" => Treatment::Enter,
            "whole" => Treatment::Whole,
            _ => Treatment::Skip,
        }
    }

    /// The parts of a text, one a line, or its error.
    fn parts(text: &str) -> Result<Vec<String>, String> {
        let mut parts = Vec::new();
        let read = read_lists(text, treat, |part| {
            parts.push(match part {
                Part::Item { list, index, node, .. } => format!("{list}[{index}] at line {}", node.at.line),
                Part::Skipped { path, at, values } => format!("{path} at line {} has {values}", at.line),
            });
        });
        read.map(|()| parts).map_err(|(at, what)| format!("{}:{}: {what}", at.line, at.column))
    }

    #[test]
    fn chosen_lists_are_handed_over_and_others_are_counted() {
        let text = "---
other: &x [1, [2, *x], {a: b}]
block: {a: 1, b: {c: 2}}
items:
- a: 1
- b
node: {nodes: [1, 2], dir: true}
item: !t 7
whole: {a: {b: 1}}
";
        let expected = [
            "other at line 2 has 3",
            "block at line 3 has 2",
            "items[0] at line 5",
            "items[1] at line 6",
            "node.nodes[0] at line 7",
            "node.nodes[1] at line 7",
            "node.dir at line 7 has 1",
            "item at line 8 has 1",
            "whole[0] at line 9",
        ];
        assert_eq!(parts(text).unwrap(), expected);
        assert_eq!(parts("[{\"a\": 1},\n {\"a\": 2}]").unwrap(), ["[0] at line 1", "[1] at line 2"]);
        for empty in ["", "items:\n", "items: []\n", "{}"] {
            assert_eq!(parts(empty).unwrap(), [""; 0], "{empty:?}");
        }
    }

    #[test]
    fn documents_are_read_one_after_the_other() {
        let lines = |text: &str| {
            let mut lines = Vec::new();
            read_documents(text, |node| lines.push(node.at.line)).map(|()| lines)
        };
        assert_eq!(lines("a: 1\n---\nb: 2\n---\n---\n- 3\n...\n").unwrap(), [1, 3, 5, 6]);
        assert_eq!(lines("{\"a\": [1]}").unwrap(), [1]);
        assert_eq!(lines("").unwrap(), [0_usize; 0]);
        assert!(lines("a: 1\n---\na: 1\na: 2\n").is_err_and(|(at, _)| at.line == 4));
    }

    #[test]
    fn errors_have_their_places() {
        for (text, error) in [
            ("items: {a: 1}\n", "1:8: another kind"),
            ("whole: {a: {b: 1, b: 2}}\n", "1:19: is given twice"),
            ("items:\n- &x a\n- *x\n", "3:3: aliases"),
            ("items:\n- a: 1\n  a: 2\n", "3:3: is given twice"),
            ("items: []\nitems: []\n", "2:1: is given twice"),
            ("text\n", "1:1: this is no file"),
            ("items: [a\n", "2:1: is not YAML"),
            ("items: []\n---\nitems: []\n", "2:1: a second document"),
        ] {
            let found = parts(text).unwrap_err();
            assert!(found.starts_with(error), "{text:?}: {found}");
        }
    }

    #[test]
    fn depth_of_items_is_bounded_and_that_of_others_needs_no_stack() {
        let nested = |key: &str, depth| format!("{key}: {}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(parts(&nested("items", 40)).unwrap_err().contains("nested too deeply"));
        assert!(parts(&nested("other", 200)).is_ok());
    }
}
