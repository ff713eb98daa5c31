//! Syntax tree of a settings file, or of an item of a data file: every node knows its location. Keys given twice are
//! kept, so that both can be reported.

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, ScanError, Span, StrInput};

use super::Location;
use domain::secret::Secret;

/// Deepest nesting that is accepted. Settings need five levels; the limit bounds the recursion over a hostile file.
const MAX_DEPTH: usize = 32;

/// One node.
#[derive(Clone, Debug)]
pub struct Node {
    /// Its place.
    pub at: Location,
    /// Its kind, with its content.
    pub kind: Kind,
}

/// Kind of a node, with its content.
#[derive(Clone, Debug)]
pub enum Kind {
    /// No value, or `null`.
    Empty,
    /// A text, whose type the reader chooses. Kept as a secret, because any value may be one.
    Scalar(Secret),
    /// A list.
    Sequence(Vec<Node>),
    /// A block of `key: value`, in the order of the file.
    Mapping(Vec<Entry>),
}

/// One key with its value.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// The place of the key.
    pub at: Location,
    /// Its value.
    pub value: Node,
}

impl Node {
    /// Moves it, with all in it, to the place of the text that it was read from.
    pub fn move_to(&mut self, at: Location) {
        self.at = at;
        match &mut self.kind {
            Kind::Empty | Kind::Scalar(_) => {}
            Kind::Sequence(items) => items.iter_mut().for_each(|item| item.move_to(at)),
            Kind::Mapping(entries) => entries.iter_mut().for_each(|entry| {
                entry.at = at;
                entry.value.move_to(at);
            }),
        }
    }
}

/// Syntax error: its location, and what is wrong.
pub(super) type SyntaxError = (Location, String);

/// Parses a text of one document.
pub(super) fn parse(text: &str) -> Result<Node, SyntaxError> {
    let mut events = Events::new(text);
    if let Some(at) = events.begin()? {
        return Ok(Node { at, kind: Kind::Empty });
    }
    let root = events.read_node()?;
    events.end()?;
    Ok(root)
}

/// Recursive descent over the parser's events.
pub(super) struct Events<'a> {
    parser: Parser<'a, StrInput<'a>>,
    depth: usize,
}

impl<'a> Events<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { parser: Parser::new_from_str(text), depth: 0 }
    }

    /// Reads up to the value of the document; of a text without a document, to its end, whose place it returns.
    pub(super) fn begin(&mut self) -> Result<Option<Location>, SyntaxError> {
        loop {
            match self.next()? {
                (Event::StreamEnd, span) => return Ok(Some(location(span.start))),
                (Event::DocumentStart(_), _) => return Ok(None),
                _ => {}
            }
        }
    }

    /// Reads the end of the text, behind the value of its document.
    pub(super) fn end(&mut self) -> Result<(), SyntaxError> {
        loop {
            match self.next()? {
                (Event::StreamEnd, _) => return Ok(()),
                (Event::DocumentStart(_), span) => {
                    return Err(syntax_error(span, "a second document begins here; keep to one"));
                }
                _ => {}
            }
        }
    }

    pub(super) fn next(&mut self) -> Result<(Event<'a>, Span), SyntaxError> {
        let event = self.parser.next_event().unwrap_or(Ok((Event::StreamEnd, Span::default())));
        event.map_err(|e: ScanError| (location(*e.marker()), format!("is not YAML: {}", e.info())))
    }

    pub(super) fn read_node(&mut self) -> Result<Node, SyntaxError> {
        let (event, span) = self.next()?;
        self.node_from(event, span)
    }

    pub(super) fn node_from(&mut self, event: Event<'a>, span: Span) -> Result<Node, SyntaxError> {
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

pub(super) fn syntax_error(span: Span, what: &str) -> SyntaxError {
    (location(span.start), what.to_owned())
}

pub(super) fn location(marker: Marker) -> Location {
    Location { line: marker.line().max(1), column: marker.col() + 1 }
}
