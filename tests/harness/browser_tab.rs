//! A tab of a real browser (Chromium without a window), driven over its debugging pipe.
//!
//! # Invariants
//!
//! - What goes wrong in the page is kept ([`BrowserTab::faults`]): exceptions, errors of the console (refusals by the content security policy
//!   among them), dialogs, and requests to other origins. So is what the page asks to be changed ([`BrowserTab::changes`]).
//! - The browser ends with this; its profile is a temporary folder.
//!
//! Not here: pages of attackers (`suite::browser`).

mod accessible;

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use base64::Engine as _;
use serde_json::{Value, json};

use crate::{Failure, eventually};

/// How long something in a page may take.
const SOON: Duration = Duration::from_secs(30);
/// The number of a command for whose answer nobody waits.
const UNAWAITED: i32 = i32::MAX;

/// A request of the page that is no question.
#[derive(Debug, Clone)]
pub struct SentChange {
    /// `POST` and such.
    pub method: String,
    /// With its parameters, without the origin.
    pub path: String,
    /// The body, as it was sent.
    pub body: String,
}

/// See the module.
#[derive(Debug)]
pub struct BrowserTab {
    child: Child,
    commands: ChildStdin,
    messages: Receiver<Value>,
    /// The debugger's name of the tab.
    session: String,
    last_id: u64,
    origin: String,
    faults: Vec<String>,
    changes: Vec<SentChange>,
    profile: tempfile::TempDir,
}

impl BrowserTab {
    /// Opens an address in a window of so many pixels.
    ///
    /// # Errors
    /// If Chromium is not installed, or does not start.
    pub fn open(url: &str, size: (u32, u32)) -> Result<Self, Failure> {
        Self::open_with(url, size, "")
    }

    /// The same; a script runs in every page before those of its own.
    ///
    /// # Errors
    /// See [`open`](Self::open).
    pub fn open_with(url: &str, size: (u32, u32), script: &str) -> Result<Self, Failure> {
        // Now and then the browser ends while it starts, which is not what is looked at here.
        let mut tab = Self::start(url, size).or_else(|error| {
            eprintln!("the browser is started once more: {error}");
            Self::start(url, size)
        })?;
        for domain in ["Runtime", "Log", "Network", "Page"] {
            tab.send(&format!("{domain}.enable"), json!({}))?;
        }
        tab.resize(size)?;
        tab.send("Page.addScriptToEvaluateOnNewDocument", json!({ "source": script }))?;
        tab.go(url)?;
        Ok(tab)
    }

    /// Starts a browser and takes its first tab.
    fn start(url: &str, (width, height): (u32, u32)) -> Result<Self, Failure> {
        let profile = tempfile::tempdir()?;
        // The browser reads commands from descriptor 3 and writes answers to 4.
        let start = r#"exec chromium --headless --no-sandbox --disable-gpu --disable-background-networking --remote-debugging-pipe \
            --user-data-dir="$0" --window-size="$1" about:blank 3<&0 4>&1 0</dev/null 1>&2 2>"$0/said""#;
        let mut child = Command::new("sh")
            .args(["-c", start])
            .arg(profile.path())
            .arg(format!("{width},{height}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("chromium: {error}; install Debian's package chromium"))?;
        let (commands, answers) = (child.stdin.take(), child.stdout.take());
        let (Some(commands), Some(answers)) = (commands, answers) else {
            return Err("the browser has no pipes".into());
        };
        let (tell, messages) = channel();
        std::thread::spawn(move || {
            let parts = BufReader::new(answers).split(0).map_while(Result::ok);
            for message in parts.filter_map(|part| serde_json::from_slice(&part).ok()) {
                if tell.send(message).is_err() {
                    return;
                }
            }
        });
        let origin = url.split('/').take(3).collect::<Vec<_>>().join("/");
        let mut tab = Self {
            child,
            commands,
            messages,
            session: String::new(),
            last_id: 0,
            origin,
            faults: Vec::new(),
            changes: Vec::new(),
            profile,
        };
        // It can make no tab yet, and opens the first one itself.
        let first = |targets: &Value| {
            let mut targets = targets["targetInfos"].as_array()?.iter();
            targets.find(|target| target["type"] == "page").cloned()
        };
        let target = eventually("the first tab", SOON, || {
            match tab.send("Target.getTargets", json!({})) {
                Ok(targets) => first(&targets).map(Ok),
                Err(error) => Some(Err(error)),
            }
        })??;
        let attached = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = tab.send("Target.attachToTarget", attached)?;
        tab.session = attached["sessionId"].as_str().ok_or("no session")?.to_owned();
        Ok(tab)
    }

    /// Makes the window as large as a device's.
    ///
    /// # Errors
    /// If the browser is gone.
    pub fn resize(&mut self, (width, height): (u32, u32)) -> Result<(), Failure> {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.send("Emulation.setDeviceMetricsOverride", size).map(drop)
    }

    /// Goes to another address.
    ///
    /// # Errors
    /// If the browser is gone.
    pub fn go(&mut self, url: &str) -> Result<(), Failure> {
        self.send("Page.navigate", json!({ "url": url })).map(drop)
    }

    /// What an expression of JavaScript is, also one that has to be awaited.
    ///
    /// # Errors
    /// If it throws.
    pub fn eval(&mut self, expression: &str) -> Result<Value, Failure> {
        let asked = json!({ "expression": format!("(async () => ({expression}))()"), "awaitPromise": true, "returnByValue": true });
        let mut answer = self.send("Runtime.evaluate", asked)?;
        match answer.get("exceptionDetails") {
            Some(thrown) => Err(format!("{expression}: {thrown}").into()),
            None => Ok(answer["result"]["value"].take()),
        }
    }

    /// Runs a script as the browser's developer would, whatever the page's content security policy says.
    ///
    /// # Errors
    /// If it throws.
    pub fn run(&mut self, script: &str) -> Result<(), Failure> {
        let answer = self.send("Runtime.evaluate", json!({ "expression": script }))?;
        match answer.get("exceptionDetails") {
            Some(thrown) => Err(thrown.to_string().into()),
            None => Ok(()),
        }
    }

    /// Waits until an expression is true.
    ///
    /// # Errors
    /// If it does not become so.
    pub fn wait(&mut self, expression: &str) -> Result<(), Failure> {
        let mut last = String::new();
        let found = eventually(expression, SOON, || match self.eval(expression) {
            Ok(Value::Bool(true)) => Some(()),
            Ok(other) => {
                last = other.to_string();
                None
            }
            Err(error) => {
                last = error.to_string();
                None
            }
        });
        found.map_err(|error| {
            let shown = self.eval("document.body.innerText.slice(0, 2000)").unwrap_or_default();
            format!("{error}; it was {last}; the page shows {shown}; {:?}", self.faults).into()
        })
    }

    /// Waits until the page shows a text.
    ///
    /// # Errors
    /// If it does not.
    pub fn shows(&mut self, text: &str) -> Result<(), Failure> {
        self.wait(&format!("document.body.innerText.includes({})", json!(text)))
    }

    /// Presses a key, by its name in the browser: `j`, `Enter`, `Escape`, `Tab`.
    ///
    /// # Errors
    /// If the browser is gone.
    pub fn press(&mut self, key: &str) -> Result<(), Failure> {
        let text = match key {
            "Enter" => Some("\r"),
            one if one.chars().count() == 1 => Some(one),
            _ => None,
        };
        let code = match key {
            "Enter" => 13,
            "Escape" => 27,
            "Tab" => 9,
            "ArrowUp" => 38,
            "ArrowDown" => 40,
            one => one.bytes().next().unwrap_or_default().to_ascii_uppercase().into(),
        };
        for kind in ["keyDown", "keyUp"] {
            let mut event = json!({ "type": kind, "key": key, "windowsVirtualKeyCode": code });
            if let (Some(text), "keyDown") = (text, kind) {
                event["text"] = json!(text);
            }
            self.send("Input.dispatchKeyEvent", event)?;
        }
        Ok(())
    }

    /// Types a text where the focus is.
    ///
    /// # Errors
    /// If the browser is gone.
    pub fn type_text(&mut self, text: &str) -> Result<(), Failure> {
        self.send("Input.insertText", json!({ "text": text })).map(drop)
    }

    /// Presses what a selector finds, with the mouse.
    ///
    /// # Errors
    /// If it finds nothing.
    pub fn click(&mut self, selector: &str) -> Result<(), Failure> {
        let selector = json!(selector);
        self.wait(&format!("document.querySelector({selector}) !== null"))?;
        let place = self.eval(&format!(
            "(found => {{ found.scrollIntoView({{ block: 'center' }}); const box = found.getBoundingClientRect(); \
             return {{ x: box.x + box.width / 2, y: box.y + box.height / 2 }}; }})(document.querySelector({selector}))"
        ))?;
        self.click_at(&place)
    }

    fn click_at(&mut self, place: &Value) -> Result<(), Failure> {
        for kind in ["mousePressed", "mouseReleased"] {
            let event = json!({ "type": kind, "x": place["x"], "y": place["y"], "button": "left", "clickCount": 1 });
            self.send("Input.dispatchMouseEvent", event)?;
        }
        Ok(())
    }

    /// Writes a picture of what is shown: as WebP, which is small, if the file's name ends so, or else as PNG.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn screenshot(&mut self, path: &Path) -> Result<(), Failure> {
        let format = match path.extension() {
            Some(end) if end == "webp" => json!({ "format": "webp", "quality": 70 }),
            _ => json!({ "format": "png" }),
        };
        let shot = self.send("Page.captureScreenshot", format)?;
        let bytes = base64::engine::general_purpose::STANDARD.decode(shot["data"].as_str().unwrap_or_default())?;
        Ok(std::fs::write(path, bytes)?)
    }

    /// What went wrong in the page so far.
    pub fn faults(&mut self) -> &[String] {
        self.note_all();
        &self.faults
    }

    /// What the page asked to be changed so far: its requests but for those that only read by their method.
    pub fn changes(&mut self) -> &[SentChange] {
        self.note_all();
        &self.changes
    }

    fn note_all(&mut self) {
        while let Ok(message) = self.messages.try_recv() {
            self.note(&message);
        }
    }

    /// The browser's process; those of its pages are below it.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Gives a command of the debugger's protocol; its answer.
    ///
    /// # Errors
    /// If the browser refuses it, or is gone.
    pub fn send(&mut self, method: &str, parameters: Value) -> Result<Value, Failure> {
        self.last_id += 1;
        let mut command = json!({ "id": self.last_id, "method": method, "params": parameters });
        if !self.session.is_empty() {
            command["sessionId"] = json!(self.session);
        }
        self.commands.write_all(command.to_string().as_bytes())?;
        self.commands.write_all(&[0])?;
        loop {
            let mut message = self
                .messages
                .recv_timeout(SOON)
                .map_err(|error| format!("{method}: {error}; the browser said:\n{}", self.said()))?;
            if message["id"] == self.last_id {
                return match message.get("error") {
                    Some(error) => Err(format!("{method}: {error}").into()),
                    None => Ok(message["result"].take()),
                };
            }
            self.note(&message);
        }
    }

    /// What the browser's own log has, its end.
    fn said(&self) -> String {
        let log = std::fs::read(self.profile.path().join("said")).unwrap_or_default();
        String::from_utf8_lossy(&log[log.len().saturating_sub(2_000)..]).into_owned()
    }

    fn note(&mut self, message: &Value) {
        let parameters = &message["params"];
        let fault = match message["method"].as_str() {
            Some("Runtime.exceptionThrown") => Some(parameters["exceptionDetails"].to_string()),
            Some("Runtime.consoleAPICalled") if parameters["type"] == "error" => Some(parameters["args"].to_string()),
            Some("Log.entryAdded") if parameters["entry"]["level"] == "error" => Some(parameters["entry"].to_string()),
            Some("Page.javascriptDialogOpening") => {
                // Until it is closed the page stands still.
                let close = json!({ "id": UNAWAITED, "method": "Page.handleJavaScriptDialog", "params": { "accept": false }, "sessionId": self.session });
                self.commands.write_all(format!("{close}\0").as_bytes()).ok();
                Some(format!("a dialog: {}", parameters["message"]))
            }
            Some("Network.requestWillBeSent") => {
                let url = parameters["request"]["url"].as_str().unwrap_or_default();
                let change = self.change_of(&parameters["request"]);
                self.changes.extend(change);
                let is_own = url.starts_with(&self.origin)
                    || ["data:", "blob:", "about:"].iter().any(|own| url.starts_with(own));
                (!is_own).then(|| format!("a request to {url}"))
            }
            _ => None,
        };
        self.faults.extend(fault);
    }

    /// A request, if it is one that may change something.
    fn change_of(&self, request: &Value) -> Option<SentChange> {
        let text = |key: &str| request[key].as_str().unwrap_or_default().to_owned();
        let path = text("url").strip_prefix(&self.origin)?.to_owned();
        (!["GET", "HEAD"].contains(&request["method"].as_str()?)).then(|| SentChange {
            method: text("method"),
            path,
            body: text("postData"),
        })
    }
}

impl Drop for BrowserTab {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
