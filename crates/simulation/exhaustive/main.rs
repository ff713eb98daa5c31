//! Exhaustive: searches every history of a small fleet, to a depth, by the product's own steps and scripts.
//!
//! `make prove` searches all scenes as deeply as ten minutes allow; `cargo test` searches less deeply. Each mutant is
//! found. `docs/development/design/proved.md` has the invariants, the bounds, and what is trusted.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a benchmark prints its figures")]
#![allow(clippy::unwrap_used, missing_docs, reason = "a benchmark fails by panicking, and has no public API")]
#![allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "numbers below 2^53"
)]
#![allow(clippy::result_large_err, reason = "what could not be sent comes back as it is")]
#![allow(unreachable_pub, reason = "the modules of a program")]
#![allow(dead_code, reason = "parts of the simulation that are used there alone")]

mod background;
#[path = "../fleet/database.rs"]
mod database;
mod directory;
mod fingerprint;
mod fleet;
mod gateway;
mod identity;
mod journal;
#[path = "../fleet/lua.rs"]
mod lua;
mod messages;
mod model;
mod mutants;
mod oracle;
mod requests;
mod rest;
mod scenes;
mod server;
mod withdrawals;
mod world;

use std::process::ExitCode;
use std::time::Instant;

use ::journal::audit::Durability;
use fleet::Fleet;
use journal::Audit;
use model::{CONTRACT, Explored, Search};
use mutants::{Fault, MUTANTS, Mutant};
use scenes::{Invariant, SCENES};
use stateright::{Checker as _, Model as _};

/// Of so many states one is brought to rest.
const RESTS: u64 = 16;
/// The scenes of the journal: durability, and the depths of a history.
const AUDITS: [(&str, Durability, [usize; 2]); 2] =
    [("audit, written", Durability::Written, [8, 12]), ("audit, synced", Durability::Synced, [8, 12])];

/// Searches, and prints a line of the table and the history that breaks the contract. Returns the invariant that it
/// breaks; `tries_again` prints nothing where there is none.
fn breaks<E: Explored>(name: &str, search: &Search<E>, tries_again: bool) -> Option<Invariant> {
    let begun = Instant::now();
    let checker = search.clone().checker().threads(2).spawn_bfs().join();
    let found = checker.discovery(CONTRACT);
    if found.is_none() && tries_again {
        return None;
    }
    let (states, steps, depth) = (checker.unique_state_count(), checker.state_count(), checker.max_depth() - 1);
    println!("{name:<54} {states:>9} {steps:>10} {depth:>6} {:>8.1}", begun.elapsed().as_secs_f64());
    found.and_then(|path| search.print(&path.last_state().history))
}

/// Returns whether a scene breaks the contract.
fn is_broken(name: &str, level: usize, depth: Option<usize>) -> bool {
    if let Some((_, durability, depths)) = AUDITS.iter().find(|(audit, ..)| *audit == name) {
        let explored = Audit { durability: *durability, fault: Fault::None };
        return breaks(name, &Search { explored, depth: depth.unwrap_or(depths[level]), rests: 1 }, false).is_some();
    }
    let scene = SCENES.iter().find(|scene| scene.name == name).unwrap();
    let explored = Fleet { scene, most: scene.most, patches: &[], fault: Fault::None };
    breaks(name, &Search { explored, depth: depth.unwrap_or(scene.depths[level]), rests: RESTS }, false).is_some()
}

/// Returns whether a mutant is found by what it is to break: by a step, or by what a step leaves at rest.
fn is_found(mutant: &Mutant) -> bool {
    let Mutant { name, scene, breaks: expected, depth, most, patches, fault } = *mutant;
    let found = [u64::MAX, 1].into_iter().find_map(|rests| {
        let tries_again = rests > 1;
        if let Some((_, durability, _)) = AUDITS.iter().find(|(audit, ..)| *audit == scene) {
            let explored = Audit { durability: *durability, fault };
            return breaks(name, &Search { explored, depth, rests }, tries_again);
        }
        let scene = SCENES.iter().find(|one| one.name == scene).unwrap();
        breaks(name, &Search { explored: Fleet { scene, most, patches, fault }, depth, rests }, tries_again)
    });
    found == Some(expected)
}

/// `--whole` searches as deeply as `make prove`; `--scene NAME`, `--depth STEPS` and `--no-mutants` search a part.
fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let has = |name: &str| arguments.iter().any(|argument| argument == name);
    let value = |name: &str| arguments.iter().skip_while(|one| *one != name).nth(1).cloned();
    let (only, depth) = (value("--scene"), value("--depth").map(|depth| depth.parse::<usize>().unwrap()));
    let is_chosen = |scene: &str| only.as_ref().is_none_or(|only| only == scene);
    println!("{:<54} {:>9} {:>10} {:>6} {:>8}", "scene or mutant", "states", "steps", "depth", "seconds");
    let audits = AUDITS.iter().map(|(name, ..)| *name);
    let scenes = SCENES.iter().map(|scene| scene.name).chain(audits).filter(|name| is_chosen(name));
    let broken: Vec<_> = scenes.filter(|name| is_broken(name, usize::from(has("--whole")), depth)).collect();
    let mutants = MUTANTS.iter().filter(|mutant| is_chosen(mutant.scene) && !has("--no-mutants"));
    let missed: Vec<_> = mutants.filter(|mutant| !is_found(mutant)).map(|mutant| mutant.name).collect();
    println!("broken: {broken:?}; mutants that were not found: {missed:?}");
    if broken.is_empty() && missed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
