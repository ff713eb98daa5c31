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
use std::sync::Mutex;
use std::thread;
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

/// Searches that run at a time. Each has one thread: of several, one may reach a state by a longer history than
/// another would, and leave out what follows within the depth.
const AT_A_TIME: usize = 2;

/// Result of a search: what it breaks, and a line of the table with the history that does.
struct Searched {
    breaks: Option<Invariant>,
    text: String,
}

/// Searches every history.
fn search<E: Explored>(name: &str, search: &Search<E>) -> Searched {
    let begun = Instant::now();
    let checker = search.clone().checker().threads(1).spawn_bfs().join();
    let (states, steps, depth) = (checker.unique_state_count(), checker.state_count(), checker.max_depth() - 1);
    let seconds = begun.elapsed().as_secs_f64();
    let mut text = format!("{name:<54} {states:>9} {steps:>10} {depth:>6} {seconds:>8.1}\n");
    let breaks = checker.discovery(CONTRACT).and_then(|path| search.tell(&path.last_state().history, &mut text));
    Searched { breaks, text }
}

/// Searches a scene, or one of the journal.
fn search_scene(name: &str, level: usize, depth: Option<usize>) -> Searched {
    if let Some((_, durability, depths)) = AUDITS.iter().find(|(audit, ..)| *audit == name) {
        let explored = Audit { durability: *durability, fault: Fault::None };
        return search(name, &Search { explored, depth: depth.unwrap_or(depths[level]), rests: 1 });
    }
    let scene = SCENES.iter().find(|scene| scene.name == name).unwrap();
    let explored = Fleet { scene, most: scene.most, patches: &[], fault: Fault::None };
    search(name, &Search { explored, depth: depth.unwrap_or(scene.depths[level]), rests: RESTS })
}

/// Searches for what a mutant is to break: by a step, or by what a step leaves at rest.
fn search_mutant(mutant: &Mutant) -> Searched {
    let Mutant { name, scene, depth, most, patches, fault, .. } = *mutant;
    let with_rests = |rests| {
        if let Some((_, durability, _)) = AUDITS.iter().find(|(audit, ..)| *audit == scene) {
            let explored = Audit { durability: *durability, fault };
            return search(name, &Search { explored, depth, rests });
        }
        let scene = SCENES.iter().find(|one| one.name == scene).unwrap();
        search(name, &Search { explored: Fleet { scene, most, patches, fault }, depth, rests })
    };
    let by_steps = with_rests(u64::MAX);
    if by_steps.breaks.is_some() { by_steps } else { with_rests(1) }
}

/// Searches for each, some at a time, and prints the results as they come. Returns those whose result is not `wanted`.
fn search_all<T: Copy + Send>(
    all: impl Iterator<Item = T> + Send,
    search: impl Fn(T) -> Searched + Sync,
    is_wanted: impl Fn(T, Option<Invariant>) -> bool + Sync,
) -> Vec<T> {
    let (left, others) = (Mutex::new(all), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                loop {
                    let Some(one) = left.lock().unwrap().next() else { break };
                    let Searched { breaks, text } = search(one);
                    print!("{text}");
                    if !is_wanted(one, breaks) {
                        others.lock().unwrap().push(one);
                    }
                }
            });
        }
    });
    others.into_inner().unwrap()
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
    let level = usize::from(has("--whole"));
    let broken = search_all(scenes, |name| search_scene(name, level, depth), |_, breaks| breaks.is_none());
    let mutants = MUTANTS.iter().filter(|mutant| is_chosen(mutant.scene) && !has("--no-mutants"));
    let missed = search_all(mutants, search_mutant, |mutant, breaks| breaks == Some(mutant.breaks));
    let missed: Vec<_> = missed.iter().map(|mutant| mutant.name).collect();
    println!("broken: {broken:?}; mutants that were not found: {missed:?}");
    if broken.is_empty() && missed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
