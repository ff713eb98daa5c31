//! The figures as text for people and as JSON for programs.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::Size;
use crate::figures::{Figures, PeerFigures};

pub(crate) fn text(all: &[Figures]) -> String {
    let mut out = String::new();
    for figures in all {
        let reference = figures.scenario.reference.name();
        let columns = ["CPU s per 100k requests", &format!("to {reference}"), "p99, ms"];
        writeln!(out, "{:46}{:>26}{:>26}{:>26}", figures.scenario.name, columns[0], columns[1], columns[2]).unwrap();
        for peer in &figures.peers {
            let [cpu, ratio, p99] = [&peer.cpu, &peer.ratio, &peer.p99].map(|values| spread(values));
            writeln!(out, "  {:44}{cpu:>26}{ratio:>26}{p99:>26}", peer.peer.name()).unwrap();
        }
        writeln!(out).unwrap();
    }
    out
}

pub(crate) fn json(all: &[Figures], size: &Size) -> Value {
    let scenarios: Vec<Value> = all
        .iter()
        .map(|figures| {
            json!({
                "name": figures.scenario.name,
                "reference": figures.scenario.reference.name(),
                "connections": figures.scenario.connections,
                "workers": figures.scenario.workers,
                "requests": figures.scenario.requests / size.share,
                "peers": figures.peers.iter().map(peer).collect::<Vec<_>>(),
            })
        })
        .collect();
    json!({ "keys": size.keys, "rounds": size.rounds, "scenarios": scenarios })
}

fn peer(figures: &PeerFigures) -> Value {
    let summary = |values: &[f64]| {
        let [median, least, most] = median_and_range(values)?;
        Some(json!({ "median": median, "min": least, "max": most, "rounds": values }))
    };
    json!({
        "name": figures.peer.name(),
        "cpu_seconds_per_100k": summary(&figures.cpu),
        "cpu_to_reference": summary(&figures.ratio),
        "p99_ms": summary(&figures.p99),
    })
}

fn spread(values: &[f64]) -> String {
    let figures = median_and_range(values);
    figures.map_or_else(String::new, |[median, least, most]| format!("{median:.2} ({least:.2} to {most:.2})"))
}

/// Median, smallest and largest; none of no values.
pub(crate) fn median_and_range(values: &[f64]) -> Option<[f64; 3]> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    Some([*sorted.get(sorted.len() / 2)?, *sorted.first()?, *sorted.last()?])
}
