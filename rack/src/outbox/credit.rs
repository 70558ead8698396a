//! Credit of ports: how much of each the Mixer lets be on its way, so that who takes nothing holds up its own wires only.
//!
//! ```text
//!  credit = what the Mixer said last that the port may have beyond what waits on the stream
//!  in use = reserved by who hands over  +  in the outbox  +  settled since the Mixer said it
//! ```
//!
//! # Invariants
//!
//! - A message is handed to the outbox only while its port has credit: what is in the outbox has room on the stream, so the outbox
//!   needs no order but its own, and nothing of one port waits behind another's.
//! - What the Mixer says is taken once, in its order: an older word is not.
//! - A port begins with what its scenario says that it may have. One that the Mixer says nothing of has no bound here.
//! - What is larger than its port's credit leaves alone, if there is any credit.
//!
//! # Not here
//!
//! How much a port may have: that is the Mixer's. Room in the outbox ([`crate::spool`]).

use std::collections::{BTreeMap, VecDeque};

use model::control::{PortCredit, PortCredits};
use model::{Timestamp, Token};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::spool::RecordingError;

/// Entries of a port that count as one: settled with the last of them.
const CHUNK: u64 = 16 << 10;

/// A port that messages leave by.
pub(crate) type PortKey = (Token, &'static str);

/// What a whole asks for: bytes of messages, in all and of each port.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct CreditDemand {
    pub(crate) bytes: u64,
    pub(crate) ports: BTreeMap<PortKey, u64>,
}

impl CreditDemand {
    pub(super) fn add(&mut self, (gear, port): (&Token, &'static str), bytes: u64) {
        self.bytes += bytes;
        // A whole is of one gear, mostly by one port.
        match self.ports.iter_mut().find(|(of, _)| of.1 == port && of.0 == *gear) {
            Some((_, sum)) => *sum += bytes,
            None => drop(self.ports.insert((gear.clone(), port), bytes)),
        }
    }

    /// What two wholes ask for together.
    pub(crate) fn merge(&mut self, other: Self) {
        self.bytes += other.bytes;
        for (port, bytes) in other.ports {
            *self.ports.entry(port).or_default() += bytes;
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct CreditFlowControl {
    ports: Mutex<PortCreditTable>,
    changed: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct PortCreditTable {
    /// What the Mixer said last.
    credits: BTreeMap<Token, BTreeMap<String, u64>>,
    /// When it looked.
    at: Option<Timestamp>,
    uses: BTreeMap<PortKey, PortUsage>,
}

/// What of a port is on its way.
#[derive(Debug, Default)]
struct PortUsage {
    reserved: u64,
    /// The sequences of its entries in the outbox, and their bytes.
    entries: VecDeque<(u64, u64)>,
    waiting: u64,
    /// Settled since the Mixer said what waits.
    settled: u64,
}

impl PortUsage {
    const fn bytes(&self) -> u64 {
        self.reserved + self.waiting + self.settled
    }

    fn settle(&mut self, floor: u64) {
        while let Some((_, bytes)) = self.entries.pop_front_if(|(sequence, _)| *sequence <= floor) {
            self.waiting -= bytes;
            self.settled += bytes;
        }
    }

    fn add(&mut self, sequence: u64, bytes: u64) {
        self.waiting += bytes;
        match self.entries.back_mut() {
            Some((last, sum)) if *sum < CHUNK => (*last, *sum) = (sequence, *sum + bytes),
            _ => self.entries.push_back((sequence, bytes)),
        }
    }
}

impl PortCreditTable {
    fn allows(&self, demand: &CreditDemand) -> bool {
        demand.ports.iter().all(|((gear, port), bytes)| {
            let Some(credit) = self.credits.get(gear).and_then(|of_gear| of_gear.get(*port)) else {
                return true;
            };
            let used = self.uses.get(&(gear.clone(), *port)).map_or(0, PortUsage::bytes);
            used.saturating_add(*bytes) <= *credit || (used == 0 && *credit > 0)
        })
    }

    /// Changes what is reserved.
    fn reserve(&mut self, demand: &CreditDemand, change: impl Fn(u64, u64) -> u64) {
        for (port, bytes) in &demand.ports {
            let of_port = self.uses.entry(port.clone()).or_default();
            of_port.reserved = change(of_port.reserved, *bytes);
        }
    }
}

impl CreditFlowControl {
    pub(super) fn new() -> Self {
        Self {
            ports: Mutex::default(),
            changed: watch::Sender::new(()),
        }
    }

    /// What ports have until the Mixer says more.
    pub(super) fn set_initial(&self, credits: &[PortCredit]) {
        let mut ports = self.ports.lock();
        for credit in credits {
            let of_gear = ports.credits.entry(credit.gear.clone()).or_default();
            of_gear.entry(credit.port.to_string()).or_insert(credit.bytes);
        }
    }

    /// What the Mixer says: of the ports that are not named, nothing. Entries up to the floor are settled.
    pub(super) fn set(&self, credits: PortCredits, floor: u64) {
        let mut ports = self.ports.lock();
        if ports.at.is_some_and(|at| credits.at <= at) {
            return;
        }
        ports.at = Some(credits.at);
        ports.credits.clear();
        for credit in credits.ports {
            let of_gear = ports.credits.entry(credit.gear).or_default();
            of_gear.insert(credit.port.to_string(), credit.bytes);
        }
        ports.uses.retain(|_, of_port| {
            of_port.settle(floor);
            of_port.settled = 0;
            of_port.bytes() > 0
        });
        drop(ports);
        self.changed.send_replace(());
    }

    /// Sequences restart: the Rack is another one.
    pub(super) fn forget_entries(&self) {
        let mut ports = self.ports.lock();
        for of_port in ports.uses.values_mut() {
            (of_port.waiting, of_port.settled) = (0, 0);
            of_port.entries.clear();
        }
    }

    /// Waits until every port has credit for what is asked of it.
    pub(super) async fn reserve(&self, demand: CreditDemand) -> Result<CreditReservation<'_>, RecordingError> {
        let mut changed = self.changed.subscribe();
        while !self.take(&demand) {
            changed.changed().await.map_err(|_| RecordingError::Closed)?;
        }
        Ok(CreditReservation { credits: self, demand })
    }

    /// The same without a wait; none if it had to wait.
    pub(super) fn reserve_now(&self, demand: CreditDemand) -> Option<CreditReservation<'_>> {
        self.take(&demand).then(|| CreditReservation { credits: self, demand })
    }

    fn take(&self, demand: &CreditDemand) -> bool {
        let mut ports = self.ports.lock();
        let is_allowed = ports.allows(demand);
        if is_allowed {
            ports.reserve(demand, |reserved, bytes| reserved + bytes);
        }
        is_allowed
    }

    /// An entry of the outbox with messages of a port. The floor says which are settled.
    pub(super) fn record_entry(&self, port: PortKey, bytes: u64, (sequence, floor): (u64, u64)) {
        let mut ports = self.ports.lock();
        let of_port = ports.uses.entry(port).or_default();
        of_port.settle(floor);
        of_port.add(sequence, bytes);
    }

    /// Whether a demand of a port would wait.
    #[cfg(test)]
    fn holds(&self, gear: &str, bytes: u64) -> bool {
        let ports = BTreeMap::from([((gear.parse().unwrap(), "out"), bytes)]);
        !self.ports.lock().allows(&CreditDemand { bytes, ports })
    }
}

/// Credit that was taken; given back unless it is used.
#[derive(Debug)]
pub(super) struct CreditReservation<'a> {
    credits: &'a CreditFlowControl,
    demand: CreditDemand,
}

impl Drop for CreditReservation<'_> {
    fn drop(&mut self) {
        if !self.demand.ports.is_empty() {
            self.credits.ports.lock().reserve(&self.demand, u64::saturating_sub);
            self.credits.changed.send_replace(());
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use futures::FutureExt as _;

    use super::*;

    fn port(gear: &str) -> PortKey {
        (gear.parse().unwrap(), "out")
    }

    fn credit(gear: &str, bytes: u64) -> PortCredit {
        PortCredit {
            gear: gear.parse().unwrap(),
            port: "out".parse().unwrap(),
            bytes,
        }
    }

    /// What the Mixer says at a moment.
    fn said(at: i64, ports: Vec<PortCredit>) -> PortCredits {
        PortCredits {
            entity_id: model::EntityId::for_name("rack-a"),
            at: Timestamp::from_micros(at),
            ports,
        }
    }

    fn demand(gear: &str, bytes: u64) -> CreditDemand {
        CreditDemand {
            bytes,
            ports: [(port(gear), bytes)].into(),
        }
    }

    #[test]
    fn a_port_has_what_the_mixer_says_of_it_until_it_says_more_and_others_are_not_bound() {
        let credits = CreditFlowControl::new();
        assert!(!credits.holds("tail", u64::MAX), "nothing was said so far");
        credits.set_initial(&[credit("tail", 7), credit("new", 7)]);
        credits.record_entry(port("new"), 5, (1, 0));
        assert!(
            credits.holds("new", 3) && !credits.holds("new", 2),
            "as its scenario says"
        );
        credits.forget_entries();
        credits.set(said(1, vec![credit("tail", 100)]), 0);
        credits.set_initial(&[credit("tail", 7)]);
        let taken = credits.reserve(demand("tail", 60)).now_or_never().unwrap().unwrap();
        assert!(credits.holds("tail", 41) && !credits.holds("tail", 40) && !credits.holds("other", 1_000));
        drop(taken);
        assert!(!credits.holds("tail", 100), "given back");
        credits.record_entry(port("tail"), 60, (1, 0));
        credits.record_entry(port("tail"), 30, (2, 0));
        assert!(credits.holds("tail", 11));
        // Settled: the Mixer has not said so far whether it waits on the stream.
        credits.record_entry(port("tail"), 5, (3, 2));
        assert!(credits.holds("tail", 6));
        credits.set(said(2, vec![credit("tail", 100)]), 2);
        assert!(credits.holds("tail", 96) && !credits.holds("tail", 95));
        credits.set(said(1, vec![credit("tail", 0)]), 2);
        assert!(!credits.holds("tail", 95), "an older word");
        credits.set(said(3, Vec::new()), 2);
        assert!(!credits.holds("tail", 1_000));
    }

    #[test]
    fn what_is_larger_than_the_credit_leaves_alone_and_without_credit_nothing_leaves() {
        let credits = CreditFlowControl::new();
        credits.set(said(4, vec![credit("tail", 10), credit("held", 0)]), 0);
        assert!(!credits.holds("tail", 5_000) && credits.holds("held", 1));
        credits.record_entry(port("tail"), 1, (1, 0));
        assert!(credits.holds("tail", 5_000));
    }

    #[tokio::test]
    async fn a_blocked_sender_resumes_with_the_next_credit() {
        let credits = CreditFlowControl::new();
        credits.set(said(5, vec![credit("tail", 0)]), 0);
        let waits = credits.reserve(demand("tail", 5));
        tokio::pin!(waits);
        assert!(futures::poll!(&mut waits).is_pending());
        credits.set(said(6, vec![credit("tail", 5)]), 0);
        assert!(futures::poll!(&mut waits).is_ready());
    }
}
