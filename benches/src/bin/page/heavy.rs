//! What could stop the page: a log row of 1.5 MB, and a trace of 20,000 spans that is shown, scrolled and filtered, with its critical path.

use std::time::Duration;

use benches::setting;
use harness::{BrowserTab, Failure, TestMixer};
use serde_json::{Value, json};

use crate::browser::{BrowserCost, open};
use crate::fill::{FilledStore, LARGE_ENTITY, range};
use crate::measures::{PaintMeasure, TaskMeasure};

const ROW: &str = "[aria-label=\"Log records\"] [role=rowgroup] [role=row]";
const DRAWER: &str = "aside.drawer";
const SPANS: &str = "[aria-label=\"Spans of the trace\"]";
/// Frames from the first span to the last one.
const STEPS: u32 = 240;

/// The tasks of each part.
struct HeavyTasks {
    opened: TaskMeasure,
    unfolded: TaskMeasure,
    shown: TaskMeasure,
    scrolled: TaskMeasure,
    filtered: TaskMeasure,
    critical: TaskMeasure,
}

pub(super) fn measure(mixer: &TestMixer, store: &FilledStore, cost: &mut BrowserCost) -> Result<(), Failure> {
    let mut tasks = HeavyTasks {
        opened: TaskMeasure::new("a row of 1.5 MB, opened"),
        unfolded: TaskMeasure::new("the same, all of it shown"),
        shown: TaskMeasure::new("the large trace, shown"),
        scrolled: TaskMeasure::new("the same, scrolled"),
        filtered: TaskMeasure::new("the same, filtered by a text"),
        critical: TaskMeasure::new("the same, with its critical path"),
    };
    let mut trace = PaintMeasure::new("the large trace until it is shown", None);
    let mut said = Vec::new();
    for _ in 0..setting("BENCH_SAMPLES", 7) {
        let around = Duration::from_secs(1);
        let times = range(store.large.minus(around), store.large.plus(around));
        let list = format!("logs?entity={LARGE_ENTITY}&{times}");
        let mut tab = open(
            &mixer.api.base,
            &list,
            &format!("document.querySelector({})", json!(ROW)),
        )?;
        tab.eval("bench.first")?;
        tab.eval("bench.calm().then(bench.tasks)")?;
        let unfolded = open_row(&mut tab, &mut tasks)?;
        cost.close(tab);
        let mut tab = open_trace(mixer, store)?;
        let scrolled = use_trace(&mut tab, store, &mut tasks, &mut trace)?;
        said.push((unfolded, scrolled));
        cost.close(tab);
    }
    if let Some((unfolded, scrolled)) = said.first() {
        println!("the large row: [presses for more, characters shown] {unfolded}");
        println!(
            "the large trace of {} spans: [last row, most elements of the document] {scrolled}",
            store.spans
        );
    }
    for measured in [&tasks.opened, &tasks.unfolded] {
        measured.print();
    }
    trace.print();
    for measured in [&tasks.shown, &tasks.scrolled, &tasks.filtered, &tasks.critical] {
        measured.print();
    }
    Ok(())
}

/// Opens the only row of the list, and asks for more of it until all is shown; how often and what came of it.
fn open_row(tab: &mut BrowserTab, tasks: &mut HeavyTasks) -> Result<Value, Failure> {
    tab.click(ROW)?;
    tab.wait(&format!("document.querySelector('{DRAWER} .value') !== null"))?;
    tab.eval("bench.calm()")?;
    tasks.opened.take(tab)?;
    let unfolded = tab.eval(&format!("bench.unfold('{DRAWER}')"))?;
    tasks.unfolded.take(tab)?;
    Ok(unfolded)
}

fn trace_view(store: &FilledStore) -> String {
    format!("traces?trace_id={}", store.trace)
}

/// Opens the trace in a browser that has nothing yet; it is shown when its rows and its map are.
fn open_trace(mixer: &TestMixer, store: &FilledStore) -> Result<BrowserTab, Failure> {
    let spans = json!(SPANS);
    let is_shown = format!(
        "document.querySelector({spans} + ' [role=rowgroup] [role=cell]') && document.querySelector('.trace-map canvas')"
    );
    open(&mixer.api.base, &trace_view(store), &is_shown)
}

/// Waits until the trace is shown, scrolls through it, filters it, and asks for its critical path; what scrolling came to.
fn use_trace(
    tab: &mut BrowserTab,
    store: &FilledStore,
    tasks: &mut HeavyTasks,
    until: &mut PaintMeasure,
) -> Result<Value, Failure> {
    let view = format!("#/{}", trace_view(store));
    let spans = json!(SPANS);
    until.take(tab, "bench.first")?;
    tab.eval("bench.calm()")?;
    tasks.shown.take(tab)?;
    let scrolled = tab.eval(&format!("bench.scroll({spans}, {STEPS})"))?;
    tasks.scrolled.take(tab)?;
    for (what, measured) in [
        ("find=step+7+of", &mut tasks.filtered),
        ("critical=1", &mut tasks.critical),
    ] {
        let view = json!(format!("{view}&{what}"));
        tab.eval(&format!("void (location.hash = {view})"))?;
        tab.eval("bench.calm()")?;
        measured.take(tab)?;
    }
    Ok(scrolled)
}
