//! The ratios as bars, in SVG.

use std::fmt::Write as _;

use crate::figures::Figures;
use crate::peers::Peer;
use crate::report::median_and_range;

const WIDTH: f64 = 760.0;
/// Left of the bars, for the names of the peers.
const NAMES: f64 = 190.0;
/// Right of the bars, for the figures.
const VALUES: f64 = 150.0;
const BAR: f64 = 16.0;
const TITLE: f64 = 30.0;
const GAP: f64 = 14.0;

/// Bars of the medians, with lines from the smallest to the largest value; the reference of each scenario is 1.
pub(crate) fn svg(all: &[Figures]) -> String {
    let measured: Vec<&Figures> =
        all.iter().filter(|figures| figures.peers.iter().any(|peer| !peer.ratio.is_empty())).collect();
    let mut body = String::new();
    let mut top = GAP;
    for figures in measured {
        top = group(&mut body, figures, top) + GAP;
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{top}\" viewBox=\"0 0 {WIDTH} {top}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <title>CPU time of a request, to the reference of each scenario; less is better</title>\n\
         <rect width=\"{WIDTH}\" height=\"{top}\" fill=\"#ffffff\"/>\n{body}</svg>\n"
    )
}

/// Draws one scenario, and returns where it ends.
fn group(out: &mut String, figures: &Figures, top: f64) -> f64 {
    let most = figures.peers.iter().filter_map(|peer| Some(median_and_range(&peer.ratio)?[2])).fold(1.0, f64::max);
    let scale = (WIDTH - NAMES - VALUES) / most;
    let mut y = top + TITLE;
    let (title, reference) = (figures.scenario.name, figures.scenario.reference().name());
    let _ = writeln!(
        out,
        "<text x=\"10\" y=\"{}\" font-weight=\"bold\" fill=\"#1f2328\">{title}</text>\
         <text x=\"{}\" y=\"{}\" text-anchor=\"end\" fill=\"#59636e\">CPU time, {reference} = 1</text>",
        top + 18.0,
        WIDTH - 10.0,
        top + 18.0,
    );
    for peer in &figures.peers {
        let Some([median, least, most]) = median_and_range(&peer.ratio) else { continue };
        let (middle, color) = (y + BAR / 2.0, if is_keygate(peer.peer) { "#0969da" } else { "#afb8c1" });
        let [end, from, to] = [median, least, most].map(|value| value.mul_add(scale, NAMES));
        let _ = writeln!(
            out,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\" fill=\"#1f2328\">{}</text>\
             <rect x=\"{NAMES}\" y=\"{y}\" width=\"{:.1}\" height=\"{}\" fill=\"{color}\"/>\
             <line x1=\"{from:.1}\" y1=\"{middle}\" x2=\"{to:.1}\" y2=\"{middle}\" stroke=\"#1f2328\"/>\
             <text x=\"{}\" y=\"{}\" text-anchor=\"end\" fill=\"#1f2328\">{median:.2} ({least:.2} to {most:.2})</text>",
            NAMES - 8.0,
            middle + 4.0,
            peer.peer.name(),
            end - NAMES,
            BAR - 3.0,
            WIDTH - 10.0,
            middle + 4.0,
        );
        y += BAR + 2.0;
    }
    let one = NAMES + scale;
    let _ = writeln!(
        out,
        "<line x1=\"{one:.1}\" y1=\"{}\" x2=\"{one:.1}\" y2=\"{y}\" stroke=\"#59636e\" stroke-dasharray=\"3 3\"/>",
        top + TITLE - 4.0
    );
    y
}

fn is_keygate(peer: Peer) -> bool {
    matches!(peer, Peer::Keygate | Peer::KeygateSynced)
}
