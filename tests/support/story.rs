//! A worked example of `docs/development/design/`: the test tells what it sees step by step, and the page has the same
//! lines.

use std::fs;
use std::path::PathBuf;

/// The lines of an example, as they are told.
pub struct Story {
    page: PathBuf,
    lines: Vec<String>,
}

impl Story {
    /// The example of a page of `docs/development/design/`.
    pub fn of(page: &str) -> Self {
        Self { page: PathBuf::from("docs/development/design").join(page), lines: Vec::new() }
    }

    /// Tells one line.
    #[allow(clippy::print_stdout, reason = "an example is read by people, too")]
    pub fn tell(&mut self, line: impl AsRef<str>) {
        let line = line.as_ref().trim_end();
        println!("{line}");
        self.lines.push(line.to_owned());
    }

    /// Compares what was told with the first block of text on the page.
    ///
    /// # Panics
    /// When the page has other lines.
    pub fn end(self) {
        let text = fs::read_to_string(&self.page).unwrap();
        let block = text.split("\n```text\n").nth(1).expect("the page has an example").split("\n```").next().unwrap();
        let (page, told) = (self.page.display(), self.lines.join("\n"));
        assert!(block == told, "{page} and the gateway part: the page has\n{block}\n\nand this happened:\n{told}\n");
    }
}
