//! Backlog of each wire on the stream of business messages, and its limit: a share of the free space.
//!
//! ```text
//!  limit  = (free + waiting) / 2            free = nine tenths of the stream - what waits for all wires
//!  credit = limit - waiting, at most 1/(n+1) of what the stream has room for, of n ports
//! ```
//!
//! A single wire whose receiver takes nothing may have half of the stream, two a third each, n of them 1/(n+1) each: what is left is for
//! the others, without a division among all that there are. Source: the dynamic threshold of Choudhury and Hahne, "Dynamic queue length
//! thresholds for shared-memory packet switches", with alpha 1.
//!
//! # Invariants
//!
//! - The bus knows how many messages wait, not how large they are: their bytes are those of the last so many of the wire that were
//!   archived, and of the stream's mean where more wait than this process has seen.
//! - What waits on a port is what waits for the wire that is furthest behind; wires of one port share its messages.
//!
//! # Not here
//!
//! Asking the bus, and telling Racks ([`super::flow_control`]).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ingest::TrafficVolume;
use model::Token;
use model::control::PortCredit;
use model::scenario::OverflowPolicy;
use schemars::JsonSchema;
use serde::Serialize;

/// Of a hundred bytes of the stream so many are divided among wires: the rest is for what is on its way.
const DIVIDED: u64 = 90;
/// How full of its limit a wire is that holds its senders up, in sixteenths.
const HELD: u64 = 15;
/// The most moments that are remembered of a wire; beyond, every second one is forgotten.
const MOST_MARKS: usize = 256;

/// What waits for a wire of lane guaranteed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct WireBacklog {
    /// The wire, from its subject to its gear.
    pub wire: String,
    /// The Rack that it ends at.
    pub rack: Option<Token>,
    /// The subject of its messages.
    #[serde(skip)]
    pub(crate) filter: String,
    /// Whether it is not in force: nothing waits for it, and it goes on from where it was paused.
    pub is_paused: bool,
    /// The bus messages that wait for it, each of one message or more. Of one that is paused, not known.
    pub waiting_batches: Option<u64>,
    /// Their bytes, about.
    pub waiting_bytes: u64,
    /// Those of them that are known and not estimated: nothing is dropped for an estimate.
    #[serde(skip)]
    pub(crate) known_bytes: u64,
    /// How many bytes may wait for it before its senders wait; none where the stream has no bound.
    pub limit_bytes: Option<u64>,
    /// How many bytes its senders may have on their way beyond what waits: all of them together have less than is free.
    #[serde(skip)]
    pub(crate) credit: u64,
    /// Whether as much waits as may: its senders wait for its receiver.
    pub is_held: bool,
    /// What happens when as much waits as may.
    pub overflow: OverflowPolicy,
    /// What its scenario says may wait.
    #[serde(skip)]
    pub(crate) max_bytes: Option<u64>,
    /// How many of its messages became dead letters because they were too many or too old, since this Mixer began.
    pub dropped_messages: u64,
}

impl WireBacklog {
    /// The bus messages that wait, their bytes, and those of them that are known.
    pub(super) const fn waiting(&self) -> (Option<u64>, u64, u64) {
        (self.waiting_batches, self.waiting_bytes, self.known_bytes)
    }
}

/// The volumes of wires at earlier moments.
#[derive(Debug, Default)]
pub(super) struct VolumeHistory(BTreeMap<String, VecDeque<TrafficVolume>>);

impl VolumeHistory {
    /// The bytes of the last messages of a wire, of which so much came so far: of those that came to this process, and about those of the
    /// others.
    pub(super) fn bytes(&mut self, wire: &str, waiting: u64, now: TrafficVolume, mean: u64) -> (u64, u64) {
        let marks = self.0.entry(wire.to_owned()).or_default();
        if marks.back().is_none_or(|last| last.messages < now.messages) {
            marks.push_back(now);
        }
        if marks.len() > MOST_MARKS {
            let mut nth = 0_usize;
            marks.retain(|_| {
                nth += 1;
                nth % 2 == 1
            });
        }
        let unseen = waiting.saturating_sub(now.messages) * mean;
        let first = now.messages.saturating_sub(waiting);
        // Of what came between two moments each message is taken for as large as any other.
        let at = marks.partition_point(|mark| mark.messages <= first);
        let before = at.checked_sub(1).map_or(TrafficVolume::default(), |at| marks[at]);
        let after = marks.get(at).copied().unwrap_or(now);
        let of_first = share(
            after.bytes - before.bytes,
            first - before.messages,
            after.messages - before.messages,
        );
        (now.bytes.saturating_sub(before.bytes + of_first), unseen)
    }

    pub(super) fn retain(&mut self, is_known: impl Fn(&str) -> bool) {
        self.0.retain(|wire, _| is_known(wire));
    }
}

fn share(bytes: u64, part: u64, whole: u64) -> u64 {
    let share = u128::from(bytes) * u128::from(part) / u128::from(whole.max(1));
    u64::try_from(share).unwrap_or(u64::MAX)
}

/// What wires share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SharedStream {
    /// What it holds at most.
    pub(super) max_bytes: u64,
    /// What it holds, for whomever, or for nobody any more.
    pub(super) bytes: u64,
    /// What waits for other readers of it.
    pub(super) foreign: u64,
}

/// Sets the limits of wires by what is free of the stream, if it has a bound, and what scenarios say.
pub(super) fn set_limits<'a>(wires: impl Iterator<Item = &'a mut WireBacklog>, stream: Option<SharedStream>) {
    let wires: Vec<_> = wires.collect();
    let mut ports: BTreeMap<&str, u64> = BTreeMap::new();
    for wire in wires.iter().filter(|wire| !wire.is_paused) {
        let most = ports.entry(&wire.filter).or_default();
        *most = wire.waiting_bytes.max(*most);
    }
    let free = stream.map(|stream| {
        let waiting = ports.values().sum::<u64>().max(stream.foreign);
        let divided = stream.max_bytes / 100 * DIVIDED;
        let free = divided.saturating_sub(waiting);
        // What is not known of, as messages of a consumer that was lost, is there all the same.
        let ends = ports.len() as u64 + 1;
        let each = free.min(divided.saturating_sub(stream.bytes)) / ends;
        (free, each, divided / ends)
    });
    for wire in wires {
        wire.limit(free);
    }
}

impl WireBacklog {
    /// Sets its limit, where so much is free for all, and for each; a wire that drops has as much as each had if all took all they may,
    /// whoever else fills the stream.
    fn limit(&mut self, free: Option<(u64, u64, u64)>) {
        let least = |fair: u64| {
            if self.overflow == OverflowPolicy::Block {
                0
            } else {
                fair
            }
        };
        let share = free.map(|(free, _, fair)| u64::midpoint(free, self.waiting_bytes).max(least(fair)));
        self.limit_bytes = share.into_iter().chain(self.max_bytes).min();
        let each = free.map_or(u64::MAX, |(_, each, _)| each);
        let limit = self.limit_bytes.unwrap_or(u64::MAX);
        (self.credit, self.is_held) = match self.overflow {
            OverflowPolicy::Block => (
                limit.saturating_sub(self.waiting_bytes).min(each),
                self.waiting_bytes >= limit / 16 * HELD && self.waiting_bytes > 0,
            ),
            OverflowPolicy::DropOldestToDlq => (each, false),
        };
    }
}

/// What the ports of these Racks may have on their way, of a fleet of so many. Of a wire from a group those that have sent by it have one
/// half, and all others the other.
pub(super) fn credits(
    wires: &BTreeMap<String, WireBacklog>,
    racks: &BTreeSet<Token>,
    fleet: usize,
    has_sent: impl Fn(&str) -> bool,
) -> BTreeMap<Token, Vec<PortCredit>> {
    let mut all: BTreeMap<Token, BTreeMap<(Token, Token), u64>> = BTreeMap::new();
    for wire in wires
        .values()
        .filter(|wire| !wire.is_paused && wire.limit_bytes.is_some())
    {
        let Some((from, gear, port)) = ends(&wire.filter) else {
            continue;
        };
        let mut give = |rack: &Token, bytes: u64| {
            let of_rack = all.entry(rack.clone()).or_default();
            let credit = of_rack.entry((gear.clone(), port.clone())).or_insert(u64::MAX);
            *credit = bytes.min(*credit);
        };
        if let Ok(rack) = from.parse::<Token>() {
            if racks.contains(&rack) {
                give(&rack, wire.credit);
            }
            continue;
        }
        let sends = |rack: &&Token| has_sent(&format!("flux.msg.{rack}.{gear}.{port}"));
        let (sending, others): (Vec<&Token>, Vec<&Token>) = racks.iter().partition(sends);
        let silent = fleet.saturating_sub(sending.len());
        let halves = if sending.is_empty() || silent == 0 { 1 } else { 2 };
        let part = |of: usize| wire.credit / halves / of.max(1) as u64;
        sending.iter().for_each(|rack| give(rack, part(sending.len())));
        others.iter().for_each(|rack| give(rack, part(silent)));
    }
    let listed = |ports: BTreeMap<(Token, Token), u64>| {
        let ports = ports.into_iter();
        ports
            .map(|((gear, port), bytes)| PortCredit { gear, port, bytes })
            .collect()
    };
    all.into_iter().map(|(rack, ports)| (rack, listed(ports))).collect()
}

/// The Rack, or `*`, the gear and the port of a wire's subject.
fn ends(filter: &str) -> Option<(&str, Token, Token)> {
    let mut words = filter.strip_prefix("flux.msg.")?.split('.');
    Some((words.next()?, words.next()?.parse().ok()?, words.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn wire(filter: &str, waiting_bytes: u64) -> WireBacklog {
        WireBacklog {
            wire: format!("{filter} -> far.sink.in"),
            rack: None,
            filter: filter.to_owned(),
            is_paused: false,
            waiting_batches: Some(1),
            waiting_bytes,
            known_bytes: waiting_bytes,
            limit_bytes: None,
            credit: 0,
            is_held: false,
            overflow: OverflowPolicy::Block,
            max_bytes: None,
            dropped_messages: 0,
        }
    }

    fn volume(messages: u64, bytes: u64) -> TrafficVolume {
        TrafficVolume { messages, bytes }
    }

    #[test]
    fn the_bytes_that_wait_are_those_of_the_last_messages() {
        let mut marks = VolumeHistory::default();
        assert_eq!(
            marks.bytes("w", 5, TrafficVolume::default(), 7),
            (0, 35),
            "of before this process"
        );
        assert_eq!(marks.bytes("w", 0, volume(100, 1_000), 7), (0, 0));
        assert_eq!(
            marks.bytes("w", 30, volume(110, 11_000), 7),
            (10_200, 0),
            "10 of 1,000 and 20 of 10"
        );
        assert_eq!(marks.bytes("w", 110, volume(110, 11_000), 7), (11_000, 0));
        assert_eq!(marks.bytes("w", 112, volume(110, 11_000), 7), (11_000, 14));
        for moment in 0..2_000 {
            marks.bytes("w", 0, volume(110 + moment, 11_000 + moment), 7);
        }
        assert!(marks.0["w"].len() <= MOST_MARKS);
        assert_eq!(marks.bytes("w", 50, volume(2_109, 12_999), 7), (50, 0));
        marks.retain(|wire| wire != "w");
        assert!(marks.0.is_empty());
    }

    fn stream(foreign: u64) -> SharedStream {
        SharedStream {
            max_bytes: 100_000,
            bytes: 0,
            foreign,
        }
    }

    /// What wires have when each takes all that it may.
    fn filled(hogs: usize) -> Vec<WireBacklog> {
        let hog = |hog| wire(&format!("flux.msg.a.hog-{hog}.out"), 0);
        let mut wires: Vec<_> = (0..hogs).map(hog).collect();
        wires.push(wire("flux.msg.a.well.out", 0));
        for _ in 0..64 {
            set_limits(wires.iter_mut(), Some(stream(0)));
            wires[..hogs]
                .iter_mut()
                .for_each(|wire| wire.waiting_bytes += wire.credit);
        }
        set_limits(wires.iter_mut(), Some(stream(0)));
        wires
    }

    #[test]
    fn a_stalled_receiver_leaves_a_share_to_the_others() {
        for hogs in [1, 2, 9] {
            let wires = filled(hogs);
            let (held, well) = wires.split_at(hogs);
            let each = 90_000 / (hogs as u64 + 1);
            let has_share = |hog: &WireBacklog| hog.is_held && hog.waiting_bytes.abs_diff(each) < each / 4;
            assert!(held.iter().all(has_share), "{wires:?}");
            let limit = well[0].limit_bytes.unwrap();
            assert!(limit > each / 8 && !well[0].is_held && well[0].credit > 0, "{wires:?}");
        }
        let mut wires = [wire("flux.msg.a.well.out", 0)];
        set_limits(wires.iter_mut(), Some(stream(90_000)));
        assert_eq!(
            (wires[0].limit_bytes, wires[0].credit),
            (Some(0), 0),
            "another reader has it all"
        );
        let full = SharedStream {
            bytes: 90_000,
            ..stream(0)
        };
        set_limits(wires.iter_mut(), Some(full));
        assert_eq!(wires[0].credit, 0, "it is full of what is not known of");
    }

    #[test]
    fn a_wire_has_what_its_scenario_says_and_one_that_drops_holds_nobody_up() {
        let bounded = |waiting_bytes, overflow| {
            let mut wires = [WireBacklog {
                max_bytes: Some(10_000),
                overflow,
                ..wire("flux.msg.a.gen.out", waiting_bytes)
            }];
            let mut of = |stream| {
                set_limits(wires.iter_mut(), stream);
                (wires[0].limit_bytes, wires[0].credit, wires[0].is_held)
            };
            (of(Some(stream(0))), of(None))
        };
        let (bound, unbound) = bounded(4_000, OverflowPolicy::Block);
        assert_eq!(
            (bound, unbound),
            ((Some(10_000), 6_000, false), (Some(10_000), 6_000, false))
        );
        assert_eq!(bounded(10_000, OverflowPolicy::Block).0, (Some(10_000), 0, true));
        let drops = bounded(20_000, OverflowPolicy::DropOldestToDlq);
        assert_eq!(drops.0, (Some(10_000), 35_000, false), "half of what is free");
        let mut dropping = [WireBacklog {
            overflow: OverflowPolicy::DropOldestToDlq,
            ..wire("flux.msg.a.gen.out", 5_000)
        }];
        set_limits(dropping.iter_mut(), Some(stream(90_000)));
        assert_eq!(dropping[0].limit_bytes, Some(45_000), "another reader has it all");
        let mut unbound = [wire("flux.msg.a.gen.out", 5)];
        set_limits(unbound.iter_mut(), None);
        assert_eq!(unbound[0].limit_bytes, None);
    }

    #[test]
    fn a_port_has_the_credit_of_its_slowest_wire_and_racks_of_a_group_share_it() {
        let wires = [
            ("flux.msg.a.gen.out", 10_000),
            ("flux.msg.a.gen.out", 30_000),
            ("flux.msg.*.tail.out", 30_000),
            ("flux.msg.gone.gen.out", 0),
        ];
        let wires = wires.iter().enumerate().map(|(name, (filter, credit))| {
            let wire = WireBacklog {
                limit_bytes: Some(50_000),
                credit: *credit,
                ..wire(filter, 0)
            };
            (name.to_string(), wire)
        });
        let racks = ["a", "b", "c"].map(|name| name.parse().unwrap()).into();
        let credits = credits(&wires.collect(), &racks, 3, |subject| subject != "flux.msg.c.tail.out");
        let of = |rack: &str| {
            let ports = credits[&rack.parse().unwrap()].iter();
            ports
                .map(|port| (port.gear.to_string(), port.bytes))
                .collect::<Vec<_>>()
        };
        // Half of it for two that send, half for the one that may.
        let tail = |bytes| ("tail".to_owned(), bytes);
        assert_eq!(of("a"), [("gen".to_owned(), 10_000), tail(7_500)]);
        assert_eq!(
            (of("b"), of("c"), credits.len()),
            (vec![tail(7_500)], vec![tail(15_000)], 3)
        );
    }
}
