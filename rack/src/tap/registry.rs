//! Registry of open taps, to which gears show what they send.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

use model::message::Message;
use model::tap::{TapAnswer, TapBatch, TapSample};
use model::{Timestamp, Token};
use parking_lot::{Mutex, RwLock};
use tokio::sync::mpsc;

use super::sample::{self, SizedSample};
use super::{BATCH_BYTES, BYTES_A_SECOND, QUEUED};

/// The gears of this Rack whose ports can be tapped.
#[derive(Debug, Clone, Default)]
pub(crate) struct TapRegistry(Arc<Mutex<BTreeMap<Token, TappableGear>>>);

#[derive(Debug)]
struct TappableGear {
    outputs: &'static [&'static str],
    point: Arc<TapPoint>,
}

impl TapRegistry {
    /// Where a gear with these outputs shows what it sends: for all gears of its name the same.
    pub(crate) fn point(&self, gear: &Token, outputs: &'static [&'static str]) -> Arc<TapPoint> {
        Arc::clone(&entry(&mut self.0.lock(), gear, outputs).point)
    }

    /// Makes these gears, with their outputs, the ones that can be tapped.
    pub(crate) fn keep(&self, gears: &BTreeMap<Token, &'static [&'static str]>) {
        let mut registry = self.0.lock();
        registry.retain(|name, _| gears.contains_key(name));
        for (name, outputs) in gears {
            entry(&mut registry, name, outputs);
        }
    }

    /// Begins a tap of a port.
    pub(super) fn attach(&self, gear: &Token, port: &Token) -> Result<TapReceiver, TapAnswer> {
        let registry = self.0.lock();
        let (point, port) = find(&registry, gear, port)?;
        let (sender, samples) = mpsc::channel(QUEUED);
        let tap = Arc::new(PortTap {
            port,
            sampler: Mutex::new(TapSampler {
                passed: 0,
                budget: ByteTokenBucket::full(Instant::now()),
                sender,
            }),
        });
        point.add(&tap);
        Ok(TapReceiver {
            point: Arc::clone(point),
            tap,
            samples,
            told: 0,
            estimated: 0,
        })
    }

    /// Whether a port is still there, and shows what passes at this point.
    pub(super) fn check(&self, gear: &Token, port: &Token, point: &Arc<TapPoint>) -> Result<(), TapAnswer> {
        let registry = self.0.lock();
        let (found, _) = find(&registry, gear, port)?;
        Arc::ptr_eq(found, point).then_some(()).ok_or(TapAnswer::Ended)
    }
}

fn entry<'b>(
    registry: &'b mut BTreeMap<Token, TappableGear>,
    name: &Token,
    outputs: &'static [&'static str],
) -> &'b TappableGear {
    let gear = registry.entry(name.clone()).or_insert_with(|| TappableGear {
        outputs,
        point: Arc::default(),
    });
    gear.outputs = outputs;
    gear
}

fn find<'b>(
    registry: &'b BTreeMap<Token, TappableGear>,
    gear: &Token,
    port: &Token,
) -> Result<(&'b Arc<TapPoint>, &'static str), TapAnswer> {
    /// So many gears are named at most.
    const NAMED: usize = 50;
    let Some(found) = registry.get(gear) else {
        let sends = registry.iter().filter(|(_, gear)| !gear.outputs.is_empty());
        return Err(TapAnswer::NoGear(
            sends.take(NAMED).map(|(name, _)| name.to_string()).collect(),
        ));
    };
    let mut outputs = found.outputs.iter().copied();
    let output = outputs.find(|output| *output == port.as_str());
    let none = || TapAnswer::NoPort(found.outputs.iter().map(|&output| output.to_owned()).collect());
    Ok((&found.point, output.ok_or_else(none)?))
}

/// Where a gear shows what it sends.
#[derive(Debug, Default)]
pub(crate) struct TapPoint {
    /// How many taps there are, for whoever only wants to know whether there is one.
    open: AtomicUsize,
    taps: RwLock<Vec<Arc<PortTap>>>,
}

impl TapPoint {
    /// Shows a message that leaves by a port to who watches.
    pub(crate) fn show(&self, port: &str, message: &Message, now: impl Fn() -> Timestamp) {
        if self.open.load(Relaxed) == 0 {
            return;
        }
        for tap in self.taps.read().iter().filter(|tap| tap.port == port) {
            tap.sampler.lock().show(message, &now);
        }
    }

    fn add(&self, tap: &Arc<PortTap>) {
        let mut taps = self.taps.write();
        taps.push(Arc::clone(tap));
        self.open.store(taps.len(), Relaxed);
    }

    fn remove(&self, tap: &Arc<PortTap>) {
        let mut taps = self.taps.write();
        taps.retain(|other| !Arc::ptr_eq(other, tap));
        self.open.store(taps.len(), Relaxed);
    }
}

/// One watcher at one port.
#[derive(Debug)]
struct PortTap {
    port: &'static str,
    sampler: Mutex<TapSampler>,
}

/// What decides whether a message is shown. Locked for as long as a sample takes to be made.
#[derive(Debug)]
struct TapSampler {
    passed: u64,
    budget: ByteTokenBucket,
    sender: mpsc::Sender<SizedSample>,
}

impl TapSampler {
    fn show(&mut self, message: &Message, now: impl Fn() -> Timestamp) {
        self.passed += 1;
        if !self.budget.refill(Instant::now()) {
            return;
        }
        let Ok(place) = self.sender.try_reserve() else { return };
        let sample = sample::of(message, self.passed, now());
        self.budget.spend(sample.bytes);
        place.send(sample);
    }
}

/// A token bucket of bytes, as large as what it fills with in a second. What is spent last may be more than is left: it is owed.
#[derive(Debug)]
pub(super) struct ByteTokenBucket {
    left: i64,
    filled: Instant,
}

impl ByteTokenBucket {
    pub(super) const fn full(now: Instant) -> Self {
        Self {
            left: BYTES_A_SECOND,
            filled: now,
        }
    }

    pub(super) fn refill(&mut self, now: Instant) -> bool {
        let since = now.saturating_duration_since(self.filled).as_micros();
        let micros = i64::try_from(since).unwrap_or(i64::MAX);
        // A short time fills nothing, and counts to the next one.
        let more = micros.saturating_mul(BYTES_A_SECOND) / 1_000_000;
        if more > 0 {
            self.left = self.left.saturating_add(more).min(BYTES_A_SECOND);
            self.filled = now;
        }
        self.left > 0
    }

    pub(super) const fn spend(&mut self, bytes: u64) {
        self.left = self.left.saturating_sub_unsigned(bytes);
    }
}

/// The end of a tap that takes the samples; the tap ends with it.
#[derive(Debug)]
pub(super) struct TapReceiver {
    pub(super) point: Arc<TapPoint>,
    tap: Arc<PortTap>,
    samples: mpsc::Receiver<SizedSample>,
    /// How many messages the batches have reported.
    pub(super) told: u64,
    /// What was spent for the samples of the last batch.
    estimated: u64,
}

impl TapReceiver {
    /// Samples that wait, at least one and as many as the bus takes at once.
    pub(super) async fn batch(&mut self) -> TapBatch {
        let (mut samples, mut bytes) = (Vec::new(), 0);
        let mut next = self.samples.recv().await;
        while let Some(SizedSample { sample, bytes: more }) = next {
            samples.push(sample);
            bytes += more;
            next = if bytes < BATCH_BYTES {
                self.samples.try_recv().ok()
            } else {
                None
            };
        }
        self.estimated = bytes;
        self.finish(samples)
    }

    /// Spends what the last batch takes on the bus beyond what was spent for its samples.
    pub(super) fn charge(&mut self, bytes: usize) {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let more = bytes.saturating_sub(std::mem::take(&mut self.estimated));
        self.tap.sampler.lock().budget.spend(more);
    }

    /// What was dropped since the last batch, where nothing was shown after it.
    pub(super) fn rest(&mut self) -> Option<TapBatch> {
        let told = self.told;
        let batch = self.finish(Vec::new());
        (batch.passed > told).then_some(batch)
    }

    /// What passed after the last sample and is not shown either counts too, as far as nothing of it still waits.
    fn finish(&mut self, samples: Vec<TapSample>) -> TapBatch {
        let sampler = self.tap.sampler.lock();
        let shown = samples.last().map_or(self.told, |last| last.number);
        self.told = if self.samples.is_empty() { sampler.passed } else { shown };
        TapBatch {
            samples,
            passed: self.told,
        }
    }
}

impl Drop for TapReceiver {
    fn drop(&mut self) {
        self.point.remove(&self.tap);
    }
}
