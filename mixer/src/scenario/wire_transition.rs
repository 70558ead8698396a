//! Transitions of wires between two scenarios: pure, so that a dry run and the change itself say the same.
//!
//! | the wire | and | becomes of it |
//! |---|---|---|
//! | is of the new scenario only | it was paused | resumes where it was paused |
//! | | another one of the same messages leaves, one for one, at this Rack or else anywhere | takes over from that one, which ends |
//! | | else | begins with what comes from now on |
//! | is of the former scenario only | one at another Rack takes over from it, or did | ends |
//! | | else | pauses |
//!
//! # Not here
//!
//! Doing it ([`super::wire_consumers`]).

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use super::assignment::GuaranteedWire;
use crate::registry::WireRow;

/// What becomes of a wire.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(tag = "change", rename_all = "snake_case")]
pub enum WireTransition {
    /// It gets what comes from now on.
    Begins,
    /// It goes on where it was paused.
    Resumes,
    /// It goes on where another one is, which ends.
    TakesOver {
        /// That one, as people read it.
        from: String,
        /// Its name.
        #[serde(skip)]
        wire: String,
    },
    /// Its consumer goes.
    Pauses,
    /// One at another Rack takes over from it, or did: its consumer goes, and nothing of it is kept.
    Ends,
}

/// What becomes of the wires, by their names, when these are the scenario's. Those that stay, and those that others of their Rack take
/// over from, are left out.
pub(super) fn rewirings(
    flows: &[GuaranteedWire],
    rows: &BTreeMap<String, WireRow>,
) -> BTreeMap<String, WireTransition> {
    let wanted: BTreeMap<&String, &GuaranteedWire> = flows.iter().map(|flow| (&flow.name, flow)).collect();
    let (mut arriving, mut all) = (Vec::new(), BTreeMap::new());
    for flow in wanted.values().copied() {
        match rows.get(&flow.name) {
            None => arriving.push(flow),
            Some(row) if row.ends => arriving.push(flow),
            Some(row) if row.is_paused => drop(all.insert(flow.name.clone(), WireTransition::Resumes)),
            Some(_) => {}
        }
    }
    let leaves = |(name, row): &(&String, &WireRow)| !row.is_paused && !wanted.contains_key(name);
    let (ending, mut leaving): (BTreeMap<_, _>, BTreeMap<_, _>) =
        rows.iter().filter(leaves).partition(|(_, row)| row.ends);
    all.extend(ending.into_keys().map(|name| (name.clone(), WireTransition::Ends)));
    for is_of_rack in [true, false] {
        for (flow, name) in pairs(&arriving, &leaving, is_of_rack) {
            let Some(row) = leaving.remove(name) else { continue };
            if row.rack.as_ref() != Some(&flow.rack) {
                all.insert(name.clone(), WireTransition::Ends);
            }
            let (from, wire) = (row.description.clone(), name.clone());
            all.insert(flow.name.clone(), WireTransition::TakesOver { from, wire });
        }
        arriving.retain(|flow| !all.contains_key(&flow.name));
    }
    all.extend(
        arriving
            .into_iter()
            .map(|flow| (flow.name.clone(), WireTransition::Begins)),
    );
    all.extend(leaving.into_keys().map(|name| (name.clone(), WireTransition::Pauses)));
    all
}

/// The wires of the same messages, at the same Rack or at any, of which one arrives and one leaves.
fn pairs<'a>(
    arriving: &[&'a GuaranteedWire],
    leaving: &BTreeMap<&'a String, &'a WireRow>,
    is_of_rack: bool,
) -> Vec<(&'a GuaranteedWire, &'a String)> {
    let mut both: BTreeMap<_, (Vec<&'a GuaranteedWire>, Vec<&'a String>)> = BTreeMap::new();
    for flow in arriving {
        let key = (flow.filter.as_str(), is_of_rack.then_some(flow.rack.as_str()));
        both.entry(key).or_default().0.push(flow);
    }
    for (name, row) in leaving.iter().filter(|(_, row)| !row.filter.is_empty()) {
        let rack = row.rack.as_ref().filter(|_| is_of_rack).map(|rack| rack.as_str());
        both.entry((&row.filter, rack)).or_default().1.push(name);
    }
    let pair = |(arriving, leaving): (Vec<_>, Vec<_>)| match (&arriving[..], &leaving[..]) {
        ([flow], [gone]) => Some((*flow, *gone)),
        _ => None,
    };
    both.into_values().filter_map(pair).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::registry::WireBounds;

    /// A wire from this gear to that one of this Rack.
    fn flow(from: &str, rack: &str, to: &str) -> GuaranteedWire {
        let end = |gear: &str, port: &str| model::scenario::GearPort {
            rack: None,
            gear: gear.parse().unwrap(),
            port: port.parse().unwrap(),
        };
        let filter = format!("flux.msg.a.{from}.out");
        GuaranteedWire {
            from: end(from, "out"),
            to: end(to, "in"),
            name: format!("{from} {rack} {to}"),
            description: format!("{filter} -> {rack}.{to}.in"),
            filter,
            rack: rack.parse().unwrap(),
            bounds: WireBounds::default(),
        }
    }

    fn row(flow: &GuaranteedWire, is_paused: bool) -> (String, WireRow) {
        let row = WireRow {
            rack: Some(flow.rack.clone()),
            filter: flow.filter.clone(),
            description: flow.description.clone(),
            is_paused,
            ..WireRow::default()
        };
        (flow.name.clone(), row)
    }

    fn words(flows: &[GuaranteedWire], rows: &[(String, WireRow)]) -> Vec<String> {
        let all = rewirings(flows, &rows.iter().cloned().collect());
        let word = |(name, change): (String, WireTransition)| match change {
            WireTransition::Begins => format!("{name}: begins"),
            WireTransition::Resumes => format!("{name}: resumes"),
            WireTransition::TakesOver { wire, .. } => format!("{name}: takes over from {wire}"),
            WireTransition::Pauses => format!("{name}: pauses"),
            WireTransition::Ends => format!("{name}: ends"),
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
        let before = [row(&sink, false)];
        let takes_over = |to: &GuaranteedWire| words(std::slice::from_ref(to), &before);
        assert_eq!(takes_over(&renamed), ["x b sink2: takes over from x b sink"]);
        let wanted = ["x b sink: ends", "x c sink: takes over from x b sink"];
        assert_eq!(takes_over(&moved), wanted);
        let both = words(&[renamed.clone(), moved.clone()], &before);
        assert_eq!(both, ["x b sink2: takes over from x b sink", "x c sink: begins"]);
        let group = ["b", "c"].map(|rack| flow("x", rack, "sink2"));
        let of_group = ["b", "c"].map(|rack| row(&flow("x", rack, "sink"), false));
        let wanted = [
            "x b sink2: takes over from x b sink",
            "x c sink2: takes over from x c sink",
        ];
        assert_eq!(words(&group, &of_group), wanted);
        let split = [flow("x", "d", "one"), flow("x", "d", "two")];
        let wanted = ["x b sink: pauses", "x d one: begins", "x d two: begins"];
        assert_eq!(words(&split, &before), wanted);
        let (name, ended) = row(&sink, false);
        let ended = (name, WireRow { ends: true, ..ended });
        let rows = [ended, row(&moved, false)];
        assert_eq!(words(std::slice::from_ref(&moved), &rows), ["x b sink: ends"]);
        assert_eq!(words(&[sink.clone(), moved.clone()], &rows), ["x b sink: begins"]);
        let back = ["x b sink: takes over from x c sink", "x c sink: ends"];
        assert_eq!(words(std::slice::from_ref(&sink), &rows), back);
        // What was paused has a place of its own.
        let rows = [row(&sink, false), row(&renamed, true)];
        assert_eq!(words(&[renamed], &rows), ["x b sink: pauses", "x b sink2: resumes"]);
    }
}
