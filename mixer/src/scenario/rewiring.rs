//! What becomes of wires when a scenario takes the place of another: pure, so that a rehearsal and the change itself say the same.
//!
//! | the wire | and | becomes of it |
//! |---|---|---|
//! | is of the new scenario only | another one of the same messages leaves, one for one, at this Rack or else anywhere | takes over where that one is |
//! | | it was paused | resumes where it was paused |
//! | | else | begins with what comes from now on |
//! | is of the former scenario only | | pauses |
//!
//! # Not here
//!
//! Doing it ([`super::consumers`]).

use std::collections::BTreeMap;

use serde::Serialize;

use super::part::Flow;
use crate::registry::WireRow;

/// What becomes of a wire.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "change", rename_all = "snake_case")]
pub enum Rewiring {
    /// It gets what comes from now on.
    Begins,
    /// It goes on where it was paused.
    Resumes,
    /// It goes on where another one is, which is paused.
    TakesOver {
        /// That one, as people read it.
        from: String,
        /// Its consumer.
        #[serde(skip)]
        consumer: String,
    },
    /// Its consumer goes.
    Pauses,
}

impl Rewiring {
    /// What becomes of a wire that takes over from none.
    pub(super) const fn without_another(is_paused: bool) -> Self {
        if is_paused { Self::Resumes } else { Self::Begins }
    }
}

/// What becomes of the wires, by their consumers, when these are the scenario's. Those that stay are left out.
pub(super) fn rewirings(flows: &[Flow], rows: &BTreeMap<String, WireRow>) -> BTreeMap<String, Rewiring> {
    let is_live = |name: &String| rows.get(name).is_some_and(|row| !row.is_paused);
    let wanted: BTreeMap<&String, &Flow> = flows.iter().map(|flow| (&flow.consumer, flow)).collect();
    let mut arriving: Vec<&Flow> = wanted
        .values()
        .copied()
        .filter(|flow| !is_live(&flow.consumer))
        .collect();
    let mut leaving: Vec<(&String, &WireRow)> = rows
        .iter()
        .filter(|(name, row)| !row.is_paused && !wanted.contains_key(name))
        .collect();
    let mut all = BTreeMap::new();
    for is_of_rack in [true, false] {
        for (flow, (name, row)) in pairs(&arriving, &leaving, is_of_rack) {
            arriving.retain(|other| other.consumer != flow.consumer);
            leaving.retain(|(other, _)| *other != name);
            let (from, consumer) = (row.description.clone(), name.clone());
            all.insert(flow.consumer.clone(), Rewiring::TakesOver { from, consumer });
            all.insert(name.clone(), Rewiring::Pauses);
        }
    }
    for flow in arriving {
        let change = Rewiring::without_another(rows.contains_key(&flow.consumer));
        all.insert(flow.consumer.clone(), change);
    }
    all.extend(leaving.into_iter().map(|(name, _)| (name.clone(), Rewiring::Pauses)));
    all
}

/// The wires of the same messages, at the same Rack or at any, of which one arrives and one leaves.
fn pairs<'a>(
    arriving: &[&'a Flow],
    leaving: &[(&'a String, &'a WireRow)],
    is_of_rack: bool,
) -> Vec<(&'a Flow, (&'a String, &'a WireRow))> {
    type Both<'a> = (Vec<&'a Flow>, Vec<(&'a String, &'a WireRow)>);
    let mut both: BTreeMap<(&str, Option<&str>), Both<'a>> = BTreeMap::new();
    for flow in arriving {
        let key = (flow.filter.as_str(), is_of_rack.then_some(flow.rack.as_str()));
        both.entry(key).or_default().0.push(flow);
    }
    for (name, row) in leaving.iter().filter(|(_, row)| !row.filter.is_empty()) {
        let rack = row.rack.as_ref().filter(|_| is_of_rack).map(|rack| rack.as_str());
        both.entry((&row.filter, rack)).or_default().1.push((name, row));
    }
    let pair = |(arriving, leaving): Both<'a>| match (&arriving[..], &leaving[..]) {
        ([flow], [gone]) => Some((*flow, *gone)),
        _ => None,
    };
    both.into_values().filter_map(pair).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    /// A wire from this gear to that one of this Rack.
    fn flow(from: &str, rack: &str, to: &str) -> Flow {
        let end = |gear: &str, port: &str| model::scenario::Endpoint {
            rack: None,
            gear: gear.parse().unwrap(),
            port: port.parse().unwrap(),
        };
        let filter = format!("flux.msg.a.{from}.out");
        Flow {
            from: end(from, "out"),
            to: end(to, "in"),
            consumer: format!("{from} {rack} {to}"),
            description: format!("{filter} -> {rack}.{to}.in"),
            filter,
            rack: rack.parse().unwrap(),
        }
    }

    fn row(flow: &Flow, is_paused: bool) -> (String, WireRow) {
        let row = WireRow {
            rack: Some(flow.rack.clone()),
            filter: flow.filter.clone(),
            description: flow.description.clone(),
            is_paused,
            ..WireRow::default()
        };
        (flow.consumer.clone(), row)
    }

    fn words(flows: &[Flow], rows: &[(String, WireRow)]) -> Vec<String> {
        let all = rewirings(flows, &rows.iter().cloned().collect());
        let word = |(consumer, change): (String, Rewiring)| match change {
            Rewiring::Begins => format!("{consumer}: begins"),
            Rewiring::Resumes => format!("{consumer}: resumes"),
            Rewiring::TakesOver { consumer: from, .. } => format!("{consumer}: takes over from {from}"),
            Rewiring::Pauses => format!("{consumer}: pauses"),
        };
        all.into_iter().map(word).collect()
    }

    #[test]
    fn wires_begin_resume_pause_and_stay() {
        let (stays, new, paused, gone) = (
            flow("x", "b", "stays"),
            flow("y", "b", "new"),
            flow("z", "b", "paused"),
            flow("u", "b", "gone"),
        );
        let rows = [row(&stays, false), row(&paused, true), row(&gone, false)];
        let changes = words(&[stays, new, paused], &rows);
        assert_eq!(changes, ["u b gone: pauses", "y b new: begins", "z b paused: resumes"]);
        assert_eq!(words(&[], &[row(&gone, true)]), [""; 0]);
    }

    #[test]
    fn a_renamed_or_moved_receiver_takes_over_one_for_one() {
        let (sink, renamed, moved) = (flow("x", "b", "sink"), flow("x", "b", "sink2"), flow("x", "c", "sink"));
        let changes = |to: &Flow, paused: bool| {
            words(
                std::slice::from_ref(to),
                &[row(&sink, false), row(to, paused)][..1 + usize::from(paused)],
            )
        };
        assert_eq!(
            changes(&renamed, false),
            ["x b sink: pauses", "x b sink2: takes over from x b sink"]
        );
        assert_eq!(
            changes(&moved, true),
            ["x b sink: pauses", "x c sink: takes over from x b sink"]
        );
        let both = words(&[renamed.clone(), moved.clone()], &[row(&sink, false)]);
        assert_eq!(
            both,
            [
                "x b sink: pauses",
                "x b sink2: takes over from x b sink",
                "x c sink: begins"
            ]
        );
        let group = ["b", "c"].map(|rack| flow("x", rack, "sink2"));
        let before = ["b", "c"].map(|rack| row(&flow("x", rack, "sink"), false));
        let wanted = [
            "x b sink: pauses",
            "x b sink2: takes over from x b sink",
            "x c sink: pauses",
            "x c sink2: takes over from x c sink",
        ];
        assert_eq!(words(&group, &before), wanted);
        let split = [flow("x", "d", "one"), flow("x", "d", "two")];
        assert_eq!(
            words(&split, &[row(&sink, false)]),
            ["x b sink: pauses", "x d one: begins", "x d two: begins"]
        );
    }
}
