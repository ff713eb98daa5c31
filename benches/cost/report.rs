//! The figures as a table for people and as JSON for programs.

use serde_json::{Value, json};

use crate::callgrind::Instructions;
use crate::space::IDLE_KINDS;
use crate::strace::SystemCalls;
use crate::{CONNECTIONS, Cost};

/// Modules of the table; the others are small.
const MODULES: usize = 16;
/// Functions of the table, where they are asked for.
const FUNCTIONS: usize = 60;

pub(crate) fn table(costs: &[Cost], with_functions: bool) {
    for cost in costs {
        println!("{}, for each request", cost.peer.name());
        if let Some(instructions) = &cost.instructions {
            row("instructions in user space", instructions.total(), 0);
            parts(&instructions.threads, usize::MAX, "thread");
            parts(&instructions.modules, MODULES, "module");
            parts(&instructions.functions, if with_functions { FUNCTIONS } else { 0 }, "function");
            row("allocations", instructions.allocations, 2);
        }
        cost.bytes_copied.into_iter().for_each(|bytes| row("bytes copied by the C library", bytes, 0));
        for (calls, connections) in cost.system_calls.iter().flatten().zip([1, CONNECTIONS]) {
            row(&format!("system calls, {connections} connections"), calls.total(), 2);
            for (kind, count) in calls.kinds.iter().filter(|(_, count)| **count >= 0.005) {
                println!("    {kind:42}{count:>10.2}");
            }
            println!("    {:42}{:>10.0}", "of other threads, each second", calls.background_per_second);
        }
        cost.space.journal.into_iter().for_each(|bytes| row("bytes of journal or log", bytes, 0));
        cost.space.closed_segment.into_iter().for_each(|bytes| row("bytes of a closed segment", bytes, 0));
        for (kind, bytes) in IDLE_KINDS.iter().zip(cost.space.idle) {
            bytes.into_iter().for_each(|bytes| row(&format!("KiB of an idle connection, {kind}"), bytes / 1024.0, 1));
        }
    }
}

fn row(name: &str, figure: f64, digits: usize) {
    println!("  {name:44}{figure:>10.digits$}");
}

fn parts(parts: &[(String, f64)], most: usize, kind: &str) {
    for (name, count) in parts.iter().filter(|(_, count)| *count >= 0.5).take(most) {
        println!("    {:42}{count:>10.0}", format!("{kind} {name}"));
    }
}

pub(crate) fn json(costs: &[Cost]) -> Value {
    costs
        .iter()
        .map(|cost| {
            let system_calls: Option<Vec<_>> =
                cost.system_calls.as_ref().map(|calls| calls.iter().map(system_calls).collect());
            let idle = IDLE_KINDS.iter().zip(cost.space.idle);
            let idle: Vec<_> = idle.map(|(kind, bytes)| json!([kind, bytes])).collect();
            json!({
                "name": cost.peer.name(),
                "instructions": cost.instructions.as_ref().map(instructions),
                "bytes_copied": cost.bytes_copied,
                "system_calls": system_calls,
                "journal_bytes": cost.space.journal,
                "closed_segment_bytes": cost.space.closed_segment,
                "idle_connection_bytes": idle,
            })
        })
        .collect()
}

fn instructions(instructions: &Instructions) -> Value {
    json!({
        "total": instructions.total(),
        "threads": instructions.threads,
        "modules": instructions.modules,
        "allocations": instructions.allocations,
    })
}

fn system_calls(calls: &SystemCalls) -> Value {
    json!({ "total": calls.total(), "kinds": calls.kinds, "background_per_second": calls.background_per_second })
}
