//! Flow control: looks at the stream of business messages, tells Racks what their ports may send, and clears what everybody has and what
//! is too old.
//!
//! # Invariants
//!
//! - A receiver that is away or slow costs its own wires only: what waits for it is bounded ([`super::backlog`]), and Racks send no more
//!   for it than there is room.
//! - A Rack hears how much is left at the first look after an eighth of it was archived, and with each heartbeat.
//! - A port is never without a bound because its wire is new, or the Mixer: its Rack has one with the scenario, which waits for the first
//!   look, and hears nothing that leaves it out.
//! - A bus that cannot be asked changes nothing: what was said last holds.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_nats::jetstream::consumer::Info;
use async_nats::jetstream::stream::Stream;
use chassis::bus::BusState;
use futures::TryStreamExt as _;
use ingest::{IngestStats, SyncBus, TrafficVolume};
use model::control::{PortCredit, PortCredits, RackState};
use model::subject::RackCommand;
use model::{EntityId, SigningContext, Timestamp, Token, subject};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::backlog::{SharedStream, VolumeHistory, WireBacklog, credits, set_limits};
use super::expiry::StreamExpiry;
use super::overflow::{self, OverflowRequest, OverflowResult, SequenceHistory};
use super::{stream_trimmer, text};
use crate::bus_server::MixerBus;
use crate::cluster::Cluster;
use crate::command_clock::CommandClock;
use crate::registry::{ClusterRegistry, RackRow, WireRow};

/// How often the stream is looked at while Racks use what they may send, or much of it waits.
const BUSY_INTERVAL: Duration = Duration::from_millis(500);
/// And else.
const IDLE_INTERVAL: Duration = Duration::from_secs(2);
/// The interval is so many times what looking takes, up to [`LONGEST_INTERVAL`].
const DUTY: u32 = 50;
/// The same while much waits: what everybody has must leave before it holds senders up.
const TIGHT_DUTY: u32 = 5;
/// The longest interval.
const LONGEST_INTERVAL: Duration = Duration::from_secs(5);
/// How long a Rack's first part of a scenario waits for the first look.
const FIRST_LOOK: Duration = Duration::from_secs(10);
/// A Rack hears again when it may have used this part of what it was told.
const USED_PART: u64 = 8;

/// See the module.
pub(crate) struct FlowControl {
    bus: MixerBus,
    stream: String,
    registry: Arc<ClusterRegistry>,
    command_clock: Arc<CommandClock>,
    cluster: Arc<Cluster>,
    /// What was archived; none where nothing is.
    archived: Option<Arc<IngestStats>>,
    /// None where the bus syncs before it acknowledges, or is not ours.
    sync: Option<SyncBus>,
    seen: Mutex<FlowSnapshot>,
    /// A wire began that was not there at the last look.
    changed: Notify,
    /// Whether there was a look.
    looked: watch::Sender<bool>,
    /// What overflowed, by the names of wires.
    overflowed: Mutex<HashMap<String, WireOverflow>>,
}

/// As of the last look.
#[derive(Debug, Default)]
struct FlowSnapshot {
    /// By their names.
    wires: BTreeMap<String, WireBacklog>,
    /// What is shared; none before the first look, and where the stream has no bound.
    shared: Option<SharedStream>,
    /// When it was; none before the first.
    at: Option<Timestamp>,
    /// What each Rack may send.
    credits: BTreeMap<Token, Vec<PortCredit>>,
    /// How often wires began that were not there.
    begun: u64,
    /// Those of them that it is after.
    known: u64,
}

/// What a Rack was told last, and what had come by each port then.
type SentCredits = HashMap<Token, (Vec<PortCredit>, Vec<u64>)>;

/// What one look at the stream finds.
struct StreamInspection {
    stream: Stream,
    wires: BTreeMap<String, WireBacklog>,
    shared: Option<SharedStream>,
    /// What keeps the stream full, for an operator.
    held: Option<String>,
    /// What is to leave wires as dead letters.
    overflowing: Vec<OverflowRequest>,
}

/// What was found by earlier looks.
#[derive(Debug, Default)]
struct InspectionHistory {
    volumes: VolumeHistory,
    sequences: SequenceHistory,
}

/// What is to leave wires, as of a look that began then.
type OverflowRequests = (Instant, Vec<OverflowRequest>, Option<Stream>);

/// What overflowed of a wire so far.
#[derive(Debug, Default, Clone, Copy)]
struct WireOverflow {
    /// Messages that became dead letters.
    letters: u64,
    /// The first message that was seen to be too young.
    young: u64,
    /// When it moved last.
    ended: Option<Instant>,
}

impl std::fmt::Debug for FlowControl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FlowControl")
            .field("stream", &self.stream)
            .finish_non_exhaustive()
    }
}

impl FlowControl {
    pub(crate) fn new(
        (bus, stream): (MixerBus, String),
        (registry, command_clock): (Arc<ClusterRegistry>, Arc<CommandClock>),
        cluster: Arc<Cluster>,
        (archived, sync): (Option<Arc<IngestStats>>, Option<SyncBus>),
    ) -> Self {
        Self {
            bus,
            stream,
            registry,
            command_clock,
            cluster,
            archived,
            sync,
            seen: Mutex::default(),
            changed: Notify::new(),
            looked: watch::Sender::new(false),
            overflowed: Mutex::default(),
        }
    }

    /// The wires as of the last look, those that hold the most first.
    pub(crate) fn wires(&self) -> Vec<WireBacklog> {
        let mut wires: Vec<WireBacklog> = self.seen().wires.values().cloned().collect();
        wires.sort_by(|one, other| (other.waiting_bytes, &one.wire).cmp(&(one.waiting_bytes, &other.wire)));
        wires
    }

    /// What the ports of a Rack may have on their way; none while that is not known of every port.
    pub(crate) fn credits(&self, entity_id: EntityId, rack: &Token) -> Option<PortCredits> {
        let seen = self.seen();
        let ports = seen.credits.get(rack).filter(|_| seen.known == seen.begun)?.clone();
        Some(PortCredits {
            entity_id,
            at: seen.at?,
            ports,
        })
    }

    /// What the ports of a Rack begin with, where wires may have begun since the last look.
    pub(super) async fn first_credits(&self, rack: &Token) -> Result<Vec<PortCredit>, String> {
        let mut looked = self.looked.subscribe();
        let looked = tokio::time::timeout(FIRST_LOOK, looked.wait_for(|looked| *looked)).await;
        looked.map_err(text)?.map_err(text)?;
        let rows = self.registry.wires().map_err(text)?;
        let mut seen = self.seen();
        let mut all = self.backlogs(&rows, |name, _| {
            seen.wires.get(name).map_or((Some(0), 0, 0), WireBacklog::waiting)
        });
        let is_new = |(name, wire): (&String, &WireBacklog)| {
            !wire.is_paused && seen.wires.get(name).is_none_or(|seen| seen.is_paused)
        };
        if all.iter().any(is_new) {
            seen.begun += 1;
            self.changed.notify_one();
        }
        let (fleet, shared) = (seen.credits.len() + 1, seen.shared);
        drop(seen);
        set_limits(all.values_mut(), shared);
        let mut credits = credits(&all, &BTreeSet::from([rack.clone()]), fleet, |_| false);
        Ok(credits.remove(rack).unwrap_or_default())
    }

    fn seen(&self) -> MutexGuard<'_, FlowSnapshot> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks until stopped, and lets wires overflow meanwhile.
    pub(crate) async fn run(self: Arc<Self>, expiry: StreamExpiry, stop: CancellationToken) {
        let (requests, due) = watch::channel((Instant::now(), Vec::new(), None));
        // A wire that is left half moved is as after a crash.
        tokio::select! {
            () = self.keep_looking(expiry, requests, stop) => {}
            () = self.let_overflow(due) => {}
        }
    }

    /// Makes dead letters of what is to leave wires.
    async fn let_overflow(&self, mut due: watch::Receiver<OverflowRequests>) {
        while due.changed().await.is_ok() {
            let (at, requests, stream) = due.borrow_and_update().clone();
            let Some(stream) = stream else { continue };
            for request in &requests {
                let name = request.name();
                let before = self.overflowed().get(name).copied().unwrap_or_default();
                // A look from before it had moved.
                if before.ended.is_some_and(|ended| at <= ended) {
                    continue;
                }
                let mut done = OverflowResult::default();
                let parts = (&self.registry, &*self.cluster);
                let moved = request
                    .carry_out((&self.bus, &stream), parts, self.sync.as_ref(), &mut done)
                    .await;
                if let Err(reason) = moved {
                    tracing::warn!(
                        wire = name,
                        reason,
                        "cannot drop the overflow of a wire at the moment; retrying"
                    );
                }
                let OverflowResult { letters, young } = done;
                if letters > 0 {
                    tracing::warn!(
                        wire = name,
                        letters,
                        "the oldest messages of a wire became dead letters"
                    );
                }
                let after = WireOverflow {
                    letters: before.letters + letters,
                    young: young.unwrap_or(before.young),
                    ended: Some(Instant::now()),
                };
                self.overflowed().insert(name.to_owned(), after);
            }
        }
    }

    fn overflowed(&self) -> MutexGuard<'_, HashMap<String, WireOverflow>> {
        self.overflowed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks until stopped.
    async fn keep_looking(
        &self,
        mut expiry: StreamExpiry,
        requests: watch::Sender<OverflowRequests>,
        stop: CancellationToken,
    ) {
        let (mut history, mut told) = (InspectionHistory::default(), SentCredits::new());
        let (mut warned, mut wait) = (None, Duration::ZERO);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(wait) => {}
                () = self.changed.notified() => {}
            }
            wait = IDLE_INTERVAL;
            if *self.bus.state().borrow() != BusState::Connected {
                continue;
            }
            let (began, known) = (Instant::now(), self.seen().begun);
            let mut found = match self.inspect_stream(&mut history).await {
                Ok(found) => found,
                Err(reason) => {
                    tracing::debug!(stream = self.stream, reason, "cannot inspect the stream at the moment");
                    continue;
                }
            };
            let due = std::mem::take(&mut found.overflowing);
            requests.send_replace((began, due, Some(found.stream.clone())));
            let has_much = |wire: &WireBacklog| wire.waiting_bytes > wire.limit_bytes.unwrap_or(u64::MAX) / 4;
            let has_room = |shared: SharedStream| shared.bytes < shared.max_bytes / 2;
            let is_tight = found.wires.values().any(has_much) || !found.shared.is_none_or(has_room);
            let tells = self.tell(&found, known, &mut told).await;
            if let Err(reason) = &tells {
                tracing::warn!(reason, "could not send credit to Racks; retrying");
            }
            self.expire(found, &mut expiry, &mut warned).await;
            let is_busy = is_tight || tells.unwrap_or(0) > 0;
            wait = if is_busy { BUSY_INTERVAL } else { IDLE_INTERVAL };
            let duty = if is_tight { TIGHT_DUTY } else { DUTY };
            wait = wait.max((began.elapsed() * duty).min(LONGEST_INTERVAL));
        }
    }

    async fn inspect_stream(&self, history: &mut InspectionHistory) -> Result<StreamInspection, String> {
        let marks = &mut history.volumes;
        let stream = self.bus.jetstream().get_stream(&self.stream).await.map_err(text)?;
        let info = stream.cached_info();
        let consumers: Vec<Info> = stream.consumers().try_collect().await.map_err(text)?;
        // Asked after the consumers are: a wire that is in neither is new or resumes, and has its first messages yet to come.
        let rows = self.registry.wires().map_err(text)?;
        let mean = info.state.bytes.checked_div(info.state.messages).unwrap_or(0);
        let infos: HashMap<&str, &Info> = consumers.iter().map(|info| (info.name.as_str(), info)).collect();
        let filters: BTreeSet<&str> = rows.values().map(|row| row.filter.as_str()).collect();
        let volumes: HashMap<&str, TrafficVolume> =
            filters.iter().map(|filter| (*filter, self.volume(filter))).collect();
        let before: BTreeMap<String, u64> = {
            let seen = self.seen();
            let bytes = |(name, wire): (&String, &WireBacklog)| (name.clone(), wire.waiting_bytes);
            seen.wires.iter().map(bytes).collect()
        };
        marks.retain(|wire| rows.contains_key(wire));
        let mut wires = self.backlogs(&rows, |name, row| {
            let Some(count) = infos.get(row.consumer(name)).copied().map(waiting) else {
                // Its consumer is lost, and its messages are kept for the next one.
                return (None, before.get(name).copied().unwrap_or(0), 0);
            };
            let volume = volumes.get(row.filter.as_str()).copied().unwrap_or_default();
            let (known, estimated) = marks.bytes(name, count, volume, mean);
            let waiting = known + estimated;
            (
                Some(count),
                waiting,
                if self.archived.is_some() { known } else { waiting },
            )
        });
        let max = u64::try_from(info.config.max_bytes).ok().filter(|max| *max > 0);
        let (mut bytes, mut held) = (info.state.bytes, None);
        if let Some(max) = max {
            // First: what everybody has takes nothing away from what wires may have.
            (bytes, held) = stream_trimmer::trim(&stream, max, &consumers, &rows).await?;
        }
        let is_foreign = |info: &&Info| {
            info.name != stream_trimmer::ARCHIVE
                && !info.name.starts_with(super::assignment::WIRE)
                && !overflow::is_reader(info)
        };
        let foreign = consumers.iter().filter(is_foreign).map(waiting).max().unwrap_or(0);
        let shared = max.map(|max_bytes| SharedStream {
            max_bytes,
            bytes,
            foreign: foreign * mean,
        });
        set_limits(wires.values_mut(), shared);
        let life = WireRow::life(info.created.unix_timestamp_nanos());
        history.sequences.record(life, Instant::now(), info.state.last_sequence);
        let overflowed = {
            let mut overflowed = self.overflowed();
            overflowed.retain(|name, _| rows.contains_key(name));
            overflowed.clone()
        };
        let request = |(name, wire): (&String, &WireBacklog)| {
            let row = rows.get(name)?;
            let young = overflowed.get(name).map_or(0, |overflowed| overflowed.young);
            // Of a stream before this one.
            let young = if young > info.state.last_sequence { 0 } else { young };
            let consumer = infos.get(row.consumer(name))?;
            OverflowRequest::of((name, row), wire, consumer, (&history.sequences, young))
        };
        Ok(StreamInspection {
            overflowing: wires.iter().filter_map(request).collect(),
            wires,
            shared,
            held,
            stream: stream.clone(),
        })
    }

    /// Removes what is too old; an operator hears of what cannot go, and of what keeps the stream full.
    async fn expire(&self, found: StreamInspection, expiry: &mut StreamExpiry, warned: &mut Option<String>) {
        let expired = expiry.expire(&self.registry, &found.stream).await;
        let refused = expired.err();
        let news = refused.map(|reason| format!("cannot remove expired messages from the stream: {reason}"));
        let news = news.or(found.held);
        if let Some(text) = news.as_ref().filter(|text| warned.as_ref() != Some(text)) {
            tracing::warn!(stream = self.stream, "{text}");
        }
        *warned = news;
    }

    /// The wires, by their names; how many bus messages wait for one, and their bytes, is asked.
    fn backlogs(
        &self,
        rows: &BTreeMap<String, WireRow>,
        mut waiting: impl FnMut(&String, &WireRow) -> (Option<u64>, u64, u64),
    ) -> BTreeMap<String, WireBacklog> {
        let wires = rows.iter().filter(|(_, row)| !row.ends);
        let overflowed = self.overflowed();
        let backlog = |(name, row): (&String, &WireRow)| {
            let of_none = (None, 0, 0);
            let (waiting_batches, waiting_bytes, known_bytes) =
                if row.is_paused { of_none } else { waiting(name, row) };
            let wire = WireBacklog {
                wire: row.description.clone(),
                rack: row.rack.clone(),
                filter: row.filter.clone(),
                is_paused: row.is_paused,
                waiting_batches,
                waiting_bytes,
                known_bytes,
                limit_bytes: None,
                credit: 0,
                is_held: false,
                overflow: row.bounds.overflow,
                max_bytes: row.bounds.max_bytes,
                dropped_messages: overflowed.get(name).map_or(0, |overflowed| overflowed.letters),
            };
            (name.clone(), wire)
        };
        wires.map(backlog).collect()
    }

    /// What came by the subjects of a wire.
    fn volume(&self, filter: &str) -> TrafficVolume {
        let Some(archived) = &self.archived else {
            return TrafficVolume::default();
        };
        if filter.contains('*') {
            archived.volumes.sum(|subject| stream_trimmer::matches(filter, subject))
        } else {
            archived.volumes.of(filter)
        }
    }

    /// Tells Racks what they may send, where they would not know it; how many.
    async fn tell(&self, found: &StreamInspection, known: u64, told: &mut SentCredits) -> Result<usize, String> {
        let before = self.seen().at;
        let at = match before {
            // Later than that of any Mixer before, and then one by one: not each is a write.
            Some(at) => at.plus(Duration::from_micros(1)),
            None => self.command_clock.next().await.map_err(text)?,
        };
        let is_active = |row: &RackRow| row.state == RackState::Active;
        let racks = self.registry.racks().map_err(text)?.into_iter().filter(is_active);
        let ids: HashMap<Token, _> = racks.map(|row| (row.name, row.entity_id)).collect();
        let names: BTreeSet<Token> = ids.keys().cloned().collect();
        let mut all = credits(&found.wires, &names, names.len(), |subject| {
            self.volume(subject).messages > 0
        });
        for rack in &names {
            all.entry(rack.clone()).or_default();
        }
        let is_stale = {
            let mut seen = self.seen();
            *seen = FlowSnapshot {
                wires: found.wires.clone(),
                shared: found.shared,
                at: Some(at),
                credits: all.clone(),
                begun: seen.begun,
                known,
            };
            seen.known != seen.begun
        };
        self.looked.send_replace(true);
        if is_stale {
            // Of ports that began meanwhile this says nothing: the next look does.
            return Ok(0);
        }
        let mut count = 0;
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
            let body = PortCredits { entity_id, at, ports };
            let body = self.cluster.sign(&body, SigningContext::Command).map_err(text)?;
            let to = subject::rack(&entity_id, RackCommand::Credits);
            self.bus.client().publish(to, body.into()).await.map_err(text)?;
            count += 1;
        }
        Ok(count)
    }
}

/// Whether a Rack has other ports than it was told of, may have much more or less by them, or may have used much of it.
fn is_news((before, had): &(Vec<PortCredit>, Vec<u64>), ports: &[PortCredit], came: &[u64]) -> bool {
    let is_other = |(before, now): (&PortCredit, &PortCredit)| {
        let differs = before.bytes.abs_diff(now.bytes) > before.bytes.min(now.bytes) / USED_PART;
        (&before.gear, &before.port) != (&now.gear, &now.port) || differs
    };
    let is_used = |((had, came), port): ((&u64, &u64), &PortCredit)| came.saturating_sub(*had) > port.bytes / USED_PART;
    before.len() != ports.len()
        || before.iter().zip(ports).any(is_other)
        || had.iter().zip(came).zip(ports).any(is_used)
}

/// The bus messages that wait for a consumer.
pub(super) fn waiting(info: &Info) -> u64 {
    info.num_pending + info.num_ack_pending as u64
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
