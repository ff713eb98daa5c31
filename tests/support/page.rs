//! Fenced blocks of README.md and of the pages in `docs/`, by their first lines: a block that moves to another page
//! keeps its checks.

use std::fs;
use std::path::{Path, PathBuf};

/// A fenced block.
pub struct Block {
    pub page: PathBuf,
    /// The word behind the fence; empty for shell and output.
    pub language: String,
    /// Its lines, without the indentation of the fence.
    pub text: String,
    /// The heading above it, without its number signs.
    pub heading: String,
}

impl Block {
    /// The name by which tests know it: the beginning of its first line.
    pub fn name(&self) -> String {
        let line = self.text.lines().next().unwrap_or_default();
        let line = line.split("  #").next().unwrap_or_default();
        line.chars().take(40).collect::<String>().trim_end().to_owned()
    }
}

/// All blocks, in the order of the pages. The pages of `docs/development/design/` and `docs/cli.md` have tests of their
/// own.
pub fn blocks() -> Vec<Block> {
    let mut pages = vec![PathBuf::from("README.md")];
    pages_below(Path::new("docs"), &mut pages);
    pages_below(Path::new("crates/query-store/docs"), &mut pages);
    pages.retain(|page| page != Path::new("docs/cli.md"));
    pages.sort();
    pages.iter().flat_map(|page| blocks_of(page)).collect()
}

/// The text of the only block with this name.
pub fn block(name: &str) -> String {
    let mut found = blocks_named(name);
    assert_eq!(found.len(), 1, "blocks with the name {name:?}");
    found.remove(0)
}

/// The texts of all blocks with this name.
pub fn blocks_named(name: &str) -> Vec<String> {
    let found: Vec<String> =
        blocks().into_iter().filter(|block| block.name() == name).map(|block| block.text).collect();
    assert!(!found.is_empty(), "no block has the name {name:?}");
    found
}

fn pages_below(folder: &Path, pages: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("design") {
            pages_below(&path, pages);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            pages.push(path);
        }
    }
}

fn blocks_of(page: &Path) -> Vec<Block> {
    let text = fs::read_to_string(page).unwrap();
    let (mut blocks, mut heading) = (Vec::new(), String::new());
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line.starts_with('#') {
            heading = line.trim_start_matches('#').trim().to_owned();
        }
        let indent = line.len() - line.trim_start().len();
        let Some(language) = line.trim_start().strip_prefix("```") else { continue };
        let inner = lines.by_ref().take_while(|line| line.trim() != "```");
        let text: Vec<&str> = inner.map(|line| line.get(indent..).unwrap_or_default()).collect();
        let (language, text) = (language.to_owned(), text.join("\n") + "\n");
        blocks.push(Block { page: page.to_owned(), language, text, heading: heading.clone() });
    }
    blocks
}
