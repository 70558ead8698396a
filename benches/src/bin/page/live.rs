//! Live tail beside a steady stream: rows that the page has seen, its heap each minute, its longest task.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use benches::data::Source;
use benches::{cost, setting};
use harness::{Api, BrowserTab, Failure, TestMixer};
use model::{Table, Timestamp};
use serde_json::json;

use crate::browser::{BrowserCost, open};
use crate::fill::send_rows;
use crate::measures::{TaskMeasure, verdict};

/// Rows of a body.
const BODY: u64 = 250;
/// How much larger the heap may be in the last minute than in the second one, each at its lowest.
const STABLE: f64 = 1.1;
const FOLLOWING: &str = "/Following/.test(document.querySelector('main')?.textContent)";
/// How long rows may be on their way when the last one is sent.
const ARRIVED: Duration = Duration::from_secs(20);

pub(super) fn measure(mixer: &mut TestMixer, cost_of: &mut BrowserCost) -> Result<(), Failure> {
    let (rate, minutes) = (setting("BENCH_RATE", 5_000), setting("BENCH_MINUTES", 5));
    let pid = mixer.process()?.pid().as_raw();
    let mut tab = open(&mixer.api.base, "logs?live=1", FOLLOWING)?;
    tab.eval("bench.first")?;
    tab.eval("bench.calm().then(bench.tasks)")?;
    // Else the browser tells of every piece of the stream.
    tab.send("Network.disable", json!({}))?;
    std::thread::sleep(Duration::from_secs(2));
    let (began, backlog, at_first) = (cost(pid), came(&mut tab)?, live_mib(&mut tab)?);
    tab.eval("bench.tasks()")?;

    println!("live tail, {rate} rows/s for {minutes} minutes:");
    let (api, sent) = (mixer.api.clone(), AtomicU64::new(0));
    let (mut lowest, mut tasks) = (Vec::new(), TaskMeasure::new("live tail, by the minute"));
    let late = std::thread::scope(|scope| {
        let sending = scope.spawn(|| send(&api, rate, 60 * minutes, &sent));
        let started = Instant::now();
        for minute in 1..=minutes {
            let (low, high) = watch(&mut tab, started + Duration::from_secs(60 * minute))?;
            tasks.take(&mut tab)?;
            cost_of.look(&tab);
            println!(
                "  minute {minute}: {} sent, {} seen, heap {low:.1} to {high:.1} MiB",
                sent.load(Ordering::Relaxed),
                came(&mut tab)?.saturating_sub(backlog)
            );
            lowest.push(low);
        }
        sending.join().map_err(|_| "the sender died")?
    })?;
    let (sent, deadline) = (sent.into_inner(), Instant::now() + ARRIVED);
    let mut seen = came(&mut tab)?.saturating_sub(backlog);
    while seen < sent && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(200));
        seen = came(&mut tab)?.saturating_sub(backlog);
    }
    let ended = cost(pid);
    let side = if seen == sent { "all" } else { "MISSING" };
    println!("  rows: {sent} sent (the last body {late:.2} s late), {seen} seen by the page: {side}");
    println!(
        "  heap without garbage: {at_first:.1} MiB before, {:.1} MiB after",
        live_mib(&mut tab)?
    );
    if let [_, second, .., last] = lowest[..] {
        let growth = verdict(last / second, STABLE, "times");
        println!("  lowest heap: {second:.1} MiB in the second minute, {last:.1} MiB in the last one{growth}");
    }
    tasks.print();
    println!(
        "  the Mixer: {:.1} CPU s, at most {:.0} MiB since its start",
        ended.cpu_seconds - began.cpu_seconds,
        ended.peak_mib
    );
    cost_of.close(tab);
    Ok(())
}

/// Looks at the heap each second until a moment; its lowest and highest, in MiB.
fn watch(tab: &mut BrowserTab, end: Instant) -> Result<(f64, f64), Failure> {
    let (mut low, mut high) = (f64::INFINITY, 0.0_f64);
    while Instant::now() < end {
        std::thread::sleep(Duration::from_secs(1));
        let heap = heap_mib(tab)?;
        (low, high) = (low.min(heap), high.max(heap));
    }
    Ok((low, high))
}

/// The heap of JavaScript in MiB, with its garbage.
fn heap_mib(tab: &mut BrowserTab) -> Result<f64, Failure> {
    let used = tab.send("Runtime.getHeapUsage", json!({}))?["usedSize"].as_f64();
    Ok(used.ok_or("the browser does not tell its heap")? / f64::from(1 << 20))
}

/// The same without garbage.
fn live_mib(tab: &mut BrowserTab) -> Result<f64, Failure> {
    tab.send("HeapProfiler.collectGarbage", json!({}))?;
    heap_mib(tab)
}

/// Rows that came so far, as the page says.
fn came(tab: &mut BrowserTab) -> Result<u64, Failure> {
    Ok(tab
        .eval("bench.came()")?
        .as_u64()
        .ok_or("the page does not say what came")?)
}

/// Sends rows at an even pace; by how many seconds the last body was late.
fn send(api: &Api, rate: u64, seconds: u64, sent: &AtomicU64) -> Result<f64, Failure> {
    let (all, now) = (rate * seconds, Timestamp::from(SystemTime::now()));
    let mut source = Source::between(13, all, (now, now.plus(Duration::from_secs(seconds))));
    let (start, mut late) = (Instant::now(), Duration::ZERO);
    for first in (0..all).step_by(usize::try_from(BODY)?) {
        let due = start + Duration::from_micros(first * 1_000_000 / rate);
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        late = due.elapsed();
        let rows = BODY.min(all - first);
        let batch = source.batch(Table::Logs, usize::try_from(rows)?)?;
        send_rows(api, Table::Logs, &batch)?;
        sent.fetch_add(rows, Ordering::Relaxed);
    }
    Ok(late.as_secs_f64())
}
