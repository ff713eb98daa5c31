//! Checkpoints as they come from where copies are kept: the file beside the journal, the table of a database, or an object of
//! shipped JSON lines.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::Path;

use anyhow::{Context as _, anyhow};
use serde::Deserialize;

/// Bytes of a note, or of a line with one, at most.
const MAX_LENGTH: u64 = 1 << 20;
/// The last bytes of the magic numbers of Zstandard: of a frame, and of frames to skip, with which objects begin (RFC 8878,
/// sections 3.1.1 and 3.1.2).
const ZSTD: [&[u8]; 2] = [&[0xb5, 0x2f, 0xfd], &[0x2a, 0x4d, 0x18]];

/// A line of a shipped object, as far as it matters here.
#[derive(Deserialize)]
struct ShippedLine {
    checkpoint: Option<ShippedCheckpoint>,
}

#[derive(Deserialize)]
struct ShippedCheckpoint {
    note: String,
}

/// Reads a checkpoint: a signed note, or the last one among JSON lines, which may be compressed. `-` is standard input.
pub(super) fn read(file: &Path) -> anyhow::Result<String> {
    let name = || format!("{}: cannot be read", file.display());
    if file == Path::new("-") {
        return read_from(io::stdin().lock()).with_context(name);
    }
    read_from(File::open(file).with_context(name)?).with_context(name)
}

fn read_from(input: impl Read) -> anyhow::Result<String> {
    let (input, start) = peek(input, 4)?;
    if start.get(1..).is_some_and(|magic| ZSTD.contains(&magic)) {
        return last_of_lines(BufReader::new(zstd::Decoder::new(input)?));
    }
    if start.first() == Some(&b'{') {
        return last_of_lines(BufReader::new(input));
    }
    let mut note = String::new();
    input.take(MAX_LENGTH).read_to_string(&mut note)?;
    // A database's client ends what it prints with a line feed of its own, others take that of the note away.
    Ok(format!("{}\n", note.trim_end()))
}

/// The first bytes of an input, and the input with them.
fn peek<R: Read>(mut input: R, length: u64) -> io::Result<(impl Read + use<R>, Vec<u8>)> {
    let mut start = Vec::new();
    input.by_ref().take(length).read_to_end(&mut start)?;
    Ok((Cursor::new(start.clone()).chain(input), start))
}

/// The note of the last checkpoint among JSON lines.
fn last_of_lines(mut lines: impl BufRead) -> anyhow::Result<String> {
    let (mut line, mut last) = (Vec::new(), None);
    while lines.by_ref().take(MAX_LENGTH).read_until(b'\n', &mut line)? > 0 {
        let read =
            serde_json::from_slice::<ShippedLine>(&line).context("a line is not a shipped record or checkpoint")?;
        last = read.checkpoint.map(|checkpoint| checkpoint.note).or(last);
        line.clear();
    }
    last.ok_or_else(|| anyhow!("no line has a checkpoint; take a later object"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTE: &str = "example.org/gw-1\n3\nroot\n\n— example.org/gw-1 AAAA\n";

    fn read(text: &[u8]) -> Result<String, String> {
        read_from(text).map_err(|error| format!("{error:#}"))
    }

    fn line(note: &str) -> String {
        format!("{}\n", serde_json::json!({ "checkpoint": { "gateway": "gw-1", "note": note } }))
    }

    #[test]
    fn note_is_read_with_and_without_its_last_line_feed() {
        for text in [NOTE.to_owned(), format!("{NOTE}\n"), NOTE.trim_end().to_owned()] {
            assert_eq!(read(text.as_bytes()), Ok(NOTE.to_owned()), "{text:?}");
        }
    }

    #[test]
    fn last_checkpoint_of_json_lines_is_read_compressed_or_not() {
        let lines = format!("{{\"id\":1}}\n{}{}{{\"id\":2}}\n", line("old"), line(NOTE));
        assert_eq!(read(lines.as_bytes()), Ok(NOTE.to_owned()));
        assert_eq!(read(line(NOTE).trim_end().as_bytes()), Ok(NOTE.to_owned()), "one line alone");
        let compressed = zstd::bulk::compress(lines.as_bytes(), 3).unwrap();
        assert_eq!(read(&compressed), Ok(NOTE.to_owned()));
        // A frame to skip, as at the beginning of each object.
        let skipped = [&0x184D_2A50_u32.to_le_bytes()[..], &3_u32.to_le_bytes(), b"abc", &compressed].concat();
        assert_eq!(read(&skipped), Ok(NOTE.to_owned()));
    }

    #[test]
    fn input_without_a_checkpoint_is_named() {
        let none = read(b"{\"id\":1}\n").unwrap_err();
        assert!(none.contains("no line has a checkpoint"), "{none}");
        let other = read(b"{torn").unwrap_err();
        assert!(other.contains("a line is not"), "{other}");
        assert!(read(&[0x28, 0xb5, 0x2f, 0xfd, 1, 2]).is_err(), "a damaged object");
    }
}
