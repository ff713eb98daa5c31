//! Which requests reach which upstream, and by which right: hosts of routes, public routes, and pages of other origins.

mod cors;
mod hosts;
mod public;

use crate::config::{MINIMAL, parse};
use crate::support::{Gateway, Upstream};

/// More requests of keys than any test makes.
const PLENTY: &str = "limits: { key: { requests: 1000000, per: 1s } }\n";

fn start(upstream: &Upstream, blocks: &str) -> Gateway {
    Gateway::with(&[upstream.address], blocks)
}

/// Errors of a configuration with these blocks, one a line.
fn problems(blocks: &str) -> String {
    let problems = parse(&format!("{MINIMAL}{blocks}\n")).unwrap_err();
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}
