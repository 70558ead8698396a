//! `wasm`: a module in WebAssembly handles each message, in a sandbox. What a module must be is in `docs/wasm.md`; why, in ADR 28.
//!
//! ```text
//! message ─▶ alloc(len) ─▶ process(at, len) ──┬─ returns ─▶ what it emitted leaves by out, a … d
//!                             │ flux.emit     ├─ rejects ─▶ the message is refused, with its reason
//!                             ▼ flux.log      └─ fails  ──▶ a new instance tries once more, then the message is refused
//! ```
//!
//! # Invariants
//!
//! - A message leaves all that its module made of it, or nothing.
//! - A message for which the module fails is handled by an instance that has handled no other before it is refused: what an
//!   instance has become is not the message's fault.
//! - What leaves are children of the message that came: the module decides body, facts and port, never ids, trace or hops.
//! - A guest holds at most its memory, burns at most its fuel for a message, and stands back in between ([`instance`]).
//!
//! # Not here
//!
//! What a module may import and must export ([`guest`]), what its calls do ([`host`]).

mod guest;
mod host;
mod instance;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::FutureExt;
use model::Level;
use model::gear_manifest::{self, GearConfig, GearManifest};
use model::message::{MessageContent, Message};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::{RawConfig, GearContext, GearError, Gear, PassiveGear, GearFuture};
use crate::inbox::InputMessage;
use guest::{GuestLimits, GuestModule, MAX_MODULE};
use host::GuestOutput;
use instance::{GuestInstance, SLICE};

/// The outputs, in the order of their numbers.
const OUTPUTS: &[&str] = &["out", "a", "b", "c", "d"];
/// The longest text of a module in a scenario, in bytes.
const MAX_CODE: usize = 256 * 1024;

/// What the type is.
pub(super) const MANIFEST: GearManifest = GearManifest {
    kind: "wasm",
    summary: "lets a WebAssembly module handle each message, sandboxed, with bounded memory and fuel",
    inputs: &["in"],
    outputs: OUTPUTS,
    doc: "A module exports `memory`, `alloc(len) -> at` and `process(at, len)`, and may import `flux.emit(port, at, len)`, \
          `flux.log(level, at, len)` and `flux.reject(at, len)`; [docs/wasm.md](wasm.md) has it whole, with modules in three languages. It \
          gets no files, no network, no clock. What it emits leaves once it has handled its message, by the port of that number: 0 is `out`, \
          1 to 4 are `a` to `d`; outputs that are not wired are counted as dropped. A message for which it traps, has no fuel or no memory left is \
          tried once more in a new instance and then refused.",
    example: include_str!("../../../../examples/gears/wasm.yaml"),
    schema: gear_manifest::schema::<WasmConfig>,
    check: gear_manifest::check::<WasmConfig>,
    passes_on: gear_manifest::never,
};

pub(super) fn build(config: &RawConfig) -> Result<Gear, String> {
    let config: WasmConfig = gear_manifest::config(config)?;
    Ok(Gear::Passive(Box::new(WasmRunner {
        config,
        guest: None,
        instance: None,
    })))
}

struct WasmRunner {
    config: WasmConfig,
    /// None until it was read.
    guest: Option<Arc<GuestModule>>,
    /// None where the next message gets a new one.
    instance: Option<GuestInstance>,
}

impl PassiveGear for WasmRunner {
    fn init<'a>(&'a mut self, cx: &'a Arc<GearContext>) -> GearFuture<'a> {
        async move {
            let config = self.config.clone();
            let guest = tokio::task::spawn_blocking(move || config.read()).await??;
            self.guest = Some(Arc::new(guest));
            self.instance = Some(self.begin(cx).await?);
            Ok(())
        }
        .boxed()
    }

    fn process<'a>(&'a mut self, cx: &'a Arc<GearContext>, delivery: InputMessage) -> GearFuture<'a> {
        async move {
            let message = delivery.message;
            let made = self.handle(cx, &message).await?;
            if let Some(reason) = made.rejected {
                return Err(GearError::Rejected(format!("the module rejects it: {reason}")));
            }
            send_emitted(cx, message, made.emitted).await
        }
        .boxed()
    }
}

impl WasmRunner {
    async fn handle(&mut self, cx: &GearContext, message: &Message) -> Result<GuestOutput, GearError> {
        let bytes = match self.config.message {
            GuestMessageFormat::Body => message.body(),
            GuestMessageFormat::Envelope => message.to_cbor().map_err(GearError::Rejected)?.into(),
        };
        loop {
            let used = self.instance.take();
            let is_new = used.is_none() || self.config.instance == InstanceLifetime::Fresh;
            let mut instance = match used {
                Some(instance) => instance,
                None => self.begin(cx).await?,
            };
            let handled = instance.handle(&bytes, self.made(cx, message)).await;
            record_logs(cx, &mut instance);
            match handled {
                Ok(made) => {
                    self.instance = (self.config.instance == InstanceLifetime::Reuse).then_some(instance);
                    return Ok(made);
                }
                Err(reason) if is_new => return Err(GearError::Rejected(reason)),
                Err(reason) => cx.log(
                    Level::Warn,
                    format!("{reason}; a new instance tries the message once more"),
                ),
            }
        }
    }

    async fn begin(&self, cx: &GearContext) -> Result<GuestInstance, GearError> {
        let guest = self
            .guest
            .clone()
            .ok_or_else(|| GearError::Config("the module was not read".to_owned()))?;
        let begun = tokio::task::spawn_blocking(move || GuestInstance::new(&guest, SLICE)).await?;
        let mut instance = begun.map_err(GearError::Config)?;
        record_logs(cx, &mut instance);
        Ok(instance)
    }

    fn made(&self, cx: &GearContext, message: &Message) -> GuestOutput {
        let facts = host::object(message.meta.as_map());
        GuestOutput::new(
            self.config.message,
            cx.limits().max_payload_size(),
            self.config.bounds().memory,
            facts,
        )
    }
}

/// Lets what a module emitted leave, if all of it may.
async fn send_emitted(cx: &GearContext, of: Message, emitted: Vec<(&'static str, MessageContent)>) -> Result<(), GearError> {
    if emitted.is_empty() {
        cx.count_dropped();
        return Ok(());
    }
    // The children have bodies of their own.
    let of = Message {
        raw: Vec::new(),
        data: Value::Null,
        ..of
    };
    let mut messages = Vec::with_capacity(emitted.len());
    for (port, content) in emitted {
        let mut message = cx.child(&of);
        message.raw = content.raw;
        message.data = content.data;
        if let Some(meta) = content.meta {
            message.meta = meta;
        }
        let (size, most) = (message.size(), cx.limits().payload_limit(cx.is_published(port)));
        if size > most.bytes {
            return Err(GearError::Rejected(format!(
                "the module emits a message of {size} bytes; {} allows {}",
                most.whose, most.bytes
            )));
        }
        messages.push((port, message));
        tokio::task::coop::consume_budget().await;
    }
    for (port, message) in messages {
        cx.send_if_wired(port, message).await;
        tokio::task::coop::consume_budget().await;
    }
    Ok(())
}

/// Records what an instance has logged.
fn record_logs(cx: &GearContext, instance: &mut GuestInstance) {
    let lines = instance.lines();
    for (level, line) in lines.kept {
        cx.log(level, line);
    }
    if lines.left_out > 0 {
        let text = format!("{} more log lines of the module are left out", lines.left_out);
        cx.log(Level::Warn, text);
    }
}

/// Configuration of `wasm`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct WasmConfig {
    /// The file of the module on the Rack: binary, or in the text format. This or `code`.
    #[serde(default)]
    module: Option<PathBuf>,
    /// The SHA-256 of that file in hexadecimal; another one does not start.
    #[serde(default)]
    sha256: Option<String>,
    /// The module itself in the text format, at most 256 KiB. It travels with the scenario and is checked with it.
    #[serde(default)]
    code: Option<String>,
    /// What a module is given and what it emits: the bare `body`, or the `envelope` in CBOR.
    #[serde(default)]
    message: GuestMessageFormat,
    /// Whether an instance handles one message after the other and may remember, or each message gets a `fresh` one.
    #[serde(default)]
    instance: InstanceLifetime,
    /// The most bytes of the module's memory, 65536 to 268435456. What it emits of one message has this bound, too, and is 10000 messages at most.
    #[serde(default = "default_memory")]
    memory: u64,
    /// The fuel for one message, and for the start of an instance: about one unit for each instruction, or byte that is passed on.
    #[serde(default = "default_fuel")]
    fuel: u64,
}

const fn default_memory() -> u64 {
    16 * 1024 * 1024
}

const fn default_fuel() -> u64 {
    50_000_000
}

/// What a module is given and what it emits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum GuestMessageFormat {
    /// The body: its bytes, or its value as JSON. What is emitted is a body of bytes; the facts stay.
    #[default]
    Body,
    /// The whole message in CBOR. What is emitted is a CBOR map of `raw`, `data` and `meta`; without `meta`, the facts stay.
    Envelope,
}

/// How long an instance is used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum InstanceLifetime {
    /// Until it fails, or the gear stops.
    #[default]
    Reuse,
    /// For one message.
    Fresh,
}

impl WasmConfig {
    fn bounds(&self) -> GuestLimits {
        GuestLimits {
            memory: usize::try_from(self.memory).unwrap_or(usize::MAX),
            fuel: self.fuel,
        }
    }

    /// Reads the module, wherever it is. It keeps its thread.
    fn read(&self) -> Result<GuestModule, GearError> {
        let Some(path) = &self.module else {
            let code = self.code.as_deref().unwrap_or_default();
            return GuestModule::read(code.as_bytes(), self.bounds()).map_err(GearError::Config);
        };
        let bytes = load(path).map_err(|reason| GearError::Outside {
            what: format!("read module {:?}", path.display().to_string()),
            reason,
        })?;
        self.check_digest(path, &bytes)?;
        let guest = GuestModule::read(&bytes, self.bounds());
        guest.map_err(|reason| GearError::Config(format!("{}: {reason}", path.display())))
    }

    fn check_digest(&self, path: &Path, bytes: &[u8]) -> Result<(), GearError> {
        let Some(wanted) = &self.sha256 else { return Ok(()) };
        let found = format!("{:x}", Sha256::digest(bytes));
        if found.eq_ignore_ascii_case(wanted) {
            return Ok(());
        }
        let path = path.display();
        Err(GearError::Config(format!(
            "{path} has the SHA-256 {found}; the scenario wants {wanted}"
        )))
    }
}

/// The bytes of a file, and not endlessly many.
fn load(path: &Path) -> io::Result<Vec<u8>> {
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is not a file"));
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_MODULE as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

impl GearConfig for WasmConfig {
    fn validate(&self) -> Result<(), String> {
        if self.memory < 65_536 || self.memory > 256 * 1024 * 1024 {
            return Err("memory must be 65536 to 268435456".into());
        }
        if self.fuel < 1_000 || self.fuel > 10_000_000_000 {
            return Err("fuel must be 1000 to 10000000000".into());
        }
        match (&self.module, &self.code) {
            (Some(_), Some(_)) => Err("module names a file and code is the module: use one of them".into()),
            (None, None) => Err("no module: name its file as module, or write it as code".into()),
            (Some(path), None) if path.file_name().is_none() => {
                Err(format!("module {:?} does not name a file", path.display().to_string()))
            }
            (Some(_), None) => match &self.sha256 {
                Some(digest) if digest.len() != 64 || !digest.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
                    Err("sha256 must be 64 hexadecimal digits".into())
                }
                _ => Ok(()),
            },
            (None, Some(_)) if self.sha256.is_some() => {
                Err("sha256 belongs to module; code has the scenario's own hash".into())
            }
            (None, Some(code)) if code.len() > MAX_CODE => {
                let size = code.len();
                Err(format!(
                    "code has {size} bytes, at most {MAX_CODE} travel with a scenario: put it in a file and name that as module"
                ))
            }
            (None, Some(code)) => GuestModule::read(code.as_bytes(), self.bounds())
                .map(drop)
                .map_err(|reason| format!("code: {reason}")),
        }
    }
}
