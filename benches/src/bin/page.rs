//! The Mixer's page in a browser, on a store of two days: how soon something is seen, what stops the page, whether live tail lasts, and
//! what goes over the wire.
//!
//! Method: a release Mixer with default settings in a new folder (`TMPDIR` says where) gets 48 hours up to now over its own API, as Arrow streams over four
//! connections, from `benches/src/data.rs` with a fixed seed: `BENCH_ROWS` (10,000,000) log rows, `BENCH_POINTS` (10,000,000) metric points, `BENCH_SPANS` (5,000,000)
//! spans; also a trace of `BENCH_TRACE_SPANS` (20,000) spans, a thousand levels deep and nine thousand spans wide, and a log row with a message of 1.5 MB. When all
//! files of past hours are sealed and indexed (some six minutes; `BENCH_OPEN=1` does not wait), the Mixer starts anew. The machine's file cache is warm.
//!
//! Then Debian's Chromium without a window (1,280 × 800) on the same cores, driven over its debugging pipe, `BENCH_SAMPLES` (7) samples. Medians and the longest:
//!
//! - What is seen: each sample begins with a new browser, whose cache is empty and whose code is not compiled, and asks for hours that no sample asked for
//!   before. A script that runs before the page's own ones waits for the change of the document (`MutationObserver`) that brings the first data: a number of what
//!   is stored, or a row of logs. Times are from the start of the navigation (`performance.timeOrigin`), later from the change of the address. A histogram is there
//!   when its drawing is. *Painted* is when the next frame was handed over. Other hours and 48 hours are asked for when nothing is awaited any more.
//! - What stops the page: the browser's own list of tasks over 50 ms (`PerformanceObserver`, `longtask`), while the large row is opened and unfolded, and while
//!   the large trace is shown, scrolled through in four seconds, filtered, and shown with its critical path; the worst of all samples.
//! - Live tail: `BENCH_RATE` (5,000) rows a second for `BENCH_MINUTES` (5) at an even pace, followed without a filter. What the page says that came, against what
//!   was sent; the heap of JavaScript each second, its lowest and highest by the minute, and without garbage before and after.
//! - The wire: requests of the first page with encoded and plain bytes as the browser tells them, and each file that is served.
//!
//! CPU seconds are the kernel's, those of a browser with all of its processes, whose memory is the proportional one (`Pss`), looked at when it ends
//! and once a minute. A bound is said to be kept (under) or not (OVER); nothing fails by it.
//!
//! # Not here
//!
//! What the Mixer's answers take without a browser: `bench-queries`, `bench-tail`.

#[path = "page/browser.rs"]
mod browser;
#[path = "page/fill.rs"]
mod fill;
#[path = "page/heavy.rs"]
mod heavy;
#[path = "page/live.rs"]
mod live;
#[path = "page/measures.rs"]
mod measures;
#[path = "page/paint.rs"]
mod paint;
#[path = "page/wire.rs"]
mod wire;

use benches::{cost, load};
use harness::{Failure, TestMixer};

fn main() -> Result<(), Failure> {
    println!("load before: {}", load());
    let mut mixer = TestMixer::start("[observability.embedded]\nflush_interval = \"5s\"\n")?;
    let store = fill::fill(&mut mixer)?;
    let mut browsers = browser::BrowserCost::default();
    println!("load before the first page: {}", load());
    paint::measure(&mixer, &store, &mut browsers)?;
    heavy::measure(&mixer, &store, &mut browsers)?;
    let spent = cost(mixer.process()?.pid().as_raw());
    println!(
        "the Mixer: {:.1} CPU s, at most {:.0} MiB; load {}",
        spent.cpu_seconds,
        spent.peak_mib,
        load()
    );
    browsers.print();
    let mut follower = browser::BrowserCost::default();
    live::measure(&mut mixer, &mut follower)?;
    follower.print();
    println!("load after: {}", load());
    Ok(())
}
