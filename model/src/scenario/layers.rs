//! Layered graph layout: a gear is right of all whose messages it takes; wires that close a cycle are left out of that.

use std::collections::BTreeMap;

use super::Scenario;
use crate::Token;

impl Scenario {
    /// How many gears a message has passed before each gear, at most, in the order of the file.
    #[must_use]
    pub fn layers(&self) -> Vec<usize> {
        let numbers = self.gears.iter().enumerate();
        let numbers: BTreeMap<&Token, usize> = numbers.map(|(number, gear)| (&gear.name, number)).collect();
        let mut takes: Vec<Vec<usize>> = vec![Vec::new(); self.gears.len()];
        for wire in &self.wires {
            if let (Some(from), Some(to)) = (numbers.get(&wire.from.gear), numbers.get(&wire.to.gear))
                && let Some(takes) = takes.get_mut(*to)
            {
                takes.push(*from);
            }
        }
        let mut layers = vec![None; takes.len()];
        let mut met = vec![false; takes.len()];
        for gear in 0..takes.len() {
            settle(gear, &takes, &mut met, &mut layers);
        }
        layers.into_iter().map(Option::unwrap_or_default).collect()
    }
}

/// Gives a gear its layer, after those whose messages it takes. A gear that is met on its own way counts as the first.
fn settle(gear: usize, takes: &[Vec<usize>], met: &mut [bool], layers: &mut [Option<usize>]) {
    // The way, each gear with how many of those before it are settled.
    let mut way = vec![(gear, 0)];
    while let Some((gear, looked)) = way.last_mut() {
        let gear = *gear;
        let before = takes.get(gear).map(Vec::as_slice).unwrap_or_default();
        if layers.get(gear).copied().flatten().is_some() {
            way.pop();
            continue;
        }
        if let Some(flag) = met.get_mut(gear) {
            *flag = true;
        }
        let next = before.get(*looked).copied();
        *looked += 1;
        match next {
            // What was met is settled, or on the way.
            Some(next) if !met.get(next).copied().unwrap_or(true) => way.push((next, 0)),
            Some(_) => {}
            None => {
                let settled = before.iter().filter_map(|gear| layers.get(*gear).copied().flatten());
                let layer = settled.max().map_or(0, |most| most + 1);
                if let Some(slot) = layers.get_mut(gear) {
                    *slot = Some(layer);
                }
                way.pop();
            }
        }
    }
}
