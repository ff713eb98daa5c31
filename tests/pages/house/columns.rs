//! Lines end at 120 columns: of code, comments and scripts.

use std::ffi::OsStr;
use std::path::Path;

use crate::support::files::files;

/// Longest line, in characters.
const COLUMNS: usize = 120;
/// Folders with code.
pub(super) const CODE: [&str; 6] = ["src", "crates", "tests", "benches", "fuzz/src", "deploy"];

#[test]
fn lines_end_at_120_columns() {
    let mut long = Vec::new();
    for file in CODE.iter().flat_map(|folder| files(Path::new(folder))).filter(|file| is_held_to(file)) {
        let text = std::fs::read_to_string(&file).unwrap();
        let lines = text.lines().enumerate().filter(|(_, line)| line.chars().count() > COLUMNS && !is_table_row(line));
        long.extend(lines.map(|(number, line)| format!("{}:{}: {line}", file.display(), number + 1)));
    }
    assert!(long.is_empty(), "{} lines are too long:\n{}", long.len(), long.join("\n"));
}

fn is_held_to(file: &Path) -> bool {
    let of_program = file.starts_with("src") || file.starts_with("crates");
    let extension = file.extension().and_then(OsStr::to_str).unwrap_or_default();
    ["rs", "sh"].contains(&extension) || of_program && extension == "lua"
}

/// A row of a table in a comment cannot be broken.
fn is_table_row(line: &str) -> bool {
    ["/// |", "//! |"].iter().any(|begin| line.trim_start().starts_with(begin))
}
