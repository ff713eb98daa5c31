//! `docs/monitoring.md` has exactly the metrics that the gateway has, with their types and labels.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use crate::support::{Client, Gateway};

/// A metric: its type and the names of its labels.
type Metric = (String, BTreeSet<String>);

fn documented() -> BTreeMap<String, Metric> {
    let page = fs::read_to_string("docs/monitoring.md").unwrap();
    let rows = page.lines().filter(|line| line.starts_with("| `"));
    let metric = |row: &str| {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let labels = cells[3].split(',').map(|label| label.trim().trim_matches('`').to_owned());
        (
            cells[1].trim_matches('`').to_owned(),
            (cells[2].to_owned(), labels.filter(|label| !label.is_empty()).collect()),
        )
    };
    rows.map(metric).collect()
}

/// Names that the source declares, but for those of the semantic conventions, which have no prefix.
fn registered() -> BTreeSet<String> {
    let mut files: Vec<PathBuf> =
        fs::read_dir("crates/platform/src/metrics").unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| !file.ends_with("conventions.rs"));
    files.push("crates/platform/src/metrics.rs".into());
    let mut names = BTreeSet::new();
    for file in files {
        // Calls on several lines look like those on one.
        let words: Vec<String> = fs::read_to_string(file).unwrap().split_whitespace().map(str::to_owned).collect();
        let text = words.join(" ").replace("( ", "(");
        let literals = text.split('"').skip(1).step_by(2).filter(|literal| is_name(literal));
        // Names stand behind their kind in declarations, behind the registry in calls that register,
        // and first in others.
        let is_registered = |name: &str| {
            let kinds = ["counter ", "counters ", "gauge ", "gauges ", "time_gauge ", "histogram ", "histograms "];
            let calls = [
                "(r, ",
                "self.show(",
                "self.show_number(",
                "self.show_sinks(",
                "ComputedFamily::counter(",
                "labelled(MetricType::COUNTER, ",
                "labelled(MetricType::GAUGE, ",
                "describe(",
                "Opts::new(",
            ];
            kinds.iter().chain(&calls).any(|before| text.contains(&format!("{before}\"{name}\"")))
        };
        names.extend(literals.filter(|name| is_registered(name)).map(|name| format!("keygate_{name}")));
    }
    names
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'_')
}

#[test]
fn page_has_every_metric_that_is_registered() {
    let (documented, registered) = (documented(), registered());
    let ours: BTreeSet<String> = documented.into_keys().filter(|name| name.starts_with("keygate_")).collect();
    assert!(registered.len() > 35, "{registered:?}");
    assert_eq!(ours, registered);
}

#[test]
fn scrape_has_the_types_and_labels_of_the_page() {
    let (_upstream, gateway, key) = Gateway::with_key("");
    assert_eq!(Client::connect(gateway.address).get("/", &key.text).status, 200);
    let text = String::from_utf8(Client::connect(gateway.admin).get("/metrics", "").body).unwrap();
    let documented = documented();
    let mut seen = 0;
    for line in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let (name, kind) = line.split_once(' ').unwrap();
        let (page_kind, labels) = documented.get(name).unwrap_or_else(|| panic!("{name} is not documented"));
        assert_eq!(kind, page_kind, "{name}");
        assert_eq!(&labels_of(&text, name), labels, "{name}");
        seen += 1;
    }
    assert!(seen > 40, "only {seen} metrics were scraped");
}

/// Names of the labels that the series of a metric have, but for the one of buckets.
fn labels_of(text: &str, name: &str) -> BTreeSet<String> {
    let mut labels = BTreeSet::new();
    for suffix in ["", "_bucket"] {
        let series = text.lines().filter_map(|line| line.strip_prefix(&format!("{name}{suffix}{{")));
        for pairs in series.map(|rest| rest.split('}').next().unwrap()) {
            labels.extend(pairs.split("\",").map(|pair| pair.split('=').next().unwrap().to_owned()));
        }
    }
    labels.remove("le");
    labels
}
