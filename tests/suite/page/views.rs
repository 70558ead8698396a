//! Every view as it is shown, to all: both themes, a phone, screen readers (axe-core), and by keyboard alone.

use std::path::PathBuf;

use super::*;
use crate::dlq::{LetterPlant, lines};

const PHONE: (u32, u32) = (360, 740);
/// Views within pages, and the names of their pictures.
const MORE: [(&str, &str); 9] = [
    ("logs?view=table&side=off", "logs-table"),
    ("traces?view=map", "service-map"),
    ("traces?trace_id=00000000000000000000000000000001", "trace"),
    ("signal?flux_id=01a22a92-f683-734c-8760-000000000001", "one-signal"),
    (
        "sql?q=SELECT+level%2C+count(*)+AS+n+FROM+logs+GROUP+BY+level",
        "sql-answer",
    ),
    ("fleet?view=scenarios&scenario=plant:1", "scenarios"),
    ("fleet?view=topology", "topology"),
    ("security?view=audit", "audit"),
    ("security?view=checks", "checks"),
];
/// What a picture may have, so that they can be kept with the source.
const MOST_BYTES: u64 = 120 << 10;

/// Where pictures go, if they are asked for.
fn pictures() -> Option<PathBuf> {
    std::env::var_os("PLATFORM_TEST_SCREENSHOTS").map(PathBuf::from)
}

#[test]
fn every_view_shows_real_rows_in_both_themes_and_on_a_phone_and_axe_finds_nothing() -> Result<(), Failure> {
    let world = LetterPlant::start()?;
    fill(&world.mixer, &["shop", "payment", "mail"])?;
    world.write(&lines(0..3, "bad"))?;
    world.letters("gear=pass", 3)?;
    let mut tab = open(&world.mixer, "overview")?;
    visit(&mut tab, "overview")?;
    let titles = PAGES.map(|(_, title)| title);
    let offered = tab.eval("[...document.querySelectorAll('header nav a')].map((link) => link.textContent)")?;
    assert_eq!(offered, json!(titles), "pages without a test");
    for theme in ["light", "dark"] {
        tab.eval(&format!("localStorage.setItem('platform.theme', '{theme}')"))?;
        reload(&mut tab)?;
        for (view, name) in PAGES.map(|(page, _)| (page, page)).into_iter().chain(MORE) {
            visit(&mut tab, view)?;
            if let Some(folder) = pictures() {
                let path = folder.join(format!("{name}-{theme}.webp"));
                tab.screenshot(&path)?;
                let bytes = path.metadata()?.len();
                assert!(bytes <= MOST_BYTES, "{}: {bytes} bytes", path.display());
            }
            is_accessible(&mut tab, &format!("{view} {theme}"))?;
            tab.resize(PHONE)?;
            let is_wider = tab.eval("document.documentElement.scrollWidth > innerWidth + 1")?;
            assert_eq!(is_wider, json!(false), "{view} is wider than a phone");
            tab.resize(DESK)?;
        }
    }
    assert_eq!(tab.faults(), Vec::<String>::new());
    Ok(())
}

#[test]
#[ignore = "takes the picture of README.md from a running demo: web/README.md"]
fn logs_of_the_demo_as_a_picture() -> Result<(), Failure> {
    let (folder, mixer) = (
        pictures().ok_or("PLATFORM_TEST_SCREENSHOTS is not set")?,
        std::env::var("PLATFORM_API_URL")?,
    );
    let mut tab = BrowserTab::open(&format!("{mixer}/#/logs?since=2m"), DESK)?;
    tab.eval("localStorage.setItem('platform.theme', 'light')")?;
    reload(&mut tab)?;
    visit(&mut tab, "logs?since=5m")?;
    assert!(
        tab.eval("document.querySelectorAll('[role=rowgroup] [role=row]').length")?
            .as_u64()
            > Some(10)
    );
    tab.screenshot(&folder.join("demo.webp"))?;
    assert_eq!(tab.faults(), Vec::<String>::new());
    Ok(())
}

#[test]
fn keys_lead_everywhere_and_a_row_opens_and_closes_by_them() -> Result<(), Failure> {
    let mixer = TestMixer::start("")?;
    fill(&mixer, &["order accepted", "payment refused"])?;
    let mut tab = open(&mixer, "overview")?;
    visit(&mut tab, "overview")?;
    let keys = ["o", "l", "t", "m", "s", "q", "f", "d", "b", "a"];
    for (key, (page, title)) in keys.into_iter().zip(PAGES) {
        tab.eval("document.activeElement.blur()")?;
        tab.press("g")?;
        tab.press(key)?;
        tab.wait(&format!("document.title === {}", json!(format!("{title} · Platform"))))?;
        visit(&mut tab, page)?;
    }
    tab.press("?")?;
    tab.shows("next and previous row")?;
    tab.press("Escape")?;
    tab.wait("document.querySelector('dialog') === null")?;
    visit(&mut tab, "logs")?;
    tab.wait("document.querySelector('[role=table] [role=row] [role=cell]') !== null")?;
    tab.press("j")?;
    tab.wait("document.querySelector('[role=table] [role=row][aria-selected=true]') !== null")?;
    frame(&mut tab)?;
    tab.press("Enter")?;
    tab.wait("document.querySelector('aside.drawer:focus-within') !== null")?;
    tab.press("Escape")?;
    tab.wait("document.querySelector('aside.drawer') === null")?;
    assert_eq!(tab.faults(), Vec::<String>::new());
    Ok(())
}
