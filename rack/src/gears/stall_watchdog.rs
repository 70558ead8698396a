//! How long a gear is at one thing: told when it is long, then ever more rarely, and once more when it is done.
//!
//! # Invariants
//!
//! - What is told is that message's: the record has its `flux_id`.
//! - A gear that waits for room behind one of its ports, or in the outbox, is told apart from one that does not come back: the fault is further on.
//! - Looked at from outside the gear's task ([`watch`]), so that a gear that never yields is seen too.
//!
//! # Not here
//!
//! An end: a gear may have reasons. A change of the scenario cuts it off ([`crate::runtime::DRAIN_BOUND`]).

use std::sync::Arc;
use std::time::{Duration, Instant};

use model::{HumanDuration, Level};
use parking_lot::Mutex;

use super::GearContext;
use super::trace_context::TraceContext;

tokio::task_local! {
    static AT_WORK: ();
}

/// The longest pause between two records of the same thing.
const LONGEST: Duration = Duration::from_secs(3600);

/// What a gear has in hand.
#[derive(Debug, Default)]
pub(crate) struct CurrentWork(Mutex<Option<WorkItem>>);

#[derive(Debug)]
struct WorkItem {
    signal: Option<TraceContext>,
    since: Instant,
    /// How long it took when it was told last.
    told: Option<Duration>,
    /// Where there is no room.
    waits: Option<BackpressureSource>,
}

/// Where there may be no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BackpressureSource {
    /// The inbox behind a port.
    Port(&'static str),
    /// The Rack's outbox.
    Outbox,
}

/// Ends what [`CurrentWork::begin`] or [`CurrentWork::begin_wait`] began, also where a gear panics.
pub(crate) struct WorkGuard<'a> {
    in_hand: &'a CurrentWork,
    end: fn(&CurrentWork),
}

impl Drop for WorkGuard<'_> {
    fn drop(&mut self) {
        (self.end)(self.in_hand);
    }
}

/// Something to be said.
#[derive(Debug, PartialEq, Eq)]
struct StallReport {
    signal: Option<TraceContext>,
    text: String,
}

impl CurrentWork {
    /// A message is begun, or what was held back is finished.
    pub(crate) fn begin(&self, signal: Option<TraceContext>, now: Instant) {
        *self.0.lock() = Some(WorkItem {
            signal,
            since: now,
            told: None,
            waits: None,
        });
    }

    /// There may be no room for what is in hand.
    pub(crate) fn begin_wait(&self, behind: BackpressureSource) -> WorkGuard<'_> {
        self.set_wait(Some(behind));
        WorkGuard {
            in_hand: self,
            end: |in_hand| in_hand.set_wait(None),
        }
    }

    fn set_wait(&self, behind: Option<BackpressureSource>) {
        if let Some(hold) = self.0.lock().as_mut() {
            hold.waits = behind;
        }
    }

    /// It is done; what is to be said of that, if it was told that it takes long.
    fn end(&self, now: Instant) -> Option<StallReport> {
        let hold = self.0.lock().take()?;
        hold.told?;
        let took = HumanDuration::from(seconds(now - hold.since));
        Some(StallReport {
            text: format!("the gear finished it after {took}"),
            signal: hold.signal,
        })
    }

    /// What is to be said: at `patience`, then each time when it has taken twice as long, or an hour more.
    fn overdue(&self, patience: Duration, now: Instant) -> Option<StallReport> {
        let mut hold = self.0.lock();
        let hold = hold.as_mut()?;
        let took = now.saturating_duration_since(hold.since);
        let due = hold.told.map_or(patience, |told| told + told.min(LONGEST));
        if took < due {
            return None;
        }
        hold.told = Some(took);
        let long = HumanDuration::from(seconds(took));
        let what = match hold.signal {
            Some(_) => "at one message",
            None => "finishing held-back or due messages",
        };
        let text = match hold.waits {
            Some(BackpressureSource::Port(port)) => format!(
                "the gear has been {what} for {long}: its port {port} is blocked, the gears behind it take no messages"
            ),
            Some(BackpressureSource::Outbox) => format!(
                "the gear has been {what} for {long}: it is blocked on sending: a receiver takes no messages (platform wires), the Mixer does not take what waits in the Rack's outbox, or its disk is full"
            ),
            None => format!(
                "the gear has been {what} for {long} and its messages wait; another version of it, or a scenario without it, aborts it"
            ),
        };
        Some(StallReport {
            signal: hold.signal,
            text,
        })
    }
}

/// Whole seconds, where it is one.
fn seconds(time: Duration) -> Duration {
    if time < Duration::from_secs(1) {
        Duration::from_millis(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
    } else {
        Duration::from_secs(time.as_secs())
    }
}

impl StallReport {
    fn tell(self, cx: &GearContext, level: Level) {
        let Self { signal, text } = self;
        match signal {
            Some(signal) => signal.in_scope(|| cx.log(level, text)),
            None => cx.log(level, text),
        }
    }
}

/// Does a gear's work, which is watched meanwhile.
pub(crate) async fn run_watched<T>(cx: &GearContext, signal: Option<TraceContext>, work: impl Future<Output = T>) -> T {
    cx.in_hand().begin(signal, Instant::now());
    let unwinding = WorkGuard {
        in_hand: cx.in_hand(),
        end: |in_hand| *in_hand.0.lock() = None,
    };
    let done = AT_WORK.scope((), work).await;
    if let Some(telling) = cx.in_hand().end(Instant::now()) {
        telling.tell(cx, Level::Info);
    }
    drop(unwinding);
    done
}

/// Whether this is what a gear has in hand, and not what it does beside it.
pub(super) fn is_watched() -> bool {
    AT_WORK.try_with(|()| ()).is_ok()
}

/// Watches a gear for as long as it runs.
pub(crate) async fn watch(cx: Arc<GearContext>, patience: Duration) {
    let mut look = tokio::time::interval((patience / 4).max(Duration::from_millis(1)));
    look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        look.tick().await;
        if let Some(telling) = cx.in_hand().overdue(patience, Instant::now()) {
            telling.tell(&cx, Level::Warn);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::super::testing::message;
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);

    #[test]
    fn a_stall_is_logged_at_growing_intervals_and_once_when_it_ends() {
        let (in_hand, began) = (CurrentWork::default(), Instant::now());
        let signal = TraceContext::of(&message(1, serde_json::Value::Null, b""));
        let mut told = Vec::new();
        in_hand.begin(Some(signal), began);
        for second in 0..4 * 3600 {
            let said = in_hand.overdue(PATIENCE, began + Duration::from_secs(second));
            if let Some(telling) = said {
                assert_eq!(telling.signal, Some(signal));
                told.push(second);
            }
        }
        assert_eq!(told, [30, 60, 120, 240, 480, 960, 1920, 3840, 7440, 11_040]);
        let done = in_hand.end(began + Duration::from_secs(4 * 3600)).unwrap();
        assert_eq!(done.text, "the gear finished it after 4h");
        assert_eq!(in_hand.overdue(PATIENCE, began + LONGEST * 9), None);
    }

    #[test]
    fn a_short_delay_is_not_logged() {
        let (in_hand, began) = (CurrentWork::default(), Instant::now());
        for _ in 0..3 {
            in_hand.begin(None, began);
            assert_eq!(in_hand.overdue(PATIENCE, began + Duration::from_secs(29)), None);
            assert_eq!(in_hand.end(began + Duration::from_secs(29)), None);
        }
    }

    #[test]
    fn back_pressure_is_distinguished_from_a_hang() {
        let (in_hand, began) = (CurrentWork::default(), Instant::now());
        let late = |times: u32| in_hand.overdue(PATIENCE, began + PATIENCE * times).unwrap().text;
        in_hand.begin(None, began);
        {
            let _waiting = in_hand.begin_wait(BackpressureSource::Port("out"));
            assert!(late(1).contains("its port out is blocked"));
        }
        {
            let _waiting = in_hand.begin_wait(BackpressureSource::Outbox);
            assert!(late(2).contains("it is blocked on sending"));
        }
        let text = late(4);
        assert!(text.contains("for 2m") && text.contains("aborts it"), "{text}");
    }
}
