//! Style that rustfmt and Clippy do not hold: the beginnings of comments, and branches on booleans.

use std::fs;
use std::path::Path;

use syn::visit::{self, Visit};

use super::columns::CODE;
use crate::support::files::rust_files;

/// Words that a comment does not begin with: it names its thing, or says what the thing does.
const RIDDLES: [&str; 7] = ["What", "Who", "Whoever", "How", "Whether", "Why", "Where"];

#[test]
fn comments_begin_with_their_thing() {
    let mut found = Vec::new();
    for file in CODE.iter().flat_map(|folder| rust_files(Path::new(folder))) {
        let text = fs::read_to_string(&file).unwrap();
        let mut before = None;
        for (number, line) in text.lines().enumerate() {
            let comment = comment(line);
            // The lines after the first go on with its sentence.
            let word = comment.filter(|_| before.is_none()).and_then(|comment| comment.split([' ', ',']).next());
            if word.is_some_and(|word| RIDDLES.contains(&word)) {
                found.push(format!("{}:{}: {line}", file.display(), number + 1));
            }
            before = comment;
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn branches_on_booleans_are_ifs() {
    for file in CODE.iter().flat_map(|folder| rust_files(Path::new(folder))) {
        let mut matches = BooleanMatches::default();
        matches.visit_file(&syn::parse_file(&fs::read_to_string(&file).unwrap()).unwrap());
        assert_eq!(matches.lines, [0; 0], "{}: matches on a boolean in these lines", file.display());
    }
}

/// The text of a line that is a comment.
fn comment(line: &str) -> Option<&str> {
    let text = line.trim_start().strip_prefix("//")?;
    Some(text.trim_start_matches(['/', '!']).trim_start())
}

/// Collects the lines of matches with `true` or `false` in an arm.
#[derive(Default)]
struct BooleanMatches {
    lines: Vec<usize>,
}

impl<'ast> Visit<'ast> for BooleanMatches {
    fn visit_expr_match(&mut self, found: &'ast syn::ExprMatch) {
        let is_boolean =
            |arm: &syn::Arm| matches!(&arm.pat, syn::Pat::Lit(literal) if matches!(literal.lit, syn::Lit::Bool(_)));
        if found.arms.iter().any(is_boolean) {
            self.lines.push(found.match_token.span.start().line);
        }
        visit::visit_expr_match(self, found);
    }
}
