//! Drawings over time by a real mouse and real fingers: a press opens what is under it, also of a hand that trembles; a drag zooms to what it
//! went over, also if it leaves the drawing.

use chrono::{DateTime, SecondsFormat};

use super::*;

/// Where the pointer is, px of the window.
type Place = (f64, f64);

const TRACE: &str = "00000000000000000000000000000001";
const FLUX: &str = "01a22a92-f683-734c-8760-000000000001";
/// From the begin of the first span to the end of the last one, ms.
const LENGTH: i64 = 6_640;
/// Where things within a drawing are that have the title of the first one that is found: their middle.
const FIND: &str = "((over) => {
    over.dispatchEvent(new MouseEvent('mouseenter'));
    const box = over.getBoundingClientRect();
    const found = [];
    let title = '';
    for (let y = 1; y < box.height; y += 3) {
        for (let x = 1; x < box.width; x += 3) {
            const place = [box.x + x, box.y + y];
            over.dispatchEvent(new MouseEvent('mousemove', { clientX: place[0], clientY: place[1] }));
            title ||= over.title;
            if (title && over.title === title) found.push(place);
        }
    }
    return [0, 1].map((axis) => Math.round(found.reduce((sum, place) => sum + place[axis], 0) / found.length));
})";
/// Whether the address asks for a part of a time, in milliseconds, from one share of it to another.
const ASKS: &str = "((start, length, from, to) => {
    const asked = new URLSearchParams(location.hash.split('?')[1]);
    const times = asked.has('zoom') ? asked.get('zoom').split('..').map((micros) => micros / 1_000)
        : ['since', 'until'].map((key) => Date.parse(asked.get(key)) - start);
    return [from, to].every((share, at) => Math.abs(times[at] / length - share) < 0.05);
})";

/// One of the drawings, with the time that it has at first.
struct PageDrawing {
    view: String,
    /// What takes the pointer.
    over: &'static str,
    start: i64,
    length: i64,
}

impl PageDrawing {
    fn asks(&self, from: f64, to: f64) -> String {
        format!("{ASKS}({}, {}, {from}, {to})", self.start, self.length)
    }

    /// Shows all of it.
    fn show(&self, tab: &mut BrowserTab) -> Result<(), Failure> {
        visit(tab, &self.view)?;
        tab.wait(&format!("document.querySelector({}) !== null", json!(self.over)))?;
        frame(tab)
    }

    /// A place of the drawing, as shares of its width and its height.
    fn place(&self, tab: &mut BrowserTab, across: f64, down: f64) -> Result<Place, Failure> {
        let found = tab.eval(&format!(
            "((over) => {{ over.scrollIntoView({{ block: 'center' }}); const box = over.getBoundingClientRect(); \
             return [Math.round(box.x + box.width * {across}), Math.round(box.y + box.height * {down})]; }})(document.querySelector({}))",
            json!(self.over)
        ))?;
        place_of(&found)
    }

    /// Something that is drawn.
    fn thing(&self, tab: &mut BrowserTab) -> Result<Place, Failure> {
        self.show(tab)?;
        let found = tab.eval(&format!("{FIND}(document.querySelector({}))", json!(self.over)))?;
        place_of(&found)
    }

    /// Drags from one place to another, by shares, over all that was shown before.
    fn drag(&self, tab: &mut BrowserTab, from: Place, to: Place) -> Result<(), Failure> {
        self.show(tab)?;
        let from = self.place(tab, from.0, from.1)?;
        let to = self.place(tab, to.0, to.1)?;
        mouse(tab, "mouseMoved", from, 0)?;
        mouse(tab, "mousePressed", from, 1)?;
        mouse(tab, "mouseMoved", between(from, to, 0.5), 1)?;
        mouse(tab, "mouseMoved", to, 1)?;
        mouse(tab, "mouseReleased", to, 0)
    }

    /// That what was done meanwhile has changed nothing.
    fn is_as_before(&self, tab: &mut BrowserTab, what: &str) -> Result<(), Failure> {
        frame(tab)?;
        assert_eq!(tab.eval("location.hash")?, json!(format!("#/{}", self.view)), "{what}");
        Ok(())
    }
}

fn place_of(found: &Value) -> Result<Place, Failure> {
    let place = found[0].as_f64().zip(found[1].as_f64());
    place.ok_or_else(|| format!("no place: {found}").into())
}

fn between(from: Place, to: Place, share: f64) -> Place {
    let part = |from: f64, to: f64| from + (to - from) * share;
    (part(from.0, to.0), part(from.1, to.1))
}

fn mouse(tab: &mut BrowserTab, kind: &str, (x, y): Place, buttons: u32) -> Result<(), Failure> {
    let button = if buttons == 0 && kind == "mouseMoved" {
        "none"
    } else {
        "left"
    };
    let event = json!({ "type": kind, "x": x, "y": y, "button": button, "buttons": buttons, "clickCount": 1 });
    tab.send("Input.dispatchMouseEvent", event).map(drop)
}

/// A press during which the hand moves by a pixel.
fn tremble(tab: &mut BrowserTab, (x, y): Place) -> Result<(), Failure> {
    mouse(tab, "mouseMoved", (x, y), 0)?;
    mouse(tab, "mousePressed", (x, y), 1)?;
    mouse(tab, "mouseMoved", (x, y + 1.0), 1)?;
    mouse(tab, "mouseReleased", (x, y + 1.0), 0)
}

/// Tells where all fingers are that touch by now.
fn touch(tab: &mut BrowserTab, kind: &str, fingers: &[Place]) -> Result<(), Failure> {
    let fingers = fingers.iter().enumerate();
    let points: Vec<Value> = fingers
        .map(|(id, (x, y))| json!({ "id": id, "x": x, "y": y }))
        .collect();
    let event = json!({ "type": kind, "touchPoints": points });
    tab.send("Input.dispatchTouchEvent", event).map(drop)
}

/// Seven spans of a trace and a signal, each a second after the one before and twice as long, and log records; the drawings of them: the map of
/// the trace, durations over time, the signal, and counts of log records.
fn draw(mixer: &TestMixer) -> Result<[PageDrawing; 4], Failure> {
    let begin = chrono::Utc::now().timestamp_millis() - 60_000;
    let ts = |ms: i64| {
        let at = DateTime::from_timestamp_millis(begin + ms).unwrap_or_default();
        at.to_rfc3339_opts(SecondsFormat::Millis, true)
    };
    let (mut spans, mut logs) = (Vec::new(), Vec::new());
    for number in 0..7_i64 {
        let (span, length) = (format!("{:016x}", number + 1), 10 << number);
        spans.push(
            json!({ "ts": ts(number * 1_000), "trace_id": TRACE, "span_id": span, "span_name": format!("step-{number}"),
            "duration_ms": length, "status": "ok", "entity_name": "shop", "flux_id": FLUX }),
        );
        logs.push(json!({ "ts": ts(number * 1_000 + 500), "level": "info", "message": format!("said-{number}"), "entity_name": "shop",
            "flux_id": FLUX }));
    }
    ingest(mixer, "traces", &spans)?;
    ingest(mixer, "logs", &logs)?;
    let times = format!("since={}&until={}", ts(-1_000), ts(8_000));
    let drawing = |view: String, over, start, length| PageDrawing {
        view,
        over,
        start,
        length,
    };
    Ok([
        drawing(format!("traces?trace_id={TRACE}"), ".trace-map .u-over", begin, LENGTH),
        drawing(
            format!("traces?{times}"),
            ".spans-page .chart .u-over",
            begin - 1_000,
            9_000,
        ),
        drawing(format!("signal?flux_id={FLUX}"), ".signal .u-over", begin, LENGTH),
        drawing(format!("logs?{times}"), ".histogram .u-over", begin - 1_000, 9_000),
    ])
}

/// What the mouse does to every drawing.
fn takes_the_mouse(tab: &mut BrowserTab, drawing: &PageDrawing) -> Result<(), Failure> {
    let zoomed = drawing.asks(0.25, 0.75);
    drawing.show(tab)?;
    // Nothing is drawn there.
    let empty = drawing.place(tab, 0.13, 0.5)?;
    tremble(tab, empty)?;
    drawing.is_as_before(tab, "a press beside all that is drawn")?;
    drawing.drag(tab, (0.25, 0.45), (0.75, 0.55))?;
    tab.wait(&zoomed)?;
    drawing.drag(tab, (0.25, 0.5), (0.75, 2.5))?;
    tab.wait(&zoomed)?;
    drawing.drag(tab, (0.75, 0.5), (0.25, -1.0))?;
    tab.wait(&zoomed)?;
    // It is made anew in other colours.
    drawing.show(tab)?;
    tab.click_on("button", "Light or dark")?;
    drawing.drag(tab, (0.25, 0.45), (0.75, 0.55))?;
    tab.wait(&zoomed)
}

/// What fingers do to every drawing.
fn takes_fingers(tab: &mut BrowserTab, drawing: &PageDrawing) -> Result<(), Failure> {
    drawing.show(tab)?;
    let from = drawing.place(tab, 0.25, 0.5)?;
    let to = drawing.place(tab, 0.75, 0.5)?;
    touch(tab, "touchStart", &[from])?;
    for share in [0.25, 0.5, 0.75, 1.0] {
        touch(tab, "touchMove", &[between(from, to, share)])?;
    }
    touch(tab, "touchEnd", &[])?;
    tab.wait(&drawing.asks(0.25, 0.75))?;
    drawing.show(tab)?;
    let middle = between(from, to, 0.5);
    touch(tab, "touchStart", &[from])?;
    touch(tab, "touchStart", &[from, middle])?;
    for share in [0.6, 0.8, 1.0] {
        touch(tab, "touchMove", &[from, between(from, to, share)])?;
    }
    touch(tab, "touchEnd", &[])?;
    drawing.is_as_before(tab, "two fingers")?;
    // They have made the page larger.
    let scale = json!({ "pageScaleFactor": 1 });
    tab.send("Emulation.setPageScaleFactor", scale).map(drop)
}

#[test]
fn drawings_take_presses_and_drags_of_a_mouse_and_of_fingers() -> Result<(), Failure> {
    let mixer = TestMixer::start("")?;
    let drawings = draw(&mixer)?;
    let mut tab = open(&mixer, "overview")?;
    for drawing in &drawings {
        takes_the_mouse(&mut tab, drawing)?;
        takes_fingers(&mut tab, drawing)?;
    }
    let [_, durations, signal, _] = &drawings;
    // The point that is highest is that of the longest span.
    let point = durations.thing(&mut tab)?;
    tremble(&mut tab, point)?;
    tab.wait("location.hash.includes('&span=0000000000000007')")?;
    tab.wait(&durations.asks(0.0, 1.0))?;
    // A box has times and durations, also those of one that is narrow.
    for (from, to) in [(0.25, 0.75), (0.5, 0.52)] {
        durations.drag(&mut tab, (from, 0.1), (to, 0.9))?;
        tab.wait(&durations.asks(from, to))?;
        tab.wait("/&min_duration_ms=[\\d.]+&max_duration_ms=[\\d.]+$/.test(location.hash)")?;
    }
    let bar = signal.thing(&mut tab)?;
    tremble(&mut tab, bar)?;
    let opened = json!(format!("#/{}&row=span%3A0000000000000001", signal.view));
    tab.wait(&format!("location.hash === {opened}"))?;
    assert_eq!(tab.faults(), Vec::<String>::new());
    Ok(())
}
