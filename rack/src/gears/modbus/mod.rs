//! `modbus`: reads values of a Modbus TCP device at an interval, and writes those that messages name.
//!
//! ```text
//! device ── all reads ──▶ { name: value, … } ──▶ out     what the device refuses to read is named under errors
//! device ◀── confirmed ── { name: value, … } ◀── write
//! ```
//!
//! | the device | a reading | a message on `write` |
//! |---|---|---|
//! | answers | a message | taken |
//! | refuses (illegal address, …) | the values of that request are errors of the message | rejected |
//! | has it and needs time (acknowledge) | the same | taken |
//! | is busy, behind a gateway that does not reach it | the same | tried again |
//! | is silent, away, or speaks something else | no message, an error is counted; tried again after a growing pause | tried again |
//!
//! # Invariants
//!
//! - One connection for both ways, one request at a time ([`device_link`]).
//! - A message on `write` is taken when the device has confirmed all of it. Nothing of it is written where a name or a value of it is wrong.
//! - What a message sets is written in the order of `writes` in the configuration.
//! - A write is tried again, after a growing pause, until the device confirms or refuses it, or the gear stops. Later ones wait in the inbox
//!   meanwhile; reading goes on. One that was not answered is tried again behind a reading of the same place: where that is answered
//!   and the write is not, five times, it is rejected.
//! - A write whose confirmation is lost is done again: the device may get it twice.
//!
//! # Not here
//!
//! Numbers in registers ([`register_value`]), which request has which values ([`request_planner`]), what may be configured ([`gear_spec::modbus`]).

mod device_link;
mod register_value;
mod request_planner;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use gear_spec::modbus::{ERRORS, ModbusConfig, TableKind};
use model::gear_manifest;
use model::message::Message;
use model::{Attributes, Level};
use serde_json::{Map, Value};
use tokio::sync::Mutex;
use tokio::time::Instant;
use tokio_modbus::Request;

use super::poll_schedule::PollSchedule;
use super::{ActiveGear, Gear, GearContext, GearError, GearFuture, PassiveGear, RawConfig};
use crate::inbox::InputMessage;
use device_link::{AnswerData, DeviceBackoff, DeviceLink, RequestFailure};
use request_planner::{NamedRange, RequestBlock, read_blocks, write_blocks};

/// A write that the device leaves without an answer so often in a row, while it answers others in between, is rejected.
const MOST_IGNORED: u32 = 5;
/// How long a write that is under way may take when the gear shall stop: within the time that the Rack gives gears to stop.
const GRACE: Duration = Duration::from_millis(300);

pub(super) fn build(config: &RawConfig) -> Result<Gear, String> {
    let config: ModbusConfig = gear_manifest::config(config)?;
    let link = DeviceLink::new(config.address.clone(), config.unit, config.timeout.get());
    let device = Arc::new(Mutex::new(link));
    let writer = DeviceWriter {
        address: config.address.clone(),
        device: Arc::clone(&device),
        writes: config.writes.iter().map(NamedRange::of).collect(),
    };
    let reader = DeviceReader {
        device,
        blocks: read_blocks(config.reads.iter().map(NamedRange::of).collect()),
        config,
    };
    Ok(Gear::Duplex(Box::new(reader), Box::new(writer)))
}

/// The half that reads.
struct DeviceReader {
    config: ModbusConfig,
    device: Arc<Mutex<DeviceLink>>,
    blocks: Vec<RequestBlock>,
}

impl ActiveGear for DeviceReader {
    fn init<'a>(&'a mut self, cx: &'a Arc<GearContext>) -> GearFuture<'a> {
        async move {
            self.device.lock().await.set_policy(cx.policy().clone());
            Ok(())
        }
        .boxed()
    }

    fn run<'a>(&'a mut self, cx: &'a Arc<GearContext>) -> GearFuture<'a> {
        async move {
            if self.blocks.is_empty() {
                cx.stopping().await;
                return Ok(());
            }
            let mut schedule = PollSchedule::new(self.config.every.get(), Instant::now());
            let (mut retry, mut backoff) = (None::<Instant>, DeviceBackoff::new());
            loop {
                let due = retry.map_or(schedule.due(), |at| at.min(schedule.due()));
                let reading = async {
                    tokio::time::sleep_until(due).await;
                    self.read().await
                };
                let read = tokio::select! {
                    biased;
                    () = cx.stopping() => return Ok(()),
                    read = reading => read,
                };
                let now = Instant::now();
                if schedule.due() <= now {
                    schedule.advance(now);
                }
                match read {
                    Ok(values) => {
                        if retry.take().is_some() {
                            backoff = DeviceBackoff::new();
                            cx.log(Level::Info, format!("{} answers again", self.config.address));
                        }
                        self.send(cx, values).await;
                    }
                    Err(why) => {
                        retry = Some(now + backoff.take());
                        cx.error(format!("cannot read {why}; it is tried again"));
                    }
                }
            }
        }
        .boxed()
    }
}

impl DeviceReader {
    /// All values and what of them the device refuses; in words why there are none.
    async fn read(&self) -> Result<Value, String> {
        let (mut values, mut errors) = (Map::new(), Map::new());
        for block in &self.blocks {
            let asked = self.device.lock().await.ask(&read_request(block)).await;
            let answer = match asked {
                Ok(answer) => answer,
                Err(RequestFailure::Lost(why) | RequestFailure::Unanswered(why)) => return Err(why),
                Err(refused) => {
                    let why = format!("{}: {refused}", block.shown());
                    errors.extend(
                        block
                            .ranges
                            .iter()
                            .map(|range| (range.name.clone(), Value::from(why.as_str()))),
                    );
                    continue;
                }
            };
            for range in &block.ranges {
                match value_of(block, range, &answer) {
                    Ok(value) => drop(values.insert(range.name.clone(), value)),
                    Err(why) => drop(errors.insert(range.name.clone(), why.into())),
                }
            }
        }
        if !errors.is_empty() {
            values.insert(ERRORS.to_owned(), errors.into());
        }
        Ok(values.into())
    }

    async fn send(&self, cx: &GearContext, values: Value) {
        let began = std::time::Instant::now();
        let meta = Attributes::new()
            .with("modbus.address", self.config.address.as_str())
            .with("modbus.unit", self.config.unit);
        let mut message = cx.make(None, meta, Vec::new());
        message.data = values;
        // A refusal has been counted and reported; the next reading may pass.
        cx.emit("out", message, None, began).await.ok();
    }
}

fn read_request(block: &RequestBlock) -> Request<'static> {
    let (address, count) = (block.address, block.count);
    match block.kind {
        TableKind::Coil => Request::ReadCoils(address, count),
        TableKind::Discrete => Request::ReadDiscreteInputs(address, count),
        TableKind::Holding => Request::ReadHoldingRegisters(address, count),
        TableKind::Input => Request::ReadInputRegisters(address, count),
    }
}

/// A value of what was read.
fn value_of(block: &RequestBlock, range: &NamedRange, answer: &AnswerData) -> Result<Value, String> {
    let first = usize::from(range.address - block.address);
    let missing = || "it is not in the answer".to_owned();
    match answer {
        AnswerData::Bits(bits) => bits.get(first).copied().map(Value::from).ok_or_else(missing),
        AnswerData::Registers(registers) => {
            let own = registers.get(first..first + usize::from(range.count));
            range.format.decode(own.ok_or_else(missing)?)
        }
        AnswerData::Confirmed => Err(missing()),
    }
}

/// The half that writes.
struct DeviceWriter {
    address: String,
    device: Arc<Mutex<DeviceLink>>,
    /// In the order in which they are written.
    writes: Vec<NamedRange>,
}

impl PassiveGear for DeviceWriter {
    fn process<'a>(&'a mut self, cx: &'a Arc<GearContext>, delivery: InputMessage) -> GearFuture<'a> {
        async move {
            let requests = self.requests(&delivery.message).map_err(GearError::Rejected)?;
            let all = requests.len();
            for (done, (shown, request)) in requests.iter().enumerate() {
                if let Err(failure) = self.write(cx, shown, request).await {
                    let what = format!("{shown} cannot be written: {failure}");
                    return Err(if failure.is_temporary() {
                        self.outside(&what)
                    } else {
                        GearError::Rejected(format!("{what}; {done} of its {all} requests were done before"))
                    });
                }
            }
            Ok(())
        }
        .boxed()
    }
}

impl DeviceWriter {
    /// The requests of a message, each with what it is about.
    fn requests(&self, message: &Message) -> Result<Vec<(String, Request<'static>)>, String> {
        let Value::Object(given) = &message.data else {
            return Err(
                "a message to write must have an object of names and values: put codec_json before this gear".into(),
            );
        };
        let known = || self.writes.iter().map(|range| range.name.as_str());
        if let Some(name) = given.keys().find(|name| !known().any(|known| known == *name)) {
            let known: Vec<_> = known().collect();
            return Err(format!("writes has no {name}; it has: {}", known.join(", ")));
        }
        let (mut ranges, mut registers) = (Vec::new(), BTreeMap::new());
        for range in &self.writes {
            let Some(value) = given.get(&range.name) else { continue };
            let encoded = range.format.encode(value);
            let encoded = encoded.map_err(|error| format!("{}: {error}", range.name))?;
            registers.insert(range.name.as_str(), encoded);
            ranges.push(range.clone());
        }
        let blocks = write_blocks(ranges);
        let request = |block: &RequestBlock| {
            let own = block
                .ranges
                .iter()
                .filter_map(|range| registers.get(range.name.as_str()));
            (block.shown(), write_request(block, own.flatten().copied().collect()))
        };
        Ok(blocks.iter().map(request).collect())
    }

    /// Sends a request until it is confirmed or refused, the device ignores it, or the gear shall stop.
    async fn write(&self, cx: &GearContext, shown: &str, request: &Request<'_>) -> Result<(), RequestFailure> {
        let (mut backoff, mut ignored, mut answers) = (DeviceBackoff::new(), 0, 0);
        loop {
            // The device is free for the other half between two attempts.
            let asked = async {
                let mut device = self.device.lock().await;
                if ignored > 0 {
                    // Tells a device that ignores this write from one that is away, also where nothing else is asked.
                    device.ask(&read_of(request)).await.ok();
                }
                let before = device.answers();
                (device.ask(request).await, before)
            };
            let asked = tokio::select! {
                biased;
                asked = asked => asked,
                () = last_moment(cx) => return Err(RequestFailure::Lost("the gear stops".to_owned())),
            };
            let mut failure = match asked {
                (Ok(_), _) => return Ok(()),
                (Err(failure), before) => {
                    let answers_others = ignored == 0 || before > answers;
                    match failure {
                        RequestFailure::Unanswered(_) => ignored += u32::from(answers_others),
                        // It may be away because of this write.
                        RequestFailure::Lost(_) => {}
                        _ => ignored = 0,
                    }
                    answers = before;
                    failure
                }
            };
            if let RequestFailure::Unanswered(why) = &failure
                && ignored >= MOST_IGNORED
            {
                failure = RequestFailure::Ignored(why.clone());
            }
            if !failure.is_temporary() || cx.is_stopping() {
                return Err(failure);
            }
            cx.error(format!("{shown} cannot be written: {failure}; it is tried again"));
            tokio::select! {
                () = tokio::time::sleep(backoff.take()) => {}
                () = cx.stopping() => return Err(failure),
            }
        }
    }

    fn outside(&self, reason: &str) -> GearError {
        GearError::Outside {
            what: format!("write to {}", self.address),
            reason: io::Error::other(reason.to_owned()),
        }
    }
}

/// A write that is under way when the gear shall stop may be confirmed within this time.
async fn last_moment(cx: &GearContext) {
    cx.stopping().await;
    tokio::time::sleep(GRACE).await;
}

/// Reads the first of what a request writes.
const fn read_of(write: &Request<'_>) -> Request<'static> {
    match write {
        Request::WriteSingleCoil(at, _) | Request::WriteMultipleCoils(at, _) => Request::ReadCoils(*at, 1),
        Request::WriteSingleRegister(at, _) | Request::WriteMultipleRegisters(at, _) => {
            Request::ReadHoldingRegisters(*at, 1)
        }
        _ => Request::ReadHoldingRegisters(0, 1),
    }
}

fn write_request(block: &RequestBlock, registers: Vec<u16>) -> Request<'static> {
    let bits = || registers.iter().map(|register| *register != 0);
    match (block.kind.is_bits(), registers.as_slice()) {
        (true, [bit]) => Request::WriteSingleCoil(block.address, *bit != 0),
        (true, _) => Request::WriteMultipleCoils(block.address, Cow::Owned(bits().collect())),
        (false, [register]) => Request::WriteSingleRegister(block.address, *register),
        (false, _) => Request::WriteMultipleRegisters(block.address, Cow::Owned(registers)),
    }
}
