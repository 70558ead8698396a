//! Cross-site scripting: ten thousand generated values in every text that the API takes, and in addresses, are shown as text and do nothing.
//!
//! A value that ran would set a marker, open a dialog, write to the console, or ask another origin; one that were taken for markup would make
//! elements that the page never makes. Each is looked for at every step of every list.

use harness::TestRack;
use serde_json::Map;

use super::hostile_text::HostileText;
use super::*;

/// The values that there are at least.
const VALUES: u64 = 10_000;
/// All that addresses of the page may have.
const PARAMETERS: &str = "q entity service span_name trace_id trace span id flux_id row zoom find hide lanes cell scenario rack label state letter \
                          token entry kind side metric names board interval refresh chart w p.x explain limit sort by facet col level min_level \
                          attr.x gear_id reason gear subject roots min_duration_ms max_duration_ms closed depth critical details cursor";
/// Parameters of which a broken one leaves nothing to be shown.
const DECISIVE: &str = "since until view do";
/// Goes to a view and over all of its lists; how many rows of each were in the document, of how many.
const WALK: &str = r#"(async (view, more = [], within = "body") => {
    const frame = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
    const strange = `img, iframe, object, embed, base, audio, video, math, template, [srcdoc], [onerror], [onload], [onclick], [onfocus], [ontoggle],
        #page meta, #page script, #page style, #page a[href]:not([href^='#']), #page form[action]`;
    const look = () => {
        const made = document.querySelector(strange);
        if (made) throw new Error(`${view}: the page has made ${made.outerHTML.slice(0, 300)}`);
    };
    location.hash = `#/${view}${more.length ? `${view.includes("?") ? "&" : "?"}${new URLSearchParams(more)}` : ""}`;
    for (let still = 0; still < 3; still = document.querySelector("main") && !document.querySelector("progress") ? still + 1 : 0) await frame();
    const lists = {};
    for (const box of document.querySelectorAll(`${within} :is([role=table], [role=region], [tabindex="0"])`)) {
        const seen = new Set();
        box.scrollTop = 0;
        for (let still = 0; still < 3;) {
            await frame();
            for (const row of box.querySelectorAll("[aria-rowindex]")) seen.add(row.ariaRowIndex);
            look();
            const before = box.scrollTop;
            box.scrollTop += box.clientHeight;
            still = box.scrollTop === before && !document.querySelector("progress") ? still + 1 : 0;
        }
        if (box.ariaRowCount) lists[box.ariaLabel] = [seen.size, Number(box.ariaRowCount)];
    }
    look();
    return lists;
})"#;

/// Rows of every table, all of whose texts are hostile, and bad ones, which become dead letters.
fn store(mixer: &TestMixer, text: &mut HostileText) -> Result<(), Failure> {
    let now = chrono::Utc::now();
    let ts = |number: u32| (now - chrono::TimeDelta::milliseconds(i64::from(number) * 500)).to_rfc3339();
    let flux = |number: u32| format!("01a22a92-f683-734c-8760-{:012x}", number / 40);
    let trace = |number: u32| format!("{:032x}", number / 40 + 1);
    let (mut logs, mut spans, mut points, mut bad) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for number in 0..1_000 {
        let level = ["debug", "info", "warn", "error"][number as usize % 4];
        let known = json!({ "trace_id": trace(number), "nested": { "a": text.value() } });
        logs.push(json!({ "ts": ts(number), "level": level, "message": text.value(), "entity_name": text.short(120), "flux_id": flux(number),
            "attributes": text.object(known) }));
    }
    for number in 0..700 {
        let parent = (number % 40 > 0).then(|| format!("{number:016x}"));
        spans.push(json!({ "ts": ts(number), "trace_id": trace(number), "span_id": format!("{:016x}", number + 1), "parent_span_id": parent,
            "span_name": text.value(), "duration_ms": 700 - number, "status": "error", "entity_name": text.short(120), "flux_id": flux(number),
            "attributes": text.object(json!({})) }));
    }
    for number in 0..350 {
        let unit = json!({ "otel.unit": text.value() });
        points.push(json!({ "ts": ts(number), "name": text.value(), "type": "gauge", "value": number, "entity_name": text.short(120),
            "labels": text.object(unit) }));
    }
    for (table, rows) in [("logs", logs), ("traces", spans), ("metrics", points)] {
        ingest(mixer, table, &rows)?;
    }
    for _ in 0..200 {
        bad.push(json!({ "ts": text.value(), "message": text.value() }).to_string());
    }
    let headers = [("Content-Type", "application/x-ndjson")];
    let kept = mixer
        .api
        .send("/api/v1/ingest/logs?rejected=keep", &headers, bad.join("\n").as_bytes())?;
    assert_eq!(kept.json["kept"], 200, "{}", kept.text);
    let dropped = mixer
        .api
        .post("/api/v1/dlq/drop", &json!({ "all": true, "by": text.short(100) }))?;
    assert_eq!(dropped.status, 200, "{}", dropped.text);
    Ok(())
}

/// What operators write: the text of a scenario, labels of a Rack, the scope of a token.
fn operate(mixer: &TestMixer, text: &mut HostileText) -> Result<(), Failure> {
    // A comment has no control characters, and ends with its line.
    let is_plain = |letter: &char| !letter.is_control() && !['\u{2028}', '\u{2029}'].contains(letter);
    let comments: Vec<String> = (0..100)
        .map(|_| format!("# {}\n", text.value().chars().filter(is_plain).collect::<String>()))
        .collect();
    let yaml = format!(
        "meta: {{ name: plant, version: '1' }}\nracks: [ {{ name: rack-a }} ]\ngears:\n  \
         - {{ name: sink, type: log_sink, deploy: rack-a }}\n{}",
        comments.concat()
    );
    let kind = [("content-type", "application/yaml")];
    let stored = mixer.api.send("/api/v1/scenarios", &kind, yaml.as_bytes())?;
    assert_eq!(stored.status, 200, "{}", stored.text);
    let activated = mixer
        .api
        .post("/api/v1/scenarios/plant:1/activate?wait=20s", &json!({}))?;
    assert_eq!(activated.status, 200, "{}", activated.text);
    let labels: Map<String, Value> = (0..40)
        .map(|number| (format!("k{number}"), json!(text.short(120))))
        .collect();
    let labelled = mixer.api.patch("/api/v1/racks/rack-a/labels", &Value::Object(labels))?;
    assert_eq!(labelled.status, 200, "{}", labelled.text);
    let entities: Vec<String> = (0..20).map(|_| text.short(120)).collect();
    let scope = json!({ "entities": entities, "racks": { "site": text.short(120) } });
    let made = mixer.api.post(
        "/api/v1/tokens",
        &json!({ "name": "narrow", "roles": ["reader"], "scope": scope }),
    )?;
    assert_eq!(made.status, 200, "{}", made.text);
    Ok(())
}

/// Goes over each view of what is stored: every row of every list is in the document once.
fn walk(tab: &mut BrowserTab) -> Result<(), Failure> {
    let rack = "fleet?rack=rack-a";
    let trace = format!("{:032x}", 2);
    let one_trace = format!("traces?trace_id={trace}&span={:016x}&details=span", 42);
    let statement = "sql?q=SELECT+ts%2C+message%2C+entity_name+AS+%22%3Cimg+src%3Dx+onerror%3Dwindow.__hostile%3D1%3E%22%2C+attributes+FROM+logs&view=table";
    let plan =
        "sql?q=EXPLAIN+SELECT+1+FROM+logs+WHERE+message+%3D+%27%3Cimg+src%3Dx+onerror%3Dwindow.__hostile%3D1%3E%27";
    for (view, list, least) in [
        ("overview", "", 0),
        ("logs?facet=level&facet=entity_name", "Log records", 1_000),
        ("logs?view=table", "Log records", 1_000),
        ("logs?view=json", "Log records", 1_000),
        ("traces", "Spans", 700),
        ("traces?view=services", "", 0),
        ("traces?view=map", "", 0),
        (one_trace.as_str(), "Spans of the trace", 40),
        ("metrics", "Names of metrics", 300),
        ("signal", "", 0),
        (
            "signal?flux_id=01a22a92-f683-734c-8760-000000000001",
            "Rows of the signal",
            80,
        ),
        (statement, "Result", 1_000),
        (plan, "", 0),
        ("sql?side=history", "", 0),
        ("fleet", "Racks", 1),
        (rack, "Racks", 1),
        ("fleet?view=scenarios&scenario=plant:1", "Scenarios", 1),
        ("fleet?view=topology", "", 0),
        ("dead-letters?state=all", "Dead letters", 200),
        ("storage", "", 0),
        ("security?view=tokens&token=narrow", "Tokens", 1),
        ("security?view=audit", "Audit log", 4),
    ] {
        let lists = tab.eval(&format!("{WALK}({})", json!(view)))?;
        for (name, rows) in lists.as_object().into_iter().flatten() {
            assert_eq!(rows[0], rows[1], "{view}, {name}");
        }
        let rows = lists[list][0].as_u64().unwrap_or_default();
        assert!(rows >= least, "{view}: {rows} rows of {lists}");
    }
    Ok(())
}

/// Opens some rows of each kind: their drawers have all fields.
fn open_rows(tab: &mut BrowserTab) -> Result<(), Failure> {
    for view in ["logs", "dead-letters?state=all", "security?view=audit", "metrics"] {
        visit(tab, view)?;
        for key in ["j", "Enter", "j", "j", "j", "j", "j", "j", "j", "j"] {
            tab.press(key)?;
            frame(tab)?;
        }
        let here = tab.eval("location.hash.slice(2)")?;
        assert!(
            here.as_str().is_some_and(|here| here.len() > view.len()),
            "nothing was opened: {here}"
        );
        tab.eval(&format!("{WALK}({here}, [], 'aside')"))?;
    }
    Ok(())
}

/// Opens addresses that somebody else made.
fn follow_links(tab: &mut BrowserTab, text: &mut HostileText) -> Result<(), Failure> {
    for view in [
        "overview",
        "logs",
        "traces",
        "metrics",
        "signal",
        "sql",
        "fleet",
        "fleet?view=scenarios",
        "fleet?view=topology",
        "dead-letters",
        "storage",
        "security?view=tokens",
        "security?view=audit",
    ] {
        for round in 0..4 {
            let names = PARAMETERS
                .split_whitespace()
                .chain(DECISIVE.split_whitespace().filter(|_| round == 0));
            let mut more: Vec<[String; 2]> = Vec::new();
            for name in names {
                if round < 2 || text.is_one_in(3) {
                    more.push([name.to_owned(), text.value()]);
                }
            }
            more.push([format!("attr.{}", text.value()), text.value()]);
            tab.eval(&format!("{WALK}({}, {})", json!(view), json!(more)))?;
        }
    }
    for _ in 0..10 {
        tab.eval(&format!("{WALK}({})", json!(text.value())))?;
    }
    Ok(())
}

#[test]
fn hostile_values_in_every_text_and_address_are_shown_as_text_and_do_nothing() -> Result<(), Failure> {
    let mixer = TestMixer::start("")?;
    let mut rack = TestRack::new("rack-a", &mixer.bus_url, "")?;
    rack.start()?;
    let mut text = HostileText::new();
    store(&mixer, &mut text)?;
    operate(&mixer, &mut text)?;
    let mut tab = open(&mixer, "overview")?;
    visit(&mut tab, "overview")?;
    walk(&mut tab)?;
    open_rows(&mut tab)?;
    let newest = mixer.api.rows("/api/v1/telemetry/logs?limit=5")?;
    let newest: Vec<&Value> = newest.iter().map(|row| &row["message"]).collect();
    visit(&mut tab, "logs")?;
    let texts = "[...document.querySelectorAll('[role=cell]')].map((cell) => cell.textContent)";
    let are_texts = format!(
        "{}.every((text) => {texts}.some((shown) => shown.startsWith(text)))",
        json!(newest)
    );
    assert_eq!(tab.eval(&are_texts)?, json!(true), "{newest:?}");
    assert_eq!(tab.faults(), Vec::<String>::new());

    follow_links(&mut tab, &mut text)?;
    assert_eq!(own_faults(&mut tab), Vec::<String>::new());
    assert!(text.made() >= VALUES, "{}", text.made());
    assert_eq!(tab.eval("window.__hostile === undefined")?, json!(true));

    // The marker would be seen, and so would an element: without the page's policy, one of the values runs.
    tab.eval("void document.body.append(document.createElement('img'))")?;
    let seen = tab
        .eval(&format!("{WALK}('overview')"))
        .err()
        .ok_or("an element was not seen")?;
    assert!(seen.to_string().contains("the page has made <img>"), "{seen}");
    tab.go("data:text/html,<p>")?;
    tab.wait("location.protocol === 'data:'")?;
    tab.eval("void (document.body.innerHTML = '<img src=x onerror=window.__hostile=7>')")?;
    tab.wait("window.__hostile === 7")
}
