//! `timer`: makes a message at an interval, or at the times of a cron expression.
//!
//! | what happens | `every` | `cron` |
//! |---|---|---|
//! | the gear was held up | one message, then the next tick of the rhythm | one message, then the next time ahead |
//! | the machine slept | the rhythm stood still: the next tick comes as much later | one message soon after it woke, then the next time ahead |
//! | the wall clock is set forward, over times | nothing | one message, for the first of them |
//! | the wall clock is set back | nothing | the times come again, but for those within an hour |
//! | the Rack was stopped | the rhythm begins anew | the next time ahead |
//!
//! # Invariants
//!
//! - No delay, stop or clock makes more than one message at once.
//! - `timer.number` counts the messages of a scenario that runs, from 0.
//!
//! # Not here
//!
//! The rhythm of `every` ([`super::poll_schedule`]), the times of `cron` ([`cron_clock`]).

mod cron_clock;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use futures::FutureExt;
use gear_spec::timer::TimerConfig;
use model::{Attributes, HumanDuration, Level, Timestamp, gear_manifest};
use tokio::time::Instant;

use super::poll_schedule::PollSchedule;
use super::{ActiveGear, Gear, GearContext, GearFuture, RawConfig};
use cron_clock::{ClockReading, CronClock};

pub(super) fn build(config: &RawConfig) -> Result<Gear, String> {
    let config: TimerConfig = gear_manifest::config(config)?;
    let cron = config.cron_times()?;
    let clock = cron.map(|cron| CronClock::new(cron, config.timezone));
    Ok(Gear::Active(Box::new(TickSender { config, clock })))
}

struct TickSender {
    config: TimerConfig,
    clock: Option<CronClock>,
}

impl ActiveGear for TickSender {
    fn run<'a>(&'a mut self, cx: &'a Arc<GearContext>) -> GearFuture<'a> {
        async move {
            if self.config.at_start {
                self.tick(cx, cx.recorder().now()).await;
            }
            match (self.clock.take(), self.config.every) {
                (Some(clock), _) => self.run_cron(cx, clock).await,
                (None, Some(every)) => self.run_every(cx, every).await,
                // Refused by the check.
                (None, None) => {}
            }
            Ok(())
        }
        .boxed()
    }
}

impl TickSender {
    async fn run_every(&self, cx: &GearContext, every: HumanDuration) {
        let mut schedule = PollSchedule::new(every.get(), Instant::now() + every.get());
        loop {
            tokio::select! {
                biased;
                () = cx.stopping() => return,
                () = tokio::time::sleep_until(schedule.due()) => {}
            }
            let now = Instant::now();
            let late = now.saturating_duration_since(schedule.due());
            schedule.advance(now);
            self.tick(cx, cx.recorder().now().minus(late)).await;
        }
    }

    async fn run_cron(&self, cx: &GearContext, mut clock: CronClock) {
        let mut is_told = false;
        while !cx.is_stopping() {
            let pause = match clock.read(cx.recorder().now()) {
                ClockReading::Due(scheduled) => {
                    self.tick(cx, scheduled).await;
                    continue;
                }
                ClockReading::Wait(pause) => {
                    is_told = false;
                    pause
                }
                ClockReading::Never(pause) => {
                    if !std::mem::replace(&mut is_told, true) {
                        cx.log(
                            Level::Warn,
                            "no time of cron lies ahead of the machine's clock: is it set right?",
                        );
                    }
                    pause
                }
            };
            tokio::select! {
                () = cx.stopping() => return,
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    async fn tick(&self, cx: &GearContext, scheduled: Timestamp) {
        let began = std::time::Instant::now();
        let number = cx.restart_state::<AtomicU64>().fetch_add(1, Relaxed);
        let meta = Attributes::new()
            .with("timer.number", number)
            .with("timer.scheduled", scheduled.to_string());
        let mut message = cx.make(None, meta, Vec::new());
        message.data = self.config.payload.clone();
        // A refusal has been counted and reported; the next tick may pass.
        cx.emit("out", message, None, began).await.ok();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::json;

    use super::super::testing::Flow;
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn messages_come_at_the_start_and_at_the_interval_with_their_number_and_time() {
        let gears = "
  - { name: beat, type: timer, deploy: rack-a, config: { every: 5ms, at_start: true, payload: { ask: all } } }
  - { name: sink, type: log_sink, deploy: rack-a }";
        let mut flow = Flow::start(gears, "{ from: beat.out, to: sink.in }").await;
        flow.reach("sink", 3).await;
        flow.stop().await;
        let rows = flow.rows("sink");
        let mut last = None;
        for (number, row) in rows.iter().enumerate() {
            let facts = &row["attributes"];
            let scheduled: Timestamp = facts["timer.scheduled"].as_str().unwrap().parse().unwrap();
            assert_eq!(
                (&facts["timer.number"], &row["message"]),
                (&json!(number), &json!("{\"ask\":\"all\"}"))
            );
            assert!(last < Some(scheduled), "{row:?}");
            last = Some(scheduled);
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_cron_expression_with_seconds_gives_a_message_for_each_whole_second() {
        let gears = "
  - { name: beat, type: timer, deploy: rack-a, config: { cron: '* * * * * *' } }
  - { name: sink, type: log_sink, deploy: rack-a }";
        let mut flow = Flow::start(gears, "{ from: beat.out, to: sink.in }").await;
        flow.reach("sink", 1).await;
        flow.stop().await;
        let row = &flow.rows("sink")[0];
        let scheduled: Timestamp = row["attributes"]["timer.scheduled"].as_str().unwrap().parse().unwrap();
        assert_eq!(scheduled.micros() % 1_000_000, 0);
        assert_eq!(row["message"], "");
    }
}
