//! The file as a tree whose nodes know where they stand. Keys given twice stay in it, so that both can be reported.

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, ScanError, Span, StrInput};

use super::Location;
use crate::secret::Secret;

/// Nesting deeper than this is refused: settings need five levels, and the tree is walked recursively.
const MAX_DEPTH: usize = 32;

/// One node.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) at: Location,
    pub(super) kind: Kind,
}

/// What a node is.
#[derive(Debug)]
pub(super) enum Kind {
    /// Nothing was written, or `null`.
    Empty,
    /// A text; which type it stands for is its reader's to say. Kept as a secret, because it may be one.
    Scalar(Secret),
    Sequence(Vec<Node>),
    Mapping(Vec<Entry>),
}

/// One key with its value.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) at: Location,
    pub(super) value: Node,
}

/// Why a text is no settings file, and where.
type Fault = (Location, String);

/// Parses a text that holds one document.
pub(super) fn parse(text: &str) -> Result<Node, Fault> {
    let mut events = Events { parser: Parser::new_from_str(text), depth: 0 };
    loop {
        match events.next()? {
            (Event::StreamEnd, span) => return Ok(Node { at: location(span.start), kind: Kind::Empty }),
            (Event::DocumentStart(_), _) => break,
            _ => {}
        }
    }
    let root = events.node()?;
    loop {
        match events.next()? {
            (Event::StreamEnd, _) => return Ok(root),
            (Event::DocumentStart(_), span) => return Err(fault(span, "a second document begins here; keep to one")),
            _ => {}
        }
    }
}

/// The parser's events, read recursively.
struct Events<'a> {
    parser: Parser<'a, StrInput<'a>>,
    depth: usize,
}

impl<'a> Events<'a> {
    fn next(&mut self) -> Result<(Event<'a>, Span), Fault> {
        let event = self.parser.next_event().unwrap_or(Ok((Event::StreamEnd, Span::default())));
        event.map_err(|e: ScanError| (location(*e.marker()), format!("is not YAML: {}", e.info())))
    }

    fn node(&mut self) -> Result<Node, Fault> {
        let (event, span) = self.next()?;
        self.node_of(event, span)
    }

    fn node_of(&mut self, event: Event<'a>, span: Span) -> Result<Node, Fault> {
        let kind = match event {
            Event::Alias(_) => return Err(fault(span, "aliases are not supported; write the value out")),
            Event::Scalar(_, _, _, Some(_)) | Event::SequenceStart(_, Some(_)) | Event::MappingStart(_, Some(_)) => {
                return Err(fault(span, "tags are not supported; remove it"));
            }
            Event::Scalar(text, style, ..) => scalar(&text, style),
            Event::SequenceStart(..) => self.nested(span, Self::sequence)?,
            Event::MappingStart(..) => self.nested(span, Self::mapping)?,
            _ => return Err(fault(span, "a value is expected here")),
        };
        Ok(Node { at: location(span.start), kind })
    }

    fn nested(&mut self, span: Span, read: impl FnOnce(&mut Self) -> Result<Kind, Fault>) -> Result<Kind, Fault> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(fault(span, "is nested too deeply"));
        }
        let kind = read(self);
        self.depth -= 1;
        kind
    }

    fn sequence(&mut self) -> Result<Kind, Fault> {
        let mut items = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd, _) => return Ok(Kind::Sequence(items)),
                (event, span) => items.push(self.node_of(event, span)?),
            }
        }
    }

    fn mapping(&mut self) -> Result<Kind, Fault> {
        let mut entries = Vec::new();
        loop {
            let (key, at) = match self.next()? {
                (Event::MappingEnd, _) => return Ok(Kind::Mapping(entries)),
                (Event::Scalar(key, ..), span) => (key.into_owned(), location(span.start)),
                (_, span) => return Err(fault(span, "a key must be a plain word")),
            };
            entries.push(Entry { key, at, value: self.node()? });
        }
    }
}

fn scalar(text: &str, style: ScalarStyle) -> Kind {
    let plain = style == ScalarStyle::Plain;
    if plain && matches!(text, "" | "~" | "null" | "Null" | "NULL") {
        Kind::Empty
    } else {
        Kind::Scalar(Secret::new(text.to_owned()))
    }
}

fn fault(span: Span, what: &str) -> Fault {
    (location(span.start), what.to_owned())
}

fn location(marker: Marker) -> Location {
    Location { line: marker.line().max(1), column: marker.col() + 1 }
}
