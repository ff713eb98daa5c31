//! The short run of the fuzz targets: every seed of the corpora, and variations of each, from the same start every
//! time. `make fuzz` is the long one, which is guided by coverage.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[allow(unreachable_pub, reason = "a crate of its own for the long run")]
#[path = "../fuzz/src/lib.rs"]
mod targets;
#[allow(dead_code, unreachable_pub, missing_docs, reason = "shared by all test binaries")]
#[path = "support/random.rs"]
mod random;

use std::fs;
use std::panic::catch_unwind;
use std::path::Path;

use random::Random;

/// Runs a target over its corpus, and `variations` of each seed.
fn replay(name: &str, target: fn(&[u8]), variations: usize) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(name);
    let mut seeds: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    seeds.sort();
    assert!(seeds.len() >= 3, "{}: there are only {} seeds", folder.display(), seeds.len());
    let seeds: Vec<Vec<u8>> = seeds.iter().map(|seed| fs::read(seed).unwrap()).collect();
    let mut random = Random::new(1);
    for seed in &seeds {
        attempt(target, seed);
        for _ in 0..variations {
            let other = &seeds[random.index(seeds.len())];
            attempt(target, &varied(seed, other, &mut random));
        }
    }
}

fn attempt(target: fn(&[u8]), bytes: &[u8]) {
    let outcome = catch_unwind(|| target(bytes));
    assert!(outcome.is_ok(), "it fails on: b\"{}\"", bytes.escape_ascii());
}

/// A seed with a few changes: bytes changed, removed, doubled, or taken from another seed.
fn varied(seed: &[u8], other: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..=random.index(4) {
        let at = random.index(bytes.len() + 1);
        let end = (at + 1 + random.index(8)).min(bytes.len());
        match random.index(5) {
            0 if at < bytes.len() => bytes[at] = u8::try_from(random.index(256)).unwrap(),
            1 if at < bytes.len() => drop(bytes.drain(at..end)),
            2 => bytes.insert(at, b"\r\n\t ,:;\0%_-0Zz\x80"[random.index(15)]),
            3 if at < bytes.len() => {
                let piece = bytes[at..end].to_vec();
                bytes.splice(at..at, piece);
            }
            _ => {
                let from = random.index(other.len() + 1);
                let to = (from + random.index(32)).min(other.len());
                bytes.splice(at..at, other[from..to].iter().copied());
            }
        }
    }
    bytes
}

#[test]
fn sanitizer() {
    replay("sanitizer", targets::sanitizer, 3000);
}

#[test]
fn head() {
    replay("head", targets::head, 3000);
}

#[test]
fn bearer() {
    replay("bearer", targets::bearer, 3000);
}

#[test]
fn credential() {
    replay("credential", targets::credential, 3000);
}

#[test]
fn proxy_header() {
    replay("proxy_header", targets::proxy_header, 3000);
}

#[test]
fn cookie() {
    replay("cookie", targets::cookie, 3000);
}

#[test]
fn return_path() {
    replay("return_path", targets::return_path, 3000);
}

#[test]
fn cursor() {
    replay("cursor", targets::cursor, 1000);
}

#[test]
fn config() {
    replay("config", targets::config, 300);
}

#[test]
fn journal() {
    replay("journal", targets::journal, 40);
}
