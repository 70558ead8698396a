//! Where somebody may come to: an empty store, addresses that lead nowhere, and links, back and forward, which restore what was shown.

use std::collections::BTreeSet;

use super::*;

/// What an empty store says is to be done next, by view.
const NEXT: [(&str, &str); 14] = [
    ("overview", "platform run"),
    ("logs", "platform run"),
    ("logs?live=1&entity=press", "platform logs --entity press --follow"),
    ("traces", "platform traces --since 7d"),
    ("traces?view=services", "platform services --since 7d"),
    ("metrics", "export OTEL_EXPORTER_OTLP_ENDPOINT="),
    ("signal", "platform messages --since 7d"),
    ("sql", "Which tables and columns there are"),
    ("fleet", "platform racks invite press-1"),
    ("fleet?view=scenarios", "platform scenario import press.yaml"),
    ("fleet?view=topology", "platform scenario activate press.yaml"),
    ("dead-letters", "platform dlq list --state all"),
    ("storage", "platform-mixer retention --dry-run"),
    (
        "security?view=tokens",
        "platform token create grafana --role reader --expires-in 90d",
    ),
];
/// What is said of addresses that somebody got wrong.
const WRONG: [(&str, &str); 15] = [
    ("nosuch", "There is no page nosuch."),
    (
        "logs?level=loud",
        "unknown variant `loud`, expected one of `debug`, `info`, `warn`, `error`",
    ),
    (
        "logs?since=yesterday",
        "since: \"yesterday\" is not a time (RFC 3339 such as 2026-11-21T10:00:00Z, or an age such as 1h)",
    ),
    ("logs?row=nonsense", "\"nonsense\" is not a row's position"),
    ("logs?q=nosuch", "Remove one above"),
    ("traces?trace_id=xyz", "\"xyz\" is not a trace id of 32 hex digits"),
    (
        "traces?trace_id=ffffffffffffffffffffffffffffffff",
        "platform logs --trace-id ffff",
    ),
    ("metrics?since=never", "an age such as 1h"),
    ("signal?flux_id=nonsense", "\"nonsense\" is not a UUID"),
    ("sql?q=SELEC+1", "line 1, column 1"),
    ("sql?q=SELECT+nosuch+FROM+logs", "Valid fields are logs.ts"),
    ("sql?q=DELETE+FROM+logs", "statements only read"),
    ("fleet?rack=nobody", "platform racks list"),
    ("dead-letters?letter=nosuch", "as platform dlq list shows them"),
    (
        "security?view=tokens&token=nosuch",
        "it was revoked, or has another name",
    ),
];
/// Views with all that may be chosen in them.
const VIEWS: [&str; 14] = [
    "overview",
    "logs?since=6h&min_level=warn&q=order&view=table&side=off",
    "logs?level=error&facet=entity_name&view=json",
    "traces?status=ok&min_duration_ms=10",
    "traces?view=services&sort=spans:up",
    "traces?trace_id=00000000000000000000000000000001&details=logs",
    "metrics?q=mail&names=on",
    "signal?flux_id=01a22a92-f683-734c-8760-000000000001&hide=log",
    "sql?q=SELECT+level%2C+count(*)+AS+n+FROM+logs+GROUP+BY+level&view=table&limit=100",
    "fleet?view=scenarios&do=import",
    "dead-letters?state=all&reason=time",
    "storage",
    "security?view=audit&kind=token_created",
    "security?view=checks",
];
/// What tells a view from others: headings, what is chosen, what fields have, how many rows there are; without ages. It waits until nothing of
/// that changes.
const SIGNATURE: &str = "(async () => {
    const all = (selector, of) => [...document.querySelectorAll(selector)].map(of);
    const text = ({ textContent }) => textContent.replace(/([\\d.]+ (ms|s|min|h|d)\\b ?)+/g, 'AGE ');
    const take = () => JSON.stringify([
        document.title,
        all('main h2, main h3, main [aria-current], main [aria-pressed=true], main [aria-expanded=true], main [role=columnheader]', text),
        all('main input, main select, main textarea', ({ type, checked, value }) => (type === 'checkbox' ? checked : value)),
        all('main [aria-rowcount]', ({ ariaLabel, ariaRowCount }) => [ariaLabel, ariaRowCount]),
    ]);
    for (let [before, still] = ['', 0]; ; before = take()) {
        await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
        still = take() === before && !document.querySelector('progress') ? still + 1 : 0;
        if (still === 10) return before;
    }
})()";

fn signature(tab: &mut BrowserTab) -> Result<Value, Failure> {
    tab.eval(SIGNATURE)
}

/// Waits until what is shown is what was shown.
fn is_restored(tab: &mut BrowserTab, place: &(Value, Value), how: &str) -> Result<(), Failure> {
    let (hash, shown) = place;
    tab.wait(&format!("location.hash === {hash}"))
        .map_err(|error| format!("{how}: {error}"))?;
    let now = signature(tab)?;
    assert_eq!(now, *shown, "{how}: {hash}");
    Ok(())
}

/// Goes through views, loads each anew, and goes all the way back and forward.
fn restores_views(tab: &mut BrowserTab) -> Result<(), Failure> {
    let mut places = Vec::new();
    let mut note = |tab: &mut BrowserTab| -> Result<(), Failure> {
        let shown = signature(tab)?;
        let place = (tab.eval("location.hash")?, shown);
        reload(tab)?;
        is_restored(tab, &place, "loaded anew")?;
        places.push(place);
        Ok(())
    };
    for view in VIEWS {
        visit(tab, view)?;
        note(tab)?;
    }
    // What somebody chose stands in the address as well.
    visit(tab, "metrics")?;
    note(tab)?;
    tab.click_on("button", "Add a chart of mail sent")?;
    tab.wait("location.hash.includes('chart=')")?;
    note(tab)?;
    visit(tab, "logs?q=mail")?;
    note(tab)?;
    tab.press("j")?;
    tab.wait("document.querySelector('[role=table] [role=row][aria-selected=true]') !== null")?;
    frame(tab)?;
    tab.press("Enter")?;
    tab.wait("location.hash.includes('row=')")?;
    note(tab)?;

    let told: BTreeSet<String> = places.iter().map(|(_, shown)| shown.to_string()).collect();
    assert_eq!(told.len(), places.len(), "views that cannot be told apart");
    for place in places.iter().rev().skip(1) {
        tab.eval("history.back()")?;
        is_restored(tab, place, "back")?;
    }
    for place in places.iter().skip(1) {
        tab.eval("history.forward()")?;
        is_restored(tab, place, "forward")?;
    }
    Ok(())
}

#[test]
fn an_empty_store_and_a_wrong_address_say_what_to_do_and_links_restore_their_view() -> Result<(), Failure> {
    let mixer = TestMixer::start("")?;
    let mut tab = open(&mixer, "overview")?;
    for (view, next) in NEXT {
        visit(&mut tab, view)?;
        tab.shows(next).map_err(|error| format!("{view}: {error}"))?;
    }
    assert_eq!(tab.faults(), Vec::<String>::new());
    for (view, says) in WRONG {
        visit(&mut tab, view)?;
        tab.shows(says).map_err(|error| format!("{view}: {error}"))?;
    }
    fill(&mixer, &["order accepted", "payment refused", "mail sent"])?;
    restores_views(&mut tab)?;
    assert_eq!(own_faults(&mut tab), Vec::<String>::new());
    Ok(())
}
