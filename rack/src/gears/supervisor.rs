//! One task for each gear: runs it, counts for it, and starts it again when it fails.
//!
//! # Invariants
//!
//! - A panic or an error of a gear ends only its own life; the next one begins after a pause that doubles from
//!   [`FIRST_PAUSE`] to [`LONGEST_PAUSE`] and starts over when a life was calm.
//! - Messages wait in the inbox while the gear is away.
//! - Asked to stop, a passive gear or half handles what waited in its inbox (at most what fits there), flushes and ends.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use model::Level;
use tokio::sync::mpsc::{self, error::TryRecvError};
use tokio::time::{Instant, MissedTickBehavior};

use super::{Context, Fault, Gear, Passive};
use crate::wires::{Delivery, INBOX_CAPACITY, Inbox, Spec};

/// How often a gear's counters are reported.
pub(crate) const REPORT_INTERVAL: Duration = Duration::from_secs(10);
/// The pause before the first restart.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// The longest pause before a restart.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// A life this long makes the next pause short again.
const CALM: Duration = Duration::from_secs(60);

/// Runs a gear until it is asked to stop or has nothing left to do. `gear` is the one that was initialised, if any.
pub(crate) async fn supervise(mut gear: Option<Gear>, spec: Spec, cx: Arc<Context>, inbox: Option<Inbox>) {
    let mut tick = tokio::time::interval_at(Instant::now() + REPORT_INTERVAL, REPORT_INTERVAL);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut pause = FIRST_PAUSE;
    cx.log(Level::Info, "the gear runs");
    loop {
        let born = Instant::now();
        let ended = {
            let life = AssertUnwindSafe(live(gear.take(), &spec, &cx, inbox.as_ref())).catch_unwind();
            tokio::pin!(life);
            loop {
                tokio::select! {
                    ended = &mut life => break ended,
                    _ = tick.tick() => cx.report(),
                }
            }
        };
        let reason = match ended {
            Ok(Ok(())) => break,
            Ok(Err(fault)) => format!("the gear failed: {fault}"),
            Err(panic) => format!("the gear panicked: {}", panic_text(panic.as_ref())),
        };
        if cx.is_stopping() {
            cx.error(reason);
            break;
        }
        if born.elapsed() >= CALM {
            pause = FIRST_PAUSE;
        }
        cx.error(format!("{reason}; it starts again in {} ms", pause.as_millis()));
        tokio::select! {
            () = tokio::time::sleep(pause) => pause = (pause * 2).min(LONGEST_PAUSE),
            () = cx.stopping() => break,
        }
    }
    cx.log(
        Level::Info,
        if cx.is_stopping() {
            "the gear stopped"
        } else {
            "the gear has finished"
        },
    );
    cx.report();
}

async fn live(gear: Option<Gear>, spec: &Spec, cx: &Arc<Context>, inbox: Option<&Inbox>) -> Result<(), Fault> {
    let mut gear = match gear {
        Some(gear) => gear,
        None => {
            let mut gear = spec.kind.build(&spec.config)?;
            gear.init(cx).await?;
            gear
        }
    };
    match (&mut gear, inbox) {
        (Gear::Active(gear), _) | (Gear::Duplex(gear, _), None) => gear.run(cx).await,
        (Gear::Duplex(active, passive), Some(inbox)) => {
            let mut inbox = inbox.receiver.lock().await;
            tokio::try_join!(active.run(cx), consume(passive.as_mut(), cx, &mut inbox)).map(drop)
        }
        (Gear::Passive(gear), Some(inbox)) => consume(gear.as_mut(), cx, &mut *inbox.receiver.lock().await).await,
        (Gear::Passive(_), None) => {
            cx.stopping().await;
            Ok(())
        }
    }
}

async fn consume(gear: &mut dyn Passive, cx: &Arc<Context>, inbox: &mut mpsc::Receiver<Delivery>) -> Result<(), Fault> {
    let mut after_stop = 0;
    while after_stop < INBOX_CAPACITY {
        let delivery = match inbox.try_recv() {
            Ok(delivery) => delivery,
            Err(TryRecvError::Disconnected) => break,
            Err(TryRecvError::Empty) => {
                gear.flush(cx).await?;
                if cx.is_stopping() {
                    return Ok(());
                }
                tokio::select! {
                    delivery = inbox.recv() => match delivery {
                        Some(delivery) => delivery,
                        None => break,
                    },
                    () = cx.stopping() => continue,
                }
            }
        };
        after_stop += usize::from(cx.is_stopping());
        handle(gear, cx, delivery).await?;
        tokio::task::coop::consume_budget().await;
    }
    gear.flush(cx).await
}

async fn handle(gear: &mut dyn Passive, cx: &Arc<Context>, mut delivery: Delivery) -> Result<(), Fault> {
    let mut span = cx.arrive(&mut delivery.message);
    let done = gear.process(cx, delivery).await;
    span.ok = done.is_ok();
    match done {
        Err(Fault::Rejected(reason)) => {
            cx.reject(&reason);
            Ok(())
        }
        done => done,
    }
}

/// What a panic said.
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without a message")
}
