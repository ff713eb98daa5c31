//! Circles of imports between files.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::imports::Imports;

/// Files that import from each other: a folder, and the files below it. The list may only become shorter.
const CIRCLES: &[(&str, &str)] = &[];

type Edges<'a> = BTreeMap<&'a Path, BTreeSet<&'a Path>>;

/// The files that a file imports from, and those that they import from.
fn reached<'a>(file: &Path, edges: &Edges<'a>) -> BTreeSet<&'a Path> {
    let mut found = BTreeSet::new();
    let mut left: Vec<&Path> = edges[file].iter().copied().collect();
    while let Some(next) = left.pop() {
        if found.insert(next) {
            left.extend(&edges[next]);
        }
    }
    found
}

/// The groups of files each of which imports, in the end, from each other one.
fn circles(edges: &Edges<'_>) -> BTreeSet<BTreeSet<String>> {
    let reached: BTreeMap<&Path, BTreeSet<&Path>> = edges.keys().map(|file| (*file, reached(file, edges))).collect();
    let circle_of = |file: &Path| {
        let group = reached[file].iter().filter(|other| reached[**other].contains(file));
        group.map(|file| file.display().to_string()).collect::<BTreeSet<_>>()
    };
    edges.keys().map(|file| circle_of(file)).filter(|circle| !circle.is_empty()).collect()
}

fn roots() -> Vec<PathBuf> {
    let crates = fs::read_dir("crates").unwrap().map(|entry| entry.unwrap().path());
    let libraries = crates.map(|dir| dir.join("src/lib.rs")).filter(|root| root.exists());
    libraries.chain([PathBuf::from("src/lib.rs")]).collect()
}

#[test]
fn imports_between_files_form_no_other_circles_than_those_of_the_list() {
    let mut found = BTreeSet::new();
    let mut count = 0;
    for root in roots() {
        let imports = Imports::of_crate(root);
        let edges = imports.edges();
        count += edges.values().map(BTreeSet::len).sum::<usize>();
        found.extend(circles(&edges));
    }
    assert!(count > 1000, "only {count} imports were found: the test does not see them");
    let files = |(folder, files): &(&str, &str)| {
        files.split_whitespace().map(|file| format!("{folder}/{file}.rs")).collect::<BTreeSet<_>>()
    };
    let listed: BTreeSet<BTreeSet<String>> = CIRCLES.iter().map(files).collect();
    let new: Vec<_> = found.difference(&listed).collect();
    let gone: Vec<_> = listed.difference(&found).collect();
    assert!(new.is_empty() && gone.is_empty(), "new: {new:#?}\nno longer there, to be taken off the list: {gone:#?}");
}
