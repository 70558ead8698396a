//! Figures beside their bounds: what is late is said to be OVER. Nothing fails by it.

use benches::median;
use harness::{BrowserTab, Failure};
use serde_json::Value;

/// What no task may take, in ms: the page would not answer for as long.
const LONGEST_TASK: f64 = 50.0;

/// How soon something is seen, in ms, in some samples.
pub(super) struct PaintMeasure {
    what: &'static str,
    bound: Option<f64>,
    in_document: Vec<f64>,
    painted: Vec<f64>,
}

impl PaintMeasure {
    pub(super) const fn new(what: &'static str, bound: Option<f64>) -> Self {
        Self {
            what,
            bound,
            in_document: Vec::new(),
            painted: Vec::new(),
        }
    }

    /// Takes a sample: what an expression of the probe tells.
    pub(super) fn take(&mut self, tab: &mut BrowserTab, asked: &str) -> Result<(), Failure> {
        let times = tab.eval(asked)?;
        let (Some(shown), Some(painted)) = (times[0].as_f64(), times[1].as_f64()) else {
            return Err(format!("{}: {times}", self.what).into());
        };
        self.in_document.push(shown);
        self.painted.push(painted);
        Ok(())
    }

    pub(super) fn print(&mut self) {
        let (middle, painted) = (median(&mut self.in_document), median(&mut self.painted));
        let most = |figures: &[f64]| figures.last().copied().unwrap_or(0.0);
        println!(
            "{}: median {middle:.0} ms, longest {:.0} ms, of {}{}; painted: {painted:.0} ms and {:.0} ms",
            self.what,
            most(&self.in_document),
            self.in_document.len(),
            self.bound.map(|bound| verdict(middle, bound, "ms")).unwrap_or_default(),
            most(&self.painted),
        );
    }
}

/// The tasks of a part of the bench that took more than 50 ms: only of those the browser tells.
pub(super) struct TaskMeasure {
    what: &'static str,
    samples: u32,
    long: Vec<f64>,
}

impl TaskMeasure {
    pub(super) const fn new(what: &'static str) -> Self {
        Self {
            what,
            samples: 0,
            long: Vec::new(),
        }
    }

    /// Takes the tasks since those that were taken last.
    pub(super) fn take(&mut self, tab: &mut BrowserTab) -> Result<(), Failure> {
        let tasks = tab.eval("bench.tasks()")?;
        let tasks = tasks.as_array().ok_or("no tasks")?;
        self.long.extend(tasks.iter().filter_map(Value::as_f64));
        self.samples += 1;
        Ok(())
    }

    /// The longest one, if any took more than 50 ms.
    fn longest(&self) -> Option<f64> {
        self.long.iter().copied().max_by(f64::total_cmp)
    }

    pub(super) fn print(&self) {
        let (what, samples) = (self.what, self.samples);
        match self.longest() {
            None => println!("{what}: no task over {LONGEST_TASK} ms, of {samples}"),
            Some(longest) => println!(
                "{what}: {} tasks over {LONGEST_TASK} ms, longest {longest:.0} ms, of {samples}{}",
                self.long.len(),
                verdict(longest, LONGEST_TASK, "ms")
            ),
        }
    }
}

/// A bound, and on which side of it a figure is.
pub(super) fn verdict(figure: f64, bound: f64, unit: &str) -> String {
    let side = if figure <= bound { "under" } else { "OVER" };
    format!(" (bound {bound} {unit}: {side})")
}
