//! Reads the file of `keygate apply`, and refuses it whole when anything in it is wrong.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use anyhow::{Context as _, anyhow, bail};

use super::document::Document;
use super::flaws;
use crate::cli::output::Escaped;

/// Bytes of a file at most: some two hundred thousand keys with their users.
const MAX_FILE: u64 = 64 << 20;

/// Reads a file; `-` is standard input.
pub(super) fn read(path: &Path) -> anyhow::Result<Document> {
    let mut text = String::new();
    let name = path.display();
    let read = if path == Path::new("-") {
        io::stdin().lock().take(MAX_FILE + 1).read_to_string(&mut text)
    } else {
        File::open(path).and_then(|file| file.take(MAX_FILE + 1).read_to_string(&mut text))
    };
    let length = read.with_context(|| format!("{name}: cannot be read"))?;
    if length as u64 > MAX_FILE {
        bail!("{name}: is larger than {} MiB; split it", MAX_FILE >> 20);
    }
    let (mut document, outline) = Document::parse(&text).map_err(|error| anyhow!("{name}: {}", Escaped(error)))?;
    let flaws = flaws::find(&document, &outline);
    let lines = flaws.iter().map(|flaw| format!("{name}:{}:{}: {}", flaw.at.line, flaw.at.column, flaw.what));
    document.normalize();
    if flaws.is_empty() { Ok(document) } else { Err(anyhow!("{}", lines.collect::<Vec<_>>().join("\n"))) }
}
