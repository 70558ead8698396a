//! Cycles of wires, and which of them are certain to be wrong.
//!
//! | circle | what it is |
//! |---|---|
//! | every gear of it passes on every message | a fault: each message that comes into it goes round to its end, or is refused |
//! | the way round is longer than `max_hops` | a fault: no message comes round |
//! | any other | a warning: hops end what goes round |
//!
//! # Invariants
//!
//! - A wire to an input of answers closes no circle.
//! - Of each set of gears that reach each other at least one circle is told, of two circles with a gear in common only one may be.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::parse::ScenarioDraft;
use super::{SourceDiagnostic, Wire};
use crate::Token;
use crate::yaml::YamlEntry;

/// The input of answers: they leave by a socket, or find the request that waits for them. No message goes round by it.
const REPLY: &str = "reply";
/// How many gears of a circle are named.
const NAMED: usize = 12;

/// Warnings of circles.
pub(super) fn cycle_warnings<'d>(draft: &'d ScenarioDraft<'_>) -> impl Iterator<Item = SourceDiagnostic> + 'd {
    cycles_with_wires(&forward_wires(draft))
        .into_iter()
        .map(|(wire, gears)| {
            let round = cycle_text(&gears);
            let text = format!("the wires form a cycle: {round}; a message loops until it has left max_hops gears");
            wire.at("to", text)
        })
}

/// Faults: circles of gears that pass on every message.
pub(super) fn inescapable_cycles(
    draft: &ScenarioDraft<'_>,
    passes_on: impl Fn(&Token) -> bool,
) -> Vec<SourceDiagnostic> {
    let mut wires = forward_wires(draft);
    wires.retain(|wire| passes_on(&wire.value.from.gear) && passes_on(&wire.value.to.gear));
    let faults = cycles_with_wires(&wires).into_iter().map(|(wire, gears)| {
        let text = format!(
            "no message leaves the cycle of wires {}: each of its gears passes on every message, so each loops until \
             max_hops ends it; add a gear that selects, such as filter or route, or remove this wire",
            cycle_text(&gears)
        );
        wire.at("to", text)
    });
    faults.collect()
}

/// Faults: circles that no message comes round.
pub(super) fn overlong_cycles(draft: &ScenarioDraft<'_>, max_hops: u32) -> Vec<SourceDiagnostic> {
    let wires = forward_wires(draft);
    let most = usize::try_from(max_hops).unwrap_or(usize::MAX);
    let mut faults = Vec::new();
    for (wire, gears) in cycles_with_wires(&wires) {
        // There may be a shorter way round than the one that was found.
        if gears.len() <= most || shortest_cycle(&wires, &wire.value).is_none_or(|length| length <= most) {
            continue;
        }
        let text = format!(
            "no message completes the cycle of wires {}: it ends when it has left max_hops gears, which are \
             {max_hops}; shorten the cycle, or raise mixer.max_hops and rack.max_hops",
            cycle_text(&gears)
        );
        faults.push(wire.at("to", text));
    }
    faults
}

/// The wires by which messages go on.
fn forward_wires<'d, 'n>(draft: &'d ScenarioDraft<'n>) -> Vec<&'d YamlEntry<'n, Wire>> {
    let wires = draft.wires.iter();
    wires.filter(|wire| wire.value.to.port.as_str() != REPLY).collect()
}

/// The circles with the wire that closes each.
fn cycles_with_wires<'d, 'n>(wires: &[&'d YamlEntry<'n, Wire>]) -> Vec<(&'d YamlEntry<'n, Wire>, Vec<&'d Token>)> {
    let ends = wires.iter().map(|wire| (&wire.value.from.gear, &wire.value.to.gear));
    let circles = find_cycles(&ends.collect::<Vec<_>>()).into_iter();
    circles
        .filter_map(|(closing, gears)| wires.get(closing).map(|wire| (*wire, gears)))
        .collect()
}

/// A circle for people.
fn cycle_text(gears: &[&Token]) -> String {
    let mut names: Vec<_> = gears.iter().take(NAMED).map(|gear| gear.to_string()).collect();
    if gears.len() > NAMED {
        names.push(format!("({} more)", gears.len() - NAMED));
    }
    names.extend(gears.first().map(|gear| gear.to_string()));
    names.join(" -> ")
}

/// How many gears are on the shortest way round by a wire.
fn shortest_cycle(wires: &[&YamlEntry<'_, Wire>], by: &Wire) -> Option<usize> {
    let mut out: BTreeMap<&Token, Vec<&Token>> = BTreeMap::new();
    for wire in wires {
        out.entry(&wire.value.from.gear).or_default().push(&wire.value.to.gear);
    }
    let (mut seen, mut next) = (BTreeSet::from([&by.to.gear]), VecDeque::from([(&by.to.gear, 1)]));
    while let Some((gear, length)) = next.pop_front() {
        if *gear == by.from.gear {
            return Some(length);
        }
        for to in out.get(gear).into_iter().flatten() {
            if seen.insert(to) {
                next.push_back((to, length + 1));
            }
        }
    }
    None
}

/// For each set of gears that reach each other, at least one circle: the wire that closes it, and its gears from the one that
/// this wire leads back to. No gear is in two of them. Takes time in proportion to the wires.
fn find_cycles<'t>(wires: &[(&'t Token, &'t Token)]) -> Vec<(usize, Vec<&'t Token>)> {
    let mut out: BTreeMap<&Token, Vec<(usize, &'t Token)>> = BTreeMap::new();
    for (number, (from, to)) in wires.iter().enumerate() {
        out.entry(from).or_default().push((number, to));
    }
    let (mut found, mut told) = (Vec::new(), BTreeSet::new());
    let mut left: BTreeSet<&Token> = BTreeSet::new();
    let mut entered: BTreeSet<&Token> = BTreeSet::new();
    for start in out.keys().copied() {
        if !entered.insert(start) {
            continue;
        }
        // The way from `start`, each gear with how many of its wires were followed.
        let mut way: Vec<(&'t Token, usize)> = vec![(start, 0)];
        while let Some((gear, followed)) = way.last_mut() {
            let next = out.get(*gear).and_then(|wires| wires.get(*followed)).copied();
            *followed += 1;
            let Some((number, to)) = next else {
                left.insert(*gear);
                way.pop();
                continue;
            };
            if entered.insert(to) {
                way.push((to, 0));
            } else if !left.contains(to) && !told.contains(to) && !told.contains(*gear) {
                let mut round: Vec<&Token> = way
                    .iter()
                    .rev()
                    .map(|(gear, _)| *gear)
                    .take_while(|gear| *gear != to)
                    .collect();
                round.push(to);
                round.reverse();
                if round.iter().all(|gear| !told.contains(gear)) {
                    told.extend(round.iter().copied());
                    found.push((number, round));
                }
            }
        }
    }
    found
}
