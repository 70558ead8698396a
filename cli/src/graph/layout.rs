//! Layered graph layout: a gear is right of all whose messages it takes; wires that close a cycle are left out of that.

use std::collections::BTreeMap;

use model::Token;
use model::scenario::Scenario;

/// Column and row of each gear, in the order of the file.
pub(super) fn places(scenario: &Scenario) -> Vec<(usize, usize)> {
    let numbers: BTreeMap<&Token, usize> = scenario
        .gears
        .iter()
        .enumerate()
        .map(|(n, gear)| (&gear.name, n))
        .collect();
    let mut takes: Vec<Vec<usize>> = vec![Vec::new(); scenario.gears.len()];
    for wire in &scenario.wires {
        if let (Some(from), Some(to)) = (numbers.get(&wire.from.gear), numbers.get(&wire.to.gear))
            && let Some(takes) = takes.get_mut(*to)
        {
            takes.push(*from);
        }
    }
    let mut columns = vec![None; takes.len()];
    for gear in 0..takes.len() {
        settle(gear, &takes, &mut columns);
    }
    let mut rows: BTreeMap<usize, usize> = BTreeMap::new();
    let place = |column: Option<usize>| {
        let column = column.unwrap_or_default();
        let row = rows.entry(column).or_default();
        *row += 1;
        (column, *row - 1)
    };
    columns.into_iter().map(place).collect()
}

/// Gives a gear its column, after those whose messages it takes. A gear that is met on its own way counts as the first.
fn settle(gear: usize, takes: &[Vec<usize>], columns: &mut [Option<usize>]) {
    // The way, each gear with how many of those before it are settled.
    let mut way = vec![(gear, 0)];
    let mut on_way = vec![false; takes.len()];
    while let Some((gear, looked)) = way.last_mut() {
        let gear = *gear;
        let before = takes.get(gear).map(Vec::as_slice).unwrap_or_default();
        if columns.get(gear).copied().flatten().is_some() {
            way.pop();
            continue;
        }
        if let Some(flag) = on_way.get_mut(gear) {
            *flag = true;
        }
        let next = before.get(*looked).copied();
        *looked += 1;
        match next {
            Some(next) if !on_way.get(next).copied().unwrap_or(true) => way.push((next, 0)),
            Some(_) => {}
            None => {
                let settled = before.iter().filter_map(|gear| columns.get(*gear).copied().flatten());
                let column = settled.max().map_or(0, |most| most + 1);
                if let Some(slot) = columns.get_mut(gear) {
                    *slot = Some(column);
                }
                way.pop();
            }
        }
    }
}
