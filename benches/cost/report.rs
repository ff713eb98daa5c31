//! The figures as a table for people and as JSON for programs.

use serde_json::{Value, json};

use crate::callgrind::Instructions;
use crate::strace::SystemCalls;
use crate::{CONNECTIONS, Cost};

/// Modules of the table; the others are small.
const MODULES: usize = 16;

pub(crate) fn table(costs: &[Cost]) {
    for cost in costs {
        println!("{}, for each request", cost.name);
        if let Some(instructions) = &cost.instructions {
            println!("  {:44}{:>10.0}", "instructions in user space", instructions.total());
            rows(&instructions.threads, usize::MAX, "thread");
            rows(&instructions.modules, MODULES, "module");
        }
        for (calls, connections) in cost.system_calls.iter().flatten().zip([1, CONNECTIONS]) {
            println!("  {:44}{:>10.2}", format!("system calls, {connections} connections"), calls.total());
            for (kind, count) in calls.kinds.iter().filter(|(_, count)| **count >= 0.005) {
                println!("    {kind:42}{count:>10.2}");
            }
        }
        println!("  {:44}{:>10.0}", "bytes of journal or log", cost.space.journal);
        println!("  {:44}{:>10.1}", "KiB of an idle connection", cost.space.idle_connection / 1024.0);
    }
}

fn rows(rows: &[(String, f64)], most: usize, kind: &str) {
    for (name, count) in rows.iter().filter(|(_, count)| *count >= 0.5).take(most) {
        println!("    {:42}{count:>10.0}", format!("{kind} {name}"));
    }
}

pub(crate) fn json(costs: &[Cost]) -> Value {
    costs
        .iter()
        .map(|cost| {
            json!({
                "name": cost.name,
                "instructions": cost.instructions.as_ref().map(instructions),
                "system_calls": cost.system_calls.as_ref().map(|calls| calls.iter().map(system_calls).collect::<Vec<_>>()),
                "journal_bytes": cost.space.journal,
                "idle_connection_bytes": cost.space.idle_connection,
            })
        })
        .collect()
}

fn instructions(instructions: &Instructions) -> Value {
    json!({ "total": instructions.total(), "threads": instructions.threads, "modules": instructions.modules })
}

fn system_calls(calls: &SystemCalls) -> Value {
    json!({ "total": calls.total(), "kinds": calls.kinds })
}
