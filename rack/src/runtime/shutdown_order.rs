//! Shutdown order of gears: senders before receivers.
//!
//! ```text
//! door (asks) ─▶ desk ─▶ door (replies)        a wire to an input `reply` makes no circle
//! feed ─▶ a ⇄ b ─▶ sink                        a and b together, then the sink
//! ```
//!
//! # Invariants
//!
//! - What feeds a gear, over however many wires, has its turn before it; only what it feeds itself has its turn with it.
//!
//! # Not here
//!
//! Waiting for them ([`super`]).

use std::collections::{BTreeMap, BTreeSet};

use model::Token;

use crate::gears::WiredGear;

/// What of a gear is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ShutdownPhase {
    /// All of it.
    Whole,
    /// What takes requests. The gear goes on, for their replies.
    Asking,
    /// The rest of it.
    Replies,
}

/// A gear that is stopped now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ShutdownStep {
    pub(super) gear: Token,
    pub(super) part: ShutdownPhase,
}

type ShutdownNode<'a> = (&'a Token, ShutdownPhase);

/// Gears that stop together, one set after the other.
pub(super) fn shutdown_waves<'a>(specs: impl Iterator<Item = &'a WiredGear>) -> Vec<Vec<ShutdownStep>> {
    let wires = wires(&specs.collect::<Vec<_>>());
    let fed: BTreeMap<ShutdownNode<'_>, BTreeSet<ShutdownNode<'_>>> = wires
        .keys()
        .map(|node| (*node, reachable_from(*node, &wires)))
        .collect();
    let mut waves: BTreeMap<usize, Vec<ShutdownStep>> = BTreeMap::new();
    for (node, feeds) in &fed {
        let feeders = fed
            .iter()
            .filter(|(other, fed)| fed.contains(node) && !feeds.contains(*other));
        // What feeds a feeder feeds this one, too: each has fewer feeders than what it feeds.
        let turn = ShutdownStep {
            gear: node.0.clone(),
            part: node.1,
        };
        waves.entry(feeders.count()).or_default().push(turn);
    }
    waves.into_values().collect()
}

/// What each part sends to, of the gears that stop.
fn wires<'a>(specs: &[&'a WiredGear]) -> BTreeMap<ShutdownNode<'a>, Vec<ShutdownNode<'a>>> {
    let targets = specs
        .iter()
        .flat_map(|spec| spec.targets.iter().map(|target| &target.gear));
    let targets: BTreeSet<&Token> = targets.collect();
    // Only where a reply may come from a gear that stops as well, the gear has two turns.
    let halves: BTreeSet<&Token> = specs
        .iter()
        .filter(|spec| spec.kind.answers() && targets.contains(&spec.name))
        .map(|spec| &spec.name)
        .collect();
    let names: BTreeSet<&Token> = specs.iter().map(|spec| &spec.name).collect();
    let taking = |gear: &'a Token| {
        (
            gear,
            if halves.contains(gear) {
                ShutdownPhase::Replies
            } else {
                ShutdownPhase::Whole
            },
        )
    };
    let mut wires = BTreeMap::new();
    for spec in specs {
        let targets = spec.targets.iter().map(|target| &target.gear);
        let mut next: Vec<_> = targets.filter(|gear| names.contains(gear)).map(taking).collect();
        let mut part = ShutdownPhase::Whole;
        if halves.contains(&spec.name) {
            part = ShutdownPhase::Asking;
            next.push((&spec.name, ShutdownPhase::Replies));
            wires.insert((&spec.name, ShutdownPhase::Replies), Vec::new());
        }
        wires.insert((&spec.name, part), next);
    }
    wires
}

/// What a part feeds, over however many wires.
fn reachable_from<'a>(
    from: ShutdownNode<'a>,
    wires: &BTreeMap<ShutdownNode<'a>, Vec<ShutdownNode<'a>>>,
) -> BTreeSet<ShutdownNode<'a>> {
    let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
    while let Some(node) = next.pop() {
        for to in wires.get(&node).into_iter().flatten() {
            if seen.insert(*to) {
                next.push(*to);
            }
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::json;

    use super::*;
    use crate::gears::testing::push;
    use crate::rack_plan::plan;

    /// The waves of gears, each `name kind`, and of wires, each `from.port to.port`.
    fn order(gears: &[&str], wires: &[&str]) -> Vec<String> {
        let gear = |text: &&str| {
            let (name, kind) = text.split_once(' ').unwrap();
            json!({ "name": name, "type": kind, "deploy": "rack-a", "config": match kind {
                "tcp_in" => json!({ "listen": "127.0.0.1:0" }),
                "throttle" => json!({ "rate": 1 }),
                _ => json!({}),
            } })
        };
        let wire = |text: &&str| {
            let (from, to) = text.split_once(' ').unwrap();
            json!({ "from": from, "to": to })
        };
        let gears: Vec<_> = gears.iter().map(gear).collect();
        let wires = serde_json::to_string(&wires.iter().map(wire).collect::<Vec<_>>()).unwrap();
        let plan = plan(
            &push("h", &json!(gears).to_string(), wires.trim_matches(['[', ']'])),
            None,
        )
        .unwrap();
        let turn = |turn: &ShutdownStep| match turn.part {
            ShutdownPhase::Whole => turn.gear.to_string(),
            ShutdownPhase::Asking => format!("{} asks", turn.gear),
            ShutdownPhase::Replies => format!("{} replies", turn.gear),
        };
        let waves = shutdown_waves(plan.gears.values());
        waves
            .iter()
            .map(|wave| wave.iter().map(turn).collect::<Vec<_>>().join(", "))
            .collect()
    }

    #[test]
    fn senders_stop_before_receivers_and_a_cycle_together() {
        let gears = [
            "feed test_feed",
            "a throttle",
            "b throttle",
            "sink log_sink",
            "alone log_sink",
        ];
        let wires = [
            "feed.out a.in",
            "a.out b.in",
            "b.out a.in",
            "b.out sink.in",
            "feed.out sink.in",
        ];
        assert_eq!(order(&gears, &wires), ["alone, feed", "a, b", "sink"]);
        assert_eq!(order(&gears[1..2], &["a.out a.in"]), ["a"]);
    }

    #[test]
    fn who_takes_requests_stops_before_the_gears_that_answer_and_takes_replies_after_them() {
        let gears = ["door tcp_in", "desk throttle", "sink log_sink"];
        let wires = ["door.out desk.in", "desk.out door.reply", "desk.out sink.in"];
        assert_eq!(order(&gears, &wires), ["door asks", "desk", "door replies, sink"]);
        assert_eq!(
            order(&gears, &["door.out door.reply"])[..],
            ["desk, door asks, sink", "door replies"]
        );
        assert_eq!(order(&gears, &wires[..1]), ["door, sink", "desk"]);
    }
}
