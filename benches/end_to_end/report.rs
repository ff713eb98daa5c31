//! The figures as text for people and as JSON for programs.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::Size;
use crate::figures::{Figures, PeerFigures};

pub(crate) fn text(all: &[Figures]) -> String {
    let mut out = String::new();
    for figures in all {
        let reference = format!("to {}", figures.scenario.reference().name());
        let columns =
            ["CPU s per 100k requests", &reference, "p99, ms", &reference, "p99.9, ms", &reference, "slowest, ms"];
        row(&mut out, figures.scenario.name, columns.map(str::to_owned));
        for peer in &figures.peers {
            let values =
                [&peer.cpu, &peer.ratio, &peer.p99, &peer.p99_ratio, &peer.p999, &peer.p999_ratio, &peer.slowest];
            row(&mut out, &format!("  {}", peer.peer.name()), values.map(|values| spread(values)));
        }
        writeln!(out).unwrap();
    }
    out
}

fn row(out: &mut String, name: &str, columns: [String; 7]) {
    let columns: String = columns.iter().map(|column| format!("{column:>26}")).collect();
    writeln!(out, "{name:44}{columns}").unwrap();
}

pub(crate) fn json(all: &[Figures], size: &Size) -> Value {
    let scenarios: Vec<Value> = all
        .iter()
        .map(|figures| {
            json!({
                "name": figures.scenario.name,
                "reference": figures.scenario.reference().name(),
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
        let rounded = |value: f64| (value * 1000.0).round() / 1000.0;
        let [median, least, most] = median_and_range(values)?.map(rounded);
        let rounds: Vec<f64> = values.iter().copied().map(rounded).collect();
        Some(json!({ "median": median, "min": least, "max": most, "rounds": rounds }))
    };
    json!({
        "name": figures.peer.name(),
        "cpu_seconds_per_100k": summary(&figures.cpu),
        "cpu_to_reference": summary(&figures.ratio),
        "p99_ms": summary(&figures.p99),
        "p99_to_reference": summary(&figures.p99_ratio),
        "p999_ms": summary(&figures.p999),
        "p999_to_reference": summary(&figures.p999_ratio),
        "slowest_ms": summary(&figures.slowest),
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
