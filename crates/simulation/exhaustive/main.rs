//! Exhaustive: searches every history of a small fleet, to a depth, by the product's own steps and scripts.
//!
//! `make prove` searches all scenes as deeply as it takes ten minutes; under `cargo test` they are searched less deeply,
//! and each mutant is found. `docs/development/design/proved.md` has the invariants, the bounds, and what is trusted.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a benchmark prints its figures")]
#![allow(clippy::unwrap_used, missing_docs, reason = "a benchmark fails by panicking, and has no public API")]
#![allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "numbers below 2^53"
)]
#![allow(unreachable_pub, reason = "the modules of a program")]
#![allow(dead_code, reason = "parts of the simulation that are used there alone")]

mod background;
#[path = "../fleet/database.rs"]
mod database;
mod directory;
mod fingerprint;
mod gateway;
mod identity;
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

use model::Search;
use mutants::{Fault, MUTANTS, Mutant};
use scenes::SCENES;
use stateright::{Checker as _, Model as _};
use world::Action;

/// Result of a search.
struct Found {
    states: usize,
    depth: usize,
    seconds: f64,
    history: Option<Vec<Action>>,
}

fn search(search: &Search) -> Found {
    let begun = Instant::now();
    let checker = search.clone().checker().threads(2).spawn_bfs().join();
    let history = checker.discovery("the contract holds").map(|path| path.last_state().history.clone());
    Found {
        states: checker.unique_state_count(),
        depth: checker.max_depth() - 1,
        seconds: begun.elapsed().as_secs_f64(),
        history,
    }
}

/// Prints a history, a step a line, with what is told of it.
fn print_history(search: &Search, history: &[Action]) {
    let mut world = search.world();
    for action in history {
        world.told = Some(Vec::new());
        let text = world.describe(*action);
        world.apply(*action);
        let told = world.told.take().unwrap_or_default().join("; ");
        println!("{:>3}  {text:<44} {told}", world.now / 1_000_000);
    }
    if world.oracle.violation.is_none() {
        world.come_to_rest();
    }
    println!("     {:?}", world.oracle.violation);
}

fn debug() {
    use directory::*;
    use Action::*;
    for (name, fault, history) in [
        ("shares", Fault::None, vec![Request(0, Credential::Key), GiveUp(0), Hang, Request(0, Credential::Key), GiveUp(0), Report(0), Arrive(0), GiveUp(0), Report(0)]),
        ("credentials", Fault::NoKeeping, vec![Withdraw(0, Withdrawal::Session), Deliver(0), Deliver(0), FailOver(2), Notice(0), Request(0, Credential::Session), Deliver(0)]),
    ] {
        let scene = SCENES.iter().find(|scene| scene.name == name).unwrap();
        let one = Search { scene, depth: 20, most: scene.most, patches: &[], fault, rests: 16 };
        println!("{name}");
        print_history(&one, &history);
    }
}

fn main() -> ExitCode {
    if std::env::args().any(|a| a == "--debug") { debug(); return ExitCode::SUCCESS; }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let value = |name: &str| arguments.iter().skip_while(|one| *one != name).nth(1).cloned();
    let level = usize::from(arguments.iter().any(|argument| argument == "--whole"));
    let (only, depth) = (value("--scene"), value("--depth").map(|depth| depth.parse::<usize>().unwrap()));
    let mut is_broken = false;
    if !arguments.iter().any(|argument| argument == "--mutants") {
        println!("{:<14} {:>10} {:>6} {:>8}", "scene", "states", "depth", "seconds");
        for scene in SCENES.iter().filter(|scene| only.as_ref().is_none_or(|only| *only == scene.name)) {
            let depth = depth.unwrap_or(scene.depths[level]);
            let one = Search { scene, depth, most: scene.most, patches: &[], fault: Fault::None, rests: 16 };
            let found = search(&one);
            println!("{:<14} {:>10} {:>6} {:>8.1}", scene.name, found.states, found.depth, found.seconds);
            if let Some(history) = found.history {
                is_broken = true;
                print_history(&one, &history);
            }
        }
    }
    if arguments.iter().any(|argument| argument == "--scenes") {
        return if is_broken { ExitCode::FAILURE } else { ExitCode::SUCCESS };
    }
    for mutant in MUTANTS.iter().filter(|mutant| only.as_ref().is_none_or(|only| *only == mutant.scene)) {
        let scene = SCENES.iter().find(|scene| scene.name == mutant.scene).unwrap();
        let Mutant { depth, most, patches, fault, .. } = *mutant;
        let mut one = Search { scene, depth, most, patches, fault, rests: u64::MAX };
        let mut found = search(&one);
        if found.history.is_none() {
            // What a step does not show may be seen at rest.
            one.rests = 1;
            found = search(&one);
        }
        println!("\nmutant: {} ({:?}, {} states, {:.1} s)", mutant.name, mutant.breaks, found.states, found.seconds);
        match found.history {
            Some(history) => print_history(&one, &history),
            None => {
                is_broken = true;
                println!("     NOT FOUND");
            }
        }
    }
    if is_broken { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
