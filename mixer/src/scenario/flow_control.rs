//! Flow control: looks at the stream of business messages, tells Racks what their ports may send, and clears what everybody has and what
//! is too old.
//!
//! # Invariants
//!
//! - A receiver that is away or slow costs its own wires only: what waits for it is bounded ([`super::backlog`]), and Racks send no more
//!   for it than there is room.
//! - A Rack that sends hears how much is left before it has used an eighth of it, and with each heartbeat.
//! - A port is never without a bound because its wire is new: its Rack has one with the scenario, and hears nothing that leaves it out.
//! - A bus that cannot be asked changes nothing: what was said last holds.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_nats::jetstream::consumer::Info;
use chassis::bus::BusState;
use futures::TryStreamExt as _;
use ingest::{Stats, Volume};
use model::control::{PortCredit, PortCredits, RackState};
use model::subject::RackCommand;
use model::{Context, Timestamp, Token, subject};
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::backlog::{Marks, SharedStream, WireBacklog, credits, set_limits};
use super::spent::{self, Held};
use super::text;
use crate::bus_server::Bus;
use crate::cluster::Cluster;
use crate::registry::{RackRow, Registry, RegistryError, WireRow};

/// How often the stream is looked at while messages come or wait.
const BUSY: Duration = Duration::from_millis(500);
/// And else.
const IDLE: Duration = Duration::from_secs(2);
/// Looking takes at most this part of the time.
const PART: u32 = 20;
/// A Rack hears again when it may have used this part of what it was told.
const USED: u64 = 8;

/// See the module.
#[derive(Debug)]
pub(crate) struct FlowControl {
    bus: Bus,
    stream: String,
    registry: Arc<Registry>,
    cluster: Arc<Cluster>,
    /// What was archived; none where nothing is.
    archived: Option<Arc<Stats>>,
    /// Messages of before this are too old.
    oldest: Oldest,
    seen: Mutex<Seen>,
    /// A wire began that was not there at the last look.
    changed: Notify,
}

/// As of the last look.
#[derive(Debug, Default)]
struct Seen {
    /// By their names.
    wires: BTreeMap<String, WireBacklog>,
    /// What is shared.
    shared: Option<SharedStream>,
    racks: Vec<Token>,
    credits: BTreeMap<Token, Vec<PortCredit>>,
    /// How often wires began that were not there.
    begun: u64,
    /// Those of them that it is after.
    known: u64,
}

impl Seen {
    /// Whether a wire began since: what it says of ports is not all.
    const fn is_stale(&self) -> bool {
        self.known != self.begun
    }
}

/// The time before which messages are too old, by a clock that has run evenly; none while there is none.
pub(crate) struct Oldest(pub(crate) Box<dyn Fn() -> Option<Timestamp> + Send + Sync>);

impl std::fmt::Debug for Oldest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Oldest")
    }
}

/// What a Rack was told last, and what had come by each port then.
type Told = HashMap<Token, (Vec<PortCredit>, Vec<u64>)>;

/// What one look at the stream finds.
struct Found {
    wires: BTreeMap<String, WireBacklog>,
    shared: Option<SharedStream>,
    held: Option<Held>,
    /// The last message of the stream.
    last: u64,
}

impl FlowControl {
    pub(crate) fn new(
        (bus, stream): (Bus, String),
        registry: Arc<Registry>,
        cluster: Arc<Cluster>,
        archived: Option<Arc<Stats>>,
        oldest: Oldest,
    ) -> Self {
        Self {
            bus,
            stream,
            registry,
            cluster,
            archived,
            oldest,
            seen: Mutex::default(),
            changed: Notify::new(),
        }
    }

    /// The wires as of the last look, those that hold the most first.
    pub(crate) fn wires(&self) -> Vec<WireBacklog> {
        let mut wires: Vec<WireBacklog> = self.seen().wires.values().cloned().collect();
        wires.sort_by(|one, other| (other.waiting_bytes, &one.wire).cmp(&(one.waiting_bytes, &other.wire)));
        wires
    }

    /// What the ports of a Rack may have on their way; none while that is not known of every port.
    pub(crate) fn credits(&self, rack: &Token) -> Option<Vec<PortCredit>> {
        let seen = self.seen();
        (!seen.is_stale()).then(|| seen.credits.get(rack).cloned().unwrap_or_default())
    }

    /// What the ports of a Rack begin with, where wires may have begun since the last look.
    pub(super) fn first_credits(&self, rack: &Token) -> Result<Vec<PortCredit>, RegistryError> {
        let rows = self.registry.wires()?;
        let mut seen = self.seen();
        let mut all = self.backlogs(&rows, |name, _| {
            seen.wires.get(name).map_or((Some(0), 0), WireBacklog::waiting)
        });
        if all
            .iter()
            .any(|(name, wire)| !wire.is_paused && seen.wires.get(name).is_none_or(|seen| seen.is_paused))
        {
            seen.begun += 1;
            self.changed.notify_one();
        }
        let Some(shared) = seen.shared else {
            return Ok(Vec::new());
        };
        set_limits(all.values_mut(), shared);
        let racks = seen.racks.iter().filter(|other| *other != rack).cloned();
        let racks: Vec<Token> = racks.chain([rack.clone()]).collect();
        let mut credits = credits(&all, &racks, |subject| self.volume(subject).messages > 0);
        Ok(credits.remove(rack).unwrap_or_default())
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks until stopped.
    pub(crate) async fn run(self: Arc<Self>, stop: CancellationToken) {
        let (mut marks, mut told, mut warned) = (Marks::default(), Told::new(), None);
        let (mut wait, mut last) = (Duration::ZERO, 0);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(wait) => {}
                () = self.changed.notified() => {}
            }
            wait = IDLE;
            if *self.bus.state().borrow() != BusState::Connected {
                continue;
            }
            let began = Instant::now();
            let known = self.seen().begun;
            match self.look(&mut marks).await {
                Ok(found) => {
                    let is_busy = found.last != last || found.wires.values().any(|wire| wire.waiting_batches > Some(0));
                    wait = if is_busy { BUSY } else { IDLE }.max(began.elapsed() * PART);
                    last = found.last;
                    warn_once(&self.stream, found.held.as_ref(), &mut warned);
                    if let Err(reason) = self.tell(found, known, &mut told).await {
                        tracing::warn!(reason, "Racks were not told what they may send; trying again");
                    }
                }
                Err(reason) => tracing::debug!(stream = self.stream, reason, "the stream cannot be looked at just now"),
            }
        }
    }

    async fn look(&self, marks: &mut Marks) -> Result<Found, String> {
        let stream = self.bus.jetstream().get_stream(&self.stream).await.map_err(text)?;
        if let Some(oldest) = (self.oldest.0)() {
            spent::expire(&stream, oldest).await?;
        }
        let info = stream.cached_info();
        let consumers: Vec<Info> = stream.consumers().try_collect().await.map_err(text)?;
        // Asked after the consumers are: a wire that is in neither is a new one and wants nothing of this.
        let rows = self.registry.wires().map_err(text)?;
        let mean = info.state.bytes.checked_div(info.state.messages).unwrap_or(0);
        let infos: HashMap<&str, &Info> = consumers.iter().map(|info| (info.name.as_str(), info)).collect();
        marks.retain(|wire| rows.contains_key(wire));
        let mut wires = self.backlogs(&rows, |name, row| {
            let count = infos.get(row.consumer(name)).copied().map(waiting);
            (
                count,
                marks.bytes(name, count.unwrap_or(0), self.volume(&row.filter), mean),
            )
        });
        let (mut shared, mut held) = (None, None);
        if let Some(max) = u64::try_from(info.config.max_bytes).ok().filter(|max| *max > 0) {
            let is_foreign = |info: &&Info| info.name != spent::ARCHIVE && !info.name.starts_with(super::part::WIRE);
            let foreign = consumers.iter().filter(is_foreign).map(waiting).max().unwrap_or(0);
            let of_all = *shared.insert(SharedStream {
                bytes: max,
                foreign: foreign * mean,
            });
            set_limits(wires.values_mut(), of_all);
            held = spent::clear(&stream, max, &consumers, rows).await?;
        }
        let last = info.state.last_sequence;
        Ok(Found {
            wires,
            shared,
            held,
            last,
        })
    }

    /// The wires, by their names; how many bus messages wait for one, and their bytes, is asked.
    fn backlogs(
        &self,
        rows: &BTreeMap<String, WireRow>,
        mut waiting: impl FnMut(&String, &WireRow) -> (Option<u64>, u64),
    ) -> BTreeMap<String, WireBacklog> {
        let wires = rows.iter().filter(|(_, row)| !row.ends);
        let backlog = |(name, row): (&String, &WireRow)| {
            let (waiting_batches, waiting_bytes) = if row.is_paused { (None, 0) } else { waiting(name, row) };
            let wire = WireBacklog {
                wire: row.description.clone(),
                rack: row.rack.clone(),
                filter: row.filter.clone(),
                is_paused: row.is_paused,
                waiting_batches,
                waiting_bytes,
                limit_bytes: None,
                credit: 0,
                is_held: false,
            };
            (name.clone(), wire)
        };
        wires.map(backlog).collect()
    }

    /// What came by the subjects of a wire.
    fn volume(&self, filter: &str) -> Volume {
        let Some(archived) = &self.archived else {
            return Volume::default();
        };
        if filter.contains('*') {
            archived.volumes.sum(|subject| spent::matches(filter, subject))
        } else {
            archived.volumes.of(filter)
        }
    }

    /// Tells Racks what they may send, where they would not know it.
    async fn tell(&self, found: Found, known: u64, told: &mut Told) -> Result<(), String> {
        let is_active = |row: &RackRow| row.state == RackState::Active;
        let racks = self.registry.racks().map_err(text)?.into_iter().filter(is_active);
        let ids: HashMap<Token, _> = racks.map(|row| (row.name, row.entity_id)).collect();
        let names: Vec<Token> = ids.keys().cloned().collect();
        let all = credits(&found.wires, &names, |subject| self.volume(subject).messages > 0);
        let is_stale = {
            let mut seen = self.seen();
            *seen = Seen {
                wires: found.wires,
                shared: found.shared,
                racks: names,
                credits: all.clone(),
                begun: seen.begun,
                known,
            };
            seen.is_stale()
        };
        if is_stale {
            // Of ports that began meanwhile this says nothing: the next look does.
            return Ok(());
        }
        told.retain(|rack, _| ids.contains_key(rack));
        for (rack, entity_id) in ids {
            let ports = all.get(&rack).cloned().unwrap_or_default();
            let came = |port: &PortCredit| {
                self.volume(&format!("flux.msg.{rack}.{}.{}", port.gear, port.port))
                    .bytes
            };
            let came: Vec<u64> = ports.iter().map(came).collect();
            let before = told.entry(rack).or_default();
            if !is_news(before, &ports, &came) {
                continue;
            }
            *before = (ports.clone(), came);
            let body = PortCredits { entity_id, ports };
            let body = self.cluster.sign(&body, Context::Command).map_err(text)?;
            let to = subject::rack(&entity_id, RackCommand::Credits);
            self.bus.client().publish(to, body.into()).await.map_err(text)?;
        }
        Ok(())
    }
}

/// Whether a Rack has other ports than it was told of, may have much more or less by them, or may have used much of it.
fn is_news((before, had): &(Vec<PortCredit>, Vec<u64>), ports: &[PortCredit], came: &[u64]) -> bool {
    let is_other = |(before, now): (&PortCredit, &PortCredit)| {
        let differs = before.bytes.abs_diff(now.bytes) > before.bytes.min(now.bytes) / USED;
        (&before.gear, &before.port) != (&now.gear, &now.port) || differs
    };
    let is_used = |((had, came), port): ((&u64, &u64), &PortCredit)| came.saturating_sub(*had) > port.bytes / USED;
    before.len() != ports.len()
        || before.iter().zip(ports).any(is_other)
        || had.iter().zip(came).zip(ports).any(is_used)
}

/// The bus messages that wait for a consumer.
fn waiting(info: &Info) -> u64 {
    info.num_pending + info.num_ack_pending as u64
}

/// Tells an operator of what keeps the stream full, once until that is another one.
fn warn_once(stream: &str, held: Option<&Held>, warned: &mut Option<String>) {
    if let Some(held) = held.filter(|held| warned.as_ref() != Some(&held.by)) {
        tracing::warn!(
            stream, consumer = held.by, wire = held.wire, waiting = held.waiting, bytes = %held.bytes, of = %held.of,
            "the stream fills up with what a consumer has not taken; full, it makes Racks wait: start what reads there, or raise snake.max_store_mb. A wire keeps its messages as long as the active scenario has it, however long its Rack is away"
        );
    }
    *warned = held.map(|held| held.by.clone());
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn port(gear: &str, bytes: u64) -> PortCredit {
        PortCredit {
            gear: gear.parse().unwrap(),
            port: "out".parse().unwrap(),
            bytes,
        }
    }

    #[test]
    fn a_rack_hears_of_other_ports_of_much_more_or_less_and_when_it_may_have_used_much() {
        let before = (vec![port("tail", 800)], vec![5_000]);
        for (ports, came, is_wanted) in [
            (vec![port("tail", 800)], vec![5_000], false),
            (vec![port("tail", 800)], vec![5_100], false),
            (vec![port("tail", 800)], vec![5_101], true),
            (vec![port("tail", 720)], vec![5_000], false),
            (vec![port("tail", 700)], vec![5_000], true),
            (vec![port("tail", 901)], vec![5_000], true),
            (vec![port("tail", 0)], vec![5_000], true),
            (vec![port("other", 800)], vec![5_000], true),
            (vec![port("tail", 800), port("z", 1)], vec![5_000, 0], true),
            (vec![], vec![], true),
        ] {
            assert_eq!(is_news(&before, &ports, &came), is_wanted, "{ports:?} {came:?}");
        }
        assert!(!is_news(&(vec![port("tail", 0)], vec![7]), &[port("tail", 0)], &[7]));
    }
}
