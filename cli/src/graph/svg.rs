//! A self-contained SVG picture: no fonts, no scripts, no external style sheets.

use std::collections::BTreeMap;
use std::fmt::Write;

use model::Token;
use model::scenario::Scenario;

use super::is_guaranteed;

const WIDTH: usize = 200;
const HEIGHT: usize = 64;
const GAP_X: usize = 110;
const GAP_Y: usize = 36;
const EDGE: usize = 24;
const TITLE: usize = 32;

const STYLE: &str = "text{font:13px sans-serif;fill:#222}.name{font-weight:bold}.small{font-size:11px;fill:#555}\
                     rect{fill:#f4f6fa;stroke:#5b6b8c}path{fill:none;stroke:#5b6b8c;stroke-width:1.5}\
                     .guaranteed{stroke-dasharray:6 4}.back{stroke:#b3541e}";

/// The scenario as a picture.
pub(crate) fn svg(scenario: &Scenario) -> String {
    let places = places(scenario);
    let corner =
        |(column, row): (usize, usize)| (EDGE + column * (WIDTH + GAP_X), EDGE + TITLE + row * (HEIGHT + GAP_Y));
    let right = places.iter().map(|(column, _)| column + 1).max().unwrap_or(1);
    let bottom = places.iter().map(|(_, row)| row + 1).max().unwrap_or(1);
    let (width, height) = (
        2 * EDGE + right * (WIDTH + GAP_X) - GAP_X,
        2 * EDGE + TITLE + bottom * (HEIGHT + GAP_Y),
    );
    let title = escaped(&format!("{}:{}", scenario.meta.name, scenario.meta.version));
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         role=\"img\">\n<title>{title}</title>\n<style>{STYLE}</style>\n\
         <defs><marker id=\"end\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"8\" markerHeight=\"8\" orient=\"auto\">\
         <path d=\"M0 0 8 4 0 8z\" style=\"fill:#5b6b8c;stroke:none\"/></marker></defs>\n\
         <text class=\"name\" x=\"{EDGE}\" y=\"{EDGE}\">{title}</text>\n"
    );
    let at: BTreeMap<&Token, (usize, usize)> = scenario.gears.iter().map(|gear| &gear.name).zip(places).collect();
    for wire in &scenario.wires {
        let (Some(from), Some(to)) = (at.get(&wire.from.gear), at.get(&wire.to.gear)) else {
            continue;
        };
        let class = match (is_guaranteed(scenario, wire), from.0 >= to.0) {
            (true, true) => "guaranteed back",
            (true, false) => "guaranteed",
            (false, true) => "back",
            (false, false) => "hot",
        };
        let label = escaped(&format!("{} -> {}", wire.from, wire.to));
        let way = way(corner(*from), corner(*to), from.0 < to.0);
        let _ = writeln!(
            svg,
            "<path class=\"{class}\" d=\"{way}\" marker-end=\"url(#end)\"><title>{label}</title></path>"
        );
    }
    for gear in &scenario.gears {
        let (x, y) = at.get(&gear.name).map_or((0, 0), |place| corner(*place));
        let (name, kind) = (escaped(&cut(gear.name.as_str(), 24)), escaped(&cut(&gear.kind, 28)));
        let (target, whole) = (escaped(&cut(gear.deploy.as_str(), 28)), escaped(gear.name.as_str()));
        let text = x + 10;
        let _ = writeln!(
            svg,
            "<g><title>{whole}</title><rect x=\"{x}\" y=\"{y}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" rx=\"6\"/>\
             <text class=\"name\" x=\"{text}\" y=\"{}\">{name}</text><text x=\"{text}\" y=\"{}\">{kind}</text>\
             <text class=\"small\" x=\"{text}\" y=\"{}\">on {target}</text></g>",
            y + 20,
            y + 38,
            y + 55
        );
    }
    svg.push_str("</svg>\n");
    svg
}

/// Column and row of each gear, in the order of the file.
pub(super) fn places(scenario: &Scenario) -> Vec<(usize, usize)> {
    let mut rows: BTreeMap<usize, usize> = BTreeMap::new();
    let place = |column| {
        let row = rows.entry(column).or_default();
        *row += 1;
        (column, *row - 1)
    };
    scenario.layers().into_iter().map(place).collect()
}

/// From the right side of one box to the left side of another; where that is not to the right, below both.
fn way(from: (usize, usize), to: (usize, usize), forward: bool) -> String {
    let (x1, y1) = (from.0 + WIDTH, from.1 + HEIGHT / 2);
    let (x2, y2) = (to.0, to.1 + HEIGHT / 2);
    let bend = GAP_X / 2;
    if forward {
        return format!(
            "M{x1} {y1} C{} {y1} {} {y2} {x2} {y2}",
            x1 + bend,
            x2.saturating_sub(bend)
        );
    }
    let below = y1.max(y2) + HEIGHT / 2 + GAP_Y / 2;
    let (out, back) = (x1 + EDGE / 2, x2.saturating_sub(EDGE / 2));
    format!("M{x1} {y1} L{out} {y1} L{out} {below} L{back} {below} L{back} {y2} L{x2} {y2}")
}

/// So many characters at most; the box is no wider.
fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most - 1).chain(['…']).collect()
}

/// A text between tags.
fn escaped(text: &str) -> String {
    let one = |c: char| match c {
        '<' => "&lt;".to_owned(),
        '>' => "&gt;".to_owned(),
        '&' => "&amp;".to_owned(),
        '"' => "&quot;".to_owned(),
        '\'' => "&#39;".to_owned(),
        c if c.is_control() => "\u{fffd}".to_owned(),
        c => c.to_string(),
    };
    text.chars().map(one).collect()
}
