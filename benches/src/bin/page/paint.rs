//! How soon something is seen: the first pages of a browser without any cache, other hours of logs, the histogram of two days.

use benches::setting;
use harness::{Failure, TestMixer};
use serde_json::json;

use crate::browser::{BrowserCost, open};
use crate::fill::{FilledStore, HOURS};
use crate::measures::{PaintMeasure, TaskMeasure};
use crate::wire;

/// What an operator wants to know at first.
const STORED: &str = "document.querySelector('[aria-label=Stored] .tile strong')";
const ROW: &str = "document.querySelector('[aria-label=\"Log records\"] [role=rowgroup] [role=cell]')";

pub(super) fn measure(mixer: &TestMixer, store: &FilledStore, cost: &mut BrowserCost) -> Result<(), Failure> {
    let mut overview = PaintMeasure::new("first useful paint, Overview", Some(300.0));
    let mut logs = PaintMeasure::new("first useful paint, Logs of an hour", Some(300.0));
    let mut hour = PaintMeasure::new("logs of another hour", Some(150.0));
    let mut histogram = PaintMeasure::new("histogram of 48 hours", Some(300.0));
    let mut loading = TaskMeasure::new("loading Overview");
    let mut changing = TaskMeasure::new("loading Logs, another hour, 48 hours");
    for sample in 0..setting("BENCH_SAMPLES", 7) {
        let mut tab = open(&mixer.api.base, "overview", STORED)?;
        overview.take(&mut tab, "bench.first")?;
        tab.eval("bench.calm()")?;
        loading.take(&mut tab)?;
        if sample == 0 {
            wire::print(&mut tab)?;
        }
        cost.close(tab);

        // Each time other hours.
        let before = 1 + sample % 10;
        let first = format!("logs?{}", store.hours(before + 1, before));
        let mut tab = open(&mixer.api.base, &first, ROW)?;
        logs.take(&mut tab, "bench.first")?;
        tab.eval("bench.calm()")?;
        let other = json!(format!("#/logs?{}", store.hours(before + 21, before + 20)));
        hour.take(&mut tab, &format!("bench.rows({other})"))?;
        tab.eval("bench.calm()")?;
        let all = json!(format!("#/logs?{}", store.hours(HOURS, 0)));
        histogram.take(&mut tab, &format!("bench.histogram({all})"))?;
        tab.eval("bench.calm()")?;
        changing.take(&mut tab)?;
        if sample == 0 {
            let said = tab.eval("document.querySelector('[aria-label=\"Records over time\"] .bar').textContent")?;
            println!("the histogram says: {said}");
        }
        cost.close(tab);
    }
    for measured in [&mut overview, &mut logs, &mut hour, &mut histogram] {
        measured.print();
    }
    loading.print();
    changing.print();
    Ok(())
}
