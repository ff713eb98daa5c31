//! Syntax tree of a settings file: every node knows its location. Keys given twice are kept, so that
//! both can be reported.

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, ScanError, Span, StrInput};

use super::Location;
use domain::secret::Secret;

/// Deepest nesting that is accepted. Settings need five levels; the limit bounds the recursion over a hostile file.
const MAX_DEPTH: usize = 32;

/// One node.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) at: Location,
    pub(super) kind: Kind,
}

/// Kind of a node, with its content.
#[derive(Debug)]
pub(super) enum Kind {
    /// No value, or `null`.
    Empty,
    /// A text, whose type the reader chooses. Kept as a secret, because any value may be one.
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

/// Syntax error: its location, and what is wrong.
type SyntaxError = (Location, String);

/// Parses a text of one document.
pub(super) fn parse(text: &str) -> Result<Node, SyntaxError> {
    let mut events = Events { parser: Parser::new_from_str(text), depth: 0 };
    loop {
        match events.next()? {
            (Event::StreamEnd, span) => return Ok(Node { at: location(span.start), kind: Kind::Empty }),
            (Event::DocumentStart(_), _) => break,
            _ => {}
        }
    }
    let root = events.read_node()?;
    loop {
        match events.next()? {
            (Event::StreamEnd, _) => return Ok(root),
            (Event::DocumentStart(_), span) => {
                return Err(syntax_error(span, "a second document begins here; keep to one"));
            }
            _ => {}
        }
    }
}

/// Recursive descent over the parser's events.
struct Events<'a> {
    parser: Parser<'a, StrInput<'a>>,
    depth: usize,
}

impl<'a> Events<'a> {
    fn next(&mut self) -> Result<(Event<'a>, Span), SyntaxError> {
        let event = self.parser.next_event().unwrap_or(Ok((Event::StreamEnd, Span::default())));
        event.map_err(|e: ScanError| (location(*e.marker()), format!("is not YAML: {}", e.info())))
    }

    fn read_node(&mut self) -> Result<Node, SyntaxError> {
        let (event, span) = self.next()?;
        self.node_from(event, span)
    }

    fn node_from(&mut self, event: Event<'a>, span: Span) -> Result<Node, SyntaxError> {
        let kind = match event {
            Event::Alias(_) => return Err(syntax_error(span, "aliases are not supported; write the value out")),
            Event::Scalar(_, _, _, Some(_)) | Event::SequenceStart(_, Some(_)) | Event::MappingStart(_, Some(_)) => {
                return Err(syntax_error(span, "tags are not supported; remove it"));
            }
            Event::Scalar(text, style, ..) => scalar(&text, style),
            Event::SequenceStart(..) => self.read_nested(span, Self::read_sequence)?,
            Event::MappingStart(..) => self.read_nested(span, Self::read_mapping)?,
            _ => return Err(syntax_error(span, "a value is expected here")),
        };
        Ok(Node { at: location(span.start), kind })
    }

    fn read_nested(
        &mut self,
        span: Span,
        read: impl FnOnce(&mut Self) -> Result<Kind, SyntaxError>,
    ) -> Result<Kind, SyntaxError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(syntax_error(span, "is nested too deeply"));
        }
        let kind = read(self);
        self.depth -= 1;
        kind
    }

    fn read_sequence(&mut self) -> Result<Kind, SyntaxError> {
        let mut items = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd, _) => return Ok(Kind::Sequence(items)),
                (event, span) => items.push(self.node_from(event, span)?),
            }
        }
    }

    fn read_mapping(&mut self) -> Result<Kind, SyntaxError> {
        let mut entries = Vec::new();
        loop {
            let (key, at) = match self.next()? {
                (Event::MappingEnd, _) => return Ok(Kind::Mapping(entries)),
                (Event::Scalar(key, ..), span) => (key.into_owned(), location(span.start)),
                (_, span) => return Err(syntax_error(span, "a key must be a plain word")),
            };
            entries.push(Entry { key, at, value: self.read_node()? });
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

fn syntax_error(span: Span, what: &str) -> SyntaxError {
    (location(span.start), what.to_owned())
}

fn location(marker: Marker) -> Location {
    Location { line: marker.line().max(1), column: marker.col() + 1 }
}
