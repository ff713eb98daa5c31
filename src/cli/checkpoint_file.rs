//! Checkpoints as they come from where copies are kept: the file beside the journal, the table of a database, or an
//! object of shipped JSON lines.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::Path;

use anyhow::{Context as _, anyhow};
use serde::Deserialize;

use ::journal::audit::{self as journal, CheckpointCopies, PublicKey};

/// Bytes of a note, or of a line with one, at most.
const MAX_LENGTH: u64 = 1 << 20;
/// The last bytes of the magic numbers of Zstandard: of a frame, and of frames to skip, with which objects begin (RFC
/// 8878, sections 3.1.1 and 3.1.2).
const ZSTD: [&[u8]; 2] = [&[0xb5, 0x2f, 0xfd], &[0x2a, 0x4d, 0x18]];

/// Beginning of a line with a signature.
const SIGNATURE: &str = "— ";

/// A line of a shipped object, as far as it matters here.
#[derive(Deserialize)]
struct ShippedLine {
    checkpoint: Option<ShippedCheckpoint>,
}

#[derive(Deserialize)]
struct ShippedCheckpoint {
    note: String,
}

/// Reads a checkpoint: the last one of a file.
pub(super) fn read_last(file: &Path) -> anyhow::Result<String> {
    let mut last = None;
    for_each(file, |note| {
        last = Some(note);
        Ok(())
    })?;
    last.ok_or_else(|| anyhow!("{}: there is no checkpoint", file.display()))
}

/// Reads all checkpoints of a file, which the key and the witnesses must have signed.
pub(super) fn read_copies(file: &Path, key: &PublicKey, witnesses: &[PublicKey]) -> anyhow::Result<CheckpointCopies> {
    let mut copies = CheckpointCopies::default();
    let mut number = 0_u64;
    for_each(file, |note| {
        number += 1;
        for witness in witnesses {
            let is_cosigned = journal::is_signed_by(&note, witness);
            let name = witness.name();
            anyhow::ensure!(is_cosigned, "checkpoint {number}: it is not cosigned by {name}");
        }
        copies.add(&note, key).with_context(|| format!("checkpoint {number}"))
    })?;
    anyhow::ensure!(copies.count() > 0, "{}: there is no checkpoint of {}", file.display(), key.name());
    Ok(copies)
}

/// Calls `each` with every checkpoint of a file: signed notes, one after the other, or JSON lines, which may be
/// compressed. `-` is standard input.
fn for_each(file: &Path, each: impl FnMut(String) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let name = || format!("{}: cannot be read", file.display());
    if file == Path::new("-") {
        return read_from(io::stdin().lock(), each).with_context(name);
    }
    read_from(File::open(file).with_context(name)?, each).with_context(name)
}

fn read_from(input: impl Read, each: impl FnMut(String) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let (input, start) = peek(input, 4)?;
    if start.get(1..).is_some_and(|magic| ZSTD.contains(&magic)) {
        return read_lines(BufReader::new(zstd::Decoder::new(input)?), each);
    }
    if start.first() == Some(&b'{') {
        return read_lines(BufReader::new(input), each);
    }
    read_notes(BufReader::new(input), each)
}

/// Reads signed notes, one after the other. A database's client ends what it prints with a line feed of its own, others
/// take that of the note away.
fn read_notes(mut input: impl BufRead, mut each: impl FnMut(String) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let mut note = String::new();
    let mut line = String::new();
    loop {
        line.clear();
        let read = input.by_ref().take(MAX_LENGTH).read_line(&mut line)?;
        // Signatures end a note: what follows them is the next one.
        let is_whole = note.rsplit_once('\n').is_some_and(|(_, last)| last.starts_with(SIGNATURE));
        if read == 0 || is_whole && !line.starts_with(SIGNATURE) {
            if !note.trim().is_empty() {
                each(format!("{note}\n"))?;
            }
            note.clear();
        }
        if read == 0 {
            return Ok(());
        }
        if note.is_empty() && line.trim().is_empty() {
            continue;
        }
        if !note.is_empty() {
            note.push('\n');
        }
        note.push_str(line.trim_end_matches(['\n', '\r']));
        anyhow::ensure!(note.len() as u64 <= MAX_LENGTH, "this is no checkpoint");
    }
}

/// The first bytes of an input, and the input with them.
fn peek<R: Read>(mut input: R, length: u64) -> io::Result<(impl Read + use<R>, Vec<u8>)> {
    let mut start = Vec::new();
    input.by_ref().take(length).read_to_end(&mut start)?;
    Ok((Cursor::new(start.clone()).chain(input), start))
}

/// Reads the notes of the checkpoints among JSON lines.
fn read_lines(mut lines: impl BufRead, mut each: impl FnMut(String) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let mut line = Vec::new();
    let mut found = 0_u64;
    while lines.by_ref().take(MAX_LENGTH).read_until(b'\n', &mut line)? > 0 {
        let read =
            serde_json::from_slice::<ShippedLine>(&line).context("a line is not a shipped record or checkpoint")?;
        if let Some(checkpoint) = read.checkpoint {
            found += 1;
            each(checkpoint.note)?;
        }
        line.clear();
    }
    anyhow::ensure!(found > 0, "no line has a checkpoint; take a later object");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTE: &str = "example.org/gw-1\n3\nroot\n\n— example.org/gw-1 AAAA\n";

    fn read_all(text: &[u8]) -> Result<Vec<String>, String> {
        let mut notes = Vec::new();
        let each = |note| {
            notes.push(note);
            Ok(())
        };
        read_from(text, each).map_err(|error| format!("{error:#}"))?;
        Ok(notes)
    }

    fn read(text: &[u8]) -> Result<String, String> {
        read_all(text).map(|mut notes| notes.pop().expect("there is one"))
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
    fn notes_are_read_one_after_the_other() {
        let cosigned = format!("{NOTE}— witness.example.org BBBB\n");
        let other = NOTE.replace("\n3\n", "\n4\n");
        for between in ["", "\n", "\n\n"] {
            let text = [NOTE, &cosigned, &other].join(between);
            assert_eq!(
                read_all(text.as_bytes()),
                Ok(vec![NOTE.into(), cosigned.clone(), other.clone()]),
                "{between:?}"
            );
        }
        assert_eq!(read_all(b"\n"), Ok(vec![]));
        let lines = [line("old"), line(NOTE)].concat();
        assert_eq!(read_all(lines.as_bytes()), Ok(vec!["old".into(), NOTE.into()]));
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
