//! Circles that wires make.

use std::collections::{BTreeMap, BTreeSet};

use crate::Token;

/// For each set of gears that reach each other, at least one circle: the wire that closes it, and its gears from the one that
/// this wire leads back to. No gear is in two of them. Takes time in proportion to the wires.
pub(super) fn circles<'t>(wires: &[(&'t Token, &'t Token)]) -> Vec<(usize, Vec<&'t Token>)> {
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
