//! The dead-letter queue: the rows of `dead_letters`, the state of each letter, and their replay to gears.
//!
//! ```text
//! dead_letters (rows, until rotation) ─▶ list, show
//!        replay ─▶ mark "waiting", turn n of its gear (one transaction) ─▶ Deliveries ─▶ Rack: taken up to n ─▶ mark "replayed"
//!        drop   ─▶ mark "dropped"
//! ```
//!
//! # Invariants
//!
//! - That a letter is to go back is durable before anybody hears of it, and with it the number by which its Rack knows it again:
//!   however often it is sent, by whatever run of the Mixer, the gear takes it once. A letter gets another number only where it
//!   could not be given to the gear, or is asked for again by name.
//! - A letter is *replayed* when its Rack has said that it is taken, durably; never before.
//! - A mark leaves with its letter's row.
//! - Rows are read as many at once as there is memory for in queries, and one at a time is in the form of a letter.
//! - Whoever asks reads them in its own places, and is charged for them; the queue reads for itself what it sends and counts.
//!
//! # Not here
//!
//! How a Rack takes a letter (`rack::lane`), how letters come to be (`ingest`).

mod letter;
mod metrics;
mod replayer;
mod update;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use engine::Engine;
use model::batch::row_json;
use model::dead_letter::LetterState;
use model::filter::{LetterFilter, LetterStateFilter, TimePoint, page_size};
use model::{Clock, EntityId, Entropy, LetterId, Timestamp, Token};
use query::{ListAnswer, ListQuery, QueryEngine, QueryStats};
use tokio::sync::{Notify, watch};
use uuid::Uuid;

use crate::bus_server::MixerBus;
use crate::cluster::Cluster;
use crate::events::EventPublisher;
use crate::liveness::LivenessTracker;
use crate::registry::{ClusterRegistry, LetterMark, MAX_MARKS, RegistryError};

pub use letter::{LetterDetail, LetterView};
pub use update::{LetterRefusal, LetterUpdate, LetterUpdateReport, PendingReplay};

pub(crate) use metrics::OpenLetterCounts;
pub(crate) use replayer::LetterReplayer;

use letter::DeadLetterEntry;

/// Rows that are read at once, at first and at most; their bytes say how many of them.
const CHUNK: (u32, u32) = (64, 512);
/// Bytes of rows from which on fewer are read at once.
const LARGE: usize = 4 << 20;
/// Rows that one list looks at, at most; then it gives what it has, and where to go on.
const MOST_LOOKED: usize = 20_000;
/// Letters that one request may change.
const MOST_CHANGED: usize = 10_000;

/// Why the queue says no.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DlqError {
    /// There is no such letter.
    #[error("there is no letter {0}: platform dlq list --state all shows those that are kept")]
    Unknown(LetterId),
    /// The letter cannot be what was asked for.
    #[error("letter {id}: {reason}")]
    Refused {
        /// Which.
        id: LetterId,
        /// Why not.
        reason: String,
    },
    /// More letters than one request may change.
    #[error("more than {MOST_CHANGED} letters are selected: narrow the filter (since, until, rack, gear)")]
    TooMany,
    /// No room for marks.
    #[error("{MAX_MARKS} letters are marked as replayed or dropped, the maximum: retention makes room")]
    Full,
    /// A wish that cannot be used.
    #[error("{parameter}: {reason}")]
    Wish {
        /// The part of it.
        parameter: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// The rows cannot be read.
    #[error(transparent)]
    Query(#[from] query::Error),
    /// The registry failed.
    #[error(transparent)]
    Registry(#[from] RegistryError),
}

/// Letters of a list.
#[derive(Debug)]
pub struct LetterPage {
    /// The newest first.
    pub letters: Vec<LetterView>,
    /// Where to go on; none after the last.
    pub next_cursor: Option<String>,
    /// What the last look cost.
    pub stats: QueryStats,
}

/// What the queue works with.
#[derive(Debug)]
pub(crate) struct DlqParts {
    pub(crate) querier: Arc<QueryEngine>,
    pub(crate) engine: Arc<Engine>,
    pub(crate) registry: Arc<ClusterRegistry>,
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) liveness: Arc<LivenessTracker>,
    pub(crate) bus: MixerBus,
    pub(crate) events: EventPublisher,
    pub(crate) clock: Clock,
}

/// A gear of a Rack.
type GearAddress = (EntityId, Token);

/// The queue. Used as `Arc<DeadLetterQueue>`.
#[derive(Debug)]
pub struct DeadLetterQueue {
    parts: DlqParts,
    /// What turns count within.
    turns: Uuid,
    /// The letters that wait for their gear, by turn.
    waiting: Mutex<BTreeMap<GearAddress, BTreeMap<u64, LetterId>>>,
    /// Held by who gives out turns, until they wait. Only where threads may block.
    in_order: Mutex<()>,
    /// Why a gear's letters still wait.
    late: Mutex<BTreeMap<GearAddress, String>>,
    /// Wakes who sends.
    bell: Notify,
    /// Grows with every letter that waits no more.
    settled: watch::Sender<u64>,
    open_counts: Mutex<OpenLetterCounts>,
    replayed: AtomicU64,
    dropped: AtomicU64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl DeadLetterQueue {
    /// Opens the queue: what waits goes on waiting.
    pub(crate) fn open(parts: DlqParts, entropy: &Entropy) -> Result<Arc<Self>, RegistryError> {
        let fresh = uuid::Builder::from_random_bytes(entropy.bytes()).into_uuid();
        let turns = parts.registry.change(|change| change.turns_of(fresh))?;
        let mut waiting: BTreeMap<GearAddress, BTreeMap<u64, LetterId>> = BTreeMap::new();
        parts.registry.each_mark(|id, mark| {
            if let (LetterState::Waiting, Some(turn)) = (mark.state, mark.turn) {
                waiting
                    .entry((turn.rack, turn.gear))
                    .or_default()
                    .insert(turn.number, id);
            }
        })?;
        Ok(Arc::new(Self {
            parts,
            turns,
            waiting: Mutex::new(waiting),
            in_order: Mutex::default(),
            late: Mutex::default(),
            bell: Notify::new(),
            settled: watch::channel(0).0,
            open_counts: Mutex::default(),
            replayed: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
        }))
    }

    /// The queries of whoever is not told apart.
    pub(crate) const fn querier(&self) -> &Arc<QueryEngine> {
        &self.parts.querier
    }

    /// The letters that a filter asks for, the newest first; without a state, those that are open or waiting.
    ///
    /// # Errors
    /// [`DlqError`].
    pub async fn list(&self, querier: &QueryEngine, filter: &LetterFilter) -> Result<LetterPage, DlqError> {
        let wanted = page_size(filter.limit).map_err(|bad| DlqError::Wish {
            parameter: "limit",
            reason: bad.to_string(),
        })?;
        let (mut letters, mut looked) = (Vec::new(), 0);
        let mut look = LetterScan::new(filter);
        loop {
            let from = look.cursor.clone();
            let mut page = self.look(querier, &mut look).await?;
            looked += page.rows;
            let missing = wanted - letters.len();
            if let Some((last, ..)) = page.found.get(missing) {
                // One too many: the same again up to before it, so that the cursor is right.
                let mut again = LetterScan {
                    cursor: from,
                    chunk: u32::try_from(*last).unwrap_or(u32::MAX),
                    ..LetterScan::new(filter)
                };
                page = self.look(querier, &mut again).await?;
                look = again;
            }
            let found = page.found.into_iter().take(missing);
            letters.extend(found.map(|(_, letter, mark)| self.view(&letter, mark)));
            if letters.len() >= wanted || look.cursor.is_none() || looked >= MOST_LOOKED {
                return Ok(LetterPage {
                    letters,
                    next_cursor: look.cursor,
                    stats: page.stats,
                });
            }
        }
    }

    /// One letter, with everything in it.
    ///
    /// # Errors
    /// [`DlqError::Unknown`]; see [`DlqError`].
    pub async fn show(&self, querier: &QueryEngine, id: LetterId) -> Result<LetterDetail, DlqError> {
        let letter = self.letter(querier, id).await?.ok_or(DlqError::Unknown(id))?;
        let mut view = self.view(&letter, self.parts.registry.mark(&id)?);
        if view.replayable
            && let Err(reason) = self.replay_targets().await?.check(&letter)
        {
            (view.replayable, view.why_not) = (false, Some(reason));
        }
        Ok(letter.whole(view))
    }

    fn view(&self, letter: &DeadLetterEntry, mark: Option<LetterMark>) -> LetterView {
        let turn = mark.as_ref().and_then(|mark| mark.turn.clone());
        let mut view = letter.view(mark);
        if let (LetterState::Waiting, Some(turn)) = (view.state, turn) {
            view.note = lock(&self.late).get(&(turn.rack, turn.gear)).cloned();
        }
        view
    }

    /// A letter by its id.
    async fn letter(&self, querier: &QueryEngine, id: LetterId) -> Result<Option<DeadLetterEntry>, DlqError> {
        let next = Timestamp::from_micros(id.ts().micros().saturating_add(1));
        let mut filter = LetterFilter {
            since: Some(TimePoint::At(id.ts())),
            until: Some(TimePoint::At(next)),
            ..LetterFilter::default()
        };
        let mut chunk = CHUNK.0;
        loop {
            let list = self.read(querier, filter.clone(), &mut chunk).await?;
            if let Some(found) = letters(&list).flatten().find(|letter| letter.id == id) {
                return Ok(Some(found));
            }
            if list.next_cursor.is_none() {
                return Ok(None);
            }
            filter.cursor = list.next_cursor;
        }
    }

    /// The next rows that a filter meets, `chunk` of them; fewer, as `chunk` says then, if there is not the memory for so many.
    async fn read(
        &self,
        querier: &QueryEngine,
        mut filter: LetterFilter,
        chunk: &mut u32,
    ) -> Result<ListAnswer, DlqError> {
        loop {
            filter.limit = Some(*chunk);
            match querier.list(&ListQuery::Letters(filter.clone())).await {
                Err(error) if error.lacks_memory() && *chunk > 1 => *chunk = (*chunk / 4).max(1),
                list => return Ok(list?),
            }
        }
    }

    /// The next rows, and of them the letters that are asked for, each with its place among them.
    async fn look(&self, querier: &QueryEngine, look: &mut LetterScan) -> Result<LetterScanPage, DlqError> {
        let filter = LetterFilter {
            cursor: look.cursor.take(),
            ..look.filter.clone()
        };
        look.chunk = look.chunk.clamp(1, CHUNK.1);
        let list = self.read(querier, filter, &mut look.chunk).await?;
        let wanted = look.filter.clone();
        // Letters are decoded and looked up on a thread that may block.
        let looked = self.parts.registry.read(move |registry| {
            let (mut bytes, mut found) = (0, Vec::new());
            for (at, letter) in letters(&list).enumerate() {
                let Some(letter) = letter else { continue };
                bytes += letter.payload.len();
                let mark = registry.mark(&letter.id)?;
                let state = mark.as_ref().map_or(LetterState::Open, |mark| mark.state);
                if letter.meets(&wanted) && LetterStateFilter::meets(wanted.state, state) {
                    found.push((at, letter.without_payload(), mark));
                }
            }
            Ok::<_, DlqError>((list, bytes, found))
        });
        let (list, bytes, found) = looked.await?;
        let rows = list.rows().num_rows();
        look.chunk = if bytes > LARGE { look.chunk / 4 } else { look.chunk * 2 }.clamp(4, CHUNK.1);
        look.cursor = list.next_cursor;
        Ok(LetterScanPage {
            rows,
            found,
            stats: list.stats,
        })
    }

    /// All letters that a filter asks for, in the order in which they failed, and why some may be missing.
    async fn select(
        &self,
        querier: &QueryEngine,
        filter: &LetterFilter,
    ) -> Result<(Vec<DeadLetterEntry>, Option<String>), DlqError> {
        let (mut look, mut all, mut partial) = (LetterScan::new(filter), Vec::new(), None);
        loop {
            let page = self.look(querier, &mut look).await?;
            partial = page.stats.partial.or(partial);
            all.extend(page.found.into_iter().map(|(_, letter, _)| letter));
            if all.len() > MOST_CHANGED {
                return Err(DlqError::TooMany);
            }
            if look.cursor.is_none() {
                all.sort_by_key(DeadLetterEntry::order);
                return Ok((all, partial));
            }
        }
    }

    /// The counters.
    #[must_use]
    pub fn stats(&self) -> DlqStats {
        let counts = lock(&self.open_counts).clone();
        DlqStats {
            open: counts.open,
            waiting: lock(&self.waiting).values().map(|turns| turns.len() as u64).sum(),
            replayed: self.replayed.load(Relaxed),
            dropped: self.dropped.load(Relaxed),
        }
    }
}

/// The letters of rows, made one after the other: each is large.
fn letters(list: &ListAnswer) -> impl Iterator<Item = Option<DeadLetterEntry>> + '_ {
    (0..list.rows().num_rows()).map(|row| DeadLetterEntry::of(row_json(list.rows(), row)))
}

/// How far a look over the rows has come.
struct LetterScan {
    filter: LetterFilter,
    cursor: Option<String>,
    chunk: u32,
}

/// What it saw.
struct LetterScanPage {
    rows: usize,
    found: Vec<(usize, DeadLetterEntry, Option<LetterMark>)>,
    stats: QueryStats,
}

impl LetterScan {
    fn new(filter: &LetterFilter) -> Self {
        Self {
            filter: filter.clone(),
            cursor: filter.cursor.clone(),
            chunk: CHUNK.0,
        }
    }
}

/// Counts of the queue.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DlqStats {
    /// Open letters by Rack and gear, as counted last.
    pub open: BTreeMap<(String, String), u64>,
    /// Letters that wait for their gear.
    pub waiting: u64,
    /// Letters that gears have taken since the start.
    pub replayed: u64,
    /// Letters dropped since the start.
    pub dropped: u64,
}
