//! What a guest can call, and what it has made of a message until the message is done.
//!
//! # Invariants
//!
//! - What a guest emits stays here until it has handled its message; then all of it leaves, or nothing.
//! - What is kept for one message is bounded: bodies and values by the guest's own bound of memory, log lines by number and length.
//! - A call costs fuel for what the host does, a unit for each byte. Where the fuel of a slice does not suffice, the rest is owed.
//! - A place outside of the guest's memory is a trap; nothing of it is read.
//! - Tables do not grow once an instance has begun: the library loses its place in a call whose fuel ends within `table.grow`.

use gear_spec::wasm::{GuestMessageFormat, OUTPUTS};
use gear_spec::wasm_module::{MODULE, shorten_reason};
use model::Level;
use model::message::MessageContent;
use serde_json::Value;
use wasmi::errors::LinkerError;
use wasmi::{Caller, Engine, Error, Extern, Linker, StoreLimits, StoreLimitsBuilder};

/// Fuel for a call, beside that for its bytes.
const CALL: u64 = 100;
/// The most elements of a table.
const MAX_TABLE: usize = 1 << 20;
/// The most log lines of one message.
const MAX_LINES: usize = 32;
/// The longest log line in bytes.
const MAX_LINE: usize = 4096;
/// The most messages that are made of one.
const MAX_EMITTED: usize = 10_000;
/// What a value is reckoned to hold beside its text.
const VALUE: usize = 72;

/// The functions, for every instance of an engine.
pub(super) fn linker(engine: &Engine) -> Result<Linker<WasmHostState>, LinkerError> {
    let mut linker = Linker::new(engine);
    linker.func_wrap(MODULE, "emit", emit)?;
    linker.func_wrap(MODULE, "log", log)?;
    linker.func_wrap(MODULE, "reject", reject)?;
    Ok(linker)
}

/// The host's side of an instance.
pub(super) struct WasmHostState {
    pub(super) limits: StoreLimits,
    /// What is made of the message that is being handled; none while no message is.
    pub(super) made: Option<GuestOutput>,
    pub(super) lines: GuestLog,
    /// Fuel that calls took and the slice did not have.
    pub(super) owed: u64,
}

impl WasmHostState {
    pub(super) fn new(memory: usize) -> Self {
        Self {
            limits: limits(memory, MAX_TABLE),
            made: None,
            lines: GuestLog::default(),
            owed: 0,
        }
    }

    /// From here on the guest handles messages.
    pub(super) fn seal(&mut self, memory: usize) {
        self.limits = limits(memory, 0);
    }

    fn made(&mut self, call: &str) -> Result<&mut GuestOutput, Error> {
        let why = || Error::new(format!("{call}: there is no message while an instance begins"));
        self.made.as_mut().ok_or_else(why)
    }
}

fn limits(memory: usize, table: usize) -> StoreLimits {
    let limits = StoreLimitsBuilder::new().memory_size(memory).table_elements(table);
    limits.instances(1).memories(1).tables(16).build()
}

/// What a guest makes of a message.
#[derive(Debug)]
pub(super) struct GuestOutput {
    form: GuestMessageFormat,
    /// The most bytes of one body.
    largest: usize,
    /// How much more may be kept.
    room: usize,
    /// Bytes of the facts that a message has if the guest says none.
    facts: usize,
    pub(super) emitted: Vec<(&'static str, MessageContent)>,
    pub(super) rejected: Option<String>,
}

impl GuestOutput {
    pub(super) const fn new(form: GuestMessageFormat, largest: usize, room: usize, facts: usize) -> Self {
        Self {
            form,
            largest,
            room,
            facts,
            emitted: Vec::new(),
            rejected: None,
        }
    }

    fn emit(&mut self, port: &'static str, body: &[u8]) -> Result<(), String> {
        if self.emitted.len() >= MAX_EMITTED {
            return Err(format!("it emits more than {MAX_EMITTED} messages of one"));
        }
        let content = match self.form {
            GuestMessageFormat::Body => MessageContent {
                raw: body.to_vec(),
                ..MessageContent::default()
            },
            GuestMessageFormat::Envelope => MessageContent::from_cbor(body)
                .map_err(|reason| format!("what it emits is not a CBOR map of raw, data and meta: {reason}"))?,
        };
        let facts = content.meta.as_ref().map(|meta| object(meta.as_map()));
        let weight = VALUE + content.raw.len() + weight(&content.data) + facts.unwrap_or(self.facts);
        let most = "it emits more of one message than memory allows";
        self.room = self.room.checked_sub(weight).ok_or(most)?;
        self.emitted.push((port, content));
        Ok(())
    }
}

/// About the bytes that a value holds.
fn weight(value: &Value) -> usize {
    VALUE
        + match value {
            Value::String(text) => text.len(),
            Value::Array(items) => items.iter().map(weight).sum(),
            Value::Object(fields) => object(fields),
            _ => 0,
        }
}

pub(super) fn object(fields: &serde_json::Map<String, Value>) -> usize {
    fields
        .iter()
        .map(|(key, value)| VALUE + key.len() + weight(value))
        .sum()
}

/// The log lines of a message.
#[derive(Debug, Default)]
pub(super) struct GuestLog {
    pub(super) kept: Vec<(Level, String)>,
    pub(super) left_out: u64,
}

fn emit(mut caller: Caller<'_, WasmHostState>, port: u32, at: u32, len: u32) -> Result<(), Error> {
    let port = usize::try_from(port)
        .ok()
        .and_then(|port| OUTPUTS.get(port))
        .ok_or_else(|| {
            Error::new(format!(
                "emit: there is no port {port}; 0 is out, 1 to {} are a to d",
                OUTPUTS.len() - 1
            ))
        })?;
    let largest = caller.data_mut().made("emit")?.largest;
    if len as usize > largest {
        return Err(Error::new(format!(
            "emit: {len} bytes; max_payload_size allows {largest}"
        )));
    }
    with_bytes(&mut caller, "emit", (at, len), |host, body| {
        let emitted = host.made("emit")?.emit(port, body);
        emitted.map_err(|reason| Error::new(format!("emit: {reason}")))
    })
}

fn log(mut caller: Caller<'_, WasmHostState>, level: u32, at: u32, len: u32) -> Result<(), Error> {
    let levels = [Level::Debug, Level::Info, Level::Warn, Level::Error];
    let level = usize::try_from(level).ok().and_then(|level| levels.get(level).copied());
    let level = level.ok_or_else(|| Error::new("log: a level is 0 (debug) to 3 (error)"))?;
    with_bytes(&mut caller, "log", (at, len), |host, text| {
        if host.lines.kept.len() < MAX_LINES {
            host.lines.kept.push((level, line(text)));
        } else {
            host.lines.left_out += 1;
        }
        Ok(())
    })
}

fn reject(mut caller: Caller<'_, WasmHostState>, at: u32, len: u32) -> Result<(), Error> {
    with_bytes(&mut caller, "reject", (at, len), |host, text| {
        host.made("reject")?.rejected = Some(shorten_reason(&line(text)));
        Ok(())
    })
}

fn line(text: &[u8]) -> String {
    let text = text.get(..MAX_LINE).unwrap_or(text);
    String::from_utf8_lossy(text).into_owned()
}

/// Pays for bytes of the guest's memory and does something with them.
fn with_bytes<T>(
    caller: &mut Caller<'_, WasmHostState>,
    call: &str,
    (at, len): (u32, u32),
    work: impl FnOnce(&mut WasmHostState, &[u8]) -> Result<T, Error>,
) -> Result<T, Error> {
    let memory = caller.get_export("memory").and_then(Extern::into_memory);
    let memory = memory.ok_or_else(|| Error::new("the memory is gone"))?;
    let (cost, left) = (CALL + u64::from(len), caller.get_fuel()?);
    caller.set_fuel(left.saturating_sub(cost))?;
    let (bytes, host) = memory.data_and_store_mut(caller);
    host.owed += cost.saturating_sub(left);
    let size = bytes.len();
    let part = bytes.get(at as usize..at as usize + len as usize);
    let outside = || {
        Error::new(format!(
            "{call}: {len} bytes at {at} are outside of its memory of {size} bytes"
        ))
    };
    work(host, part.ok_or_else(outside)?)
}
