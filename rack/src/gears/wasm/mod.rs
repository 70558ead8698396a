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
//! What a module may import and must export ([`gear_spec::wasm_module`]), what its calls do ([`host`]).

mod guest;
mod host;
mod instance;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::Arc;

use futures::FutureExt;
use gear_spec::wasm::{GuestMessageFormat, InstanceLifetime, WasmConfig};
use gear_spec::wasm_module::MAX_MODULE;
use model::message::{Message, MessageContent};
use model::{Level, gear_manifest};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::{Gear, GearContext, GearError, GearFuture, PassiveGear, RawConfig};
use crate::inbox::InputMessage;
use crate::policy::FileRoots;
use guest::{GuestLimits, GuestModule};
use host::GuestOutput;
use instance::{GuestInstance, SLICE};

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
            let (config, policy) = (self.config.clone(), cx.policy().clone());
            let guest = tokio::task::spawn_blocking(move || read_module(&config, policy.readable())).await??;
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
            bounds(&self.config).memory,
            facts,
        )
    }
}

/// Lets what a module emitted leave, if all of it may.
async fn send_emitted(
    cx: &GearContext,
    of: Message,
    emitted: Vec<(&'static str, MessageContent)>,
) -> Result<(), GearError> {
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

fn bounds(config: &WasmConfig) -> GuestLimits {
    GuestLimits {
        memory: usize::try_from(config.memory).unwrap_or(usize::MAX),
        fuel: config.fuel,
    }
}

/// Reads the module, wherever it is. It keeps its thread.
fn read_module(config: &WasmConfig, files: &FileRoots) -> Result<GuestModule, GearError> {
    let Some(path) = &config.module else {
        let code = config.code.as_deref().unwrap_or_default();
        return GuestModule::read(code.as_bytes(), bounds(config)).map_err(GearError::Config);
    };
    let bytes = files
        .read(path, MAX_MODULE as u64 + 1)
        .map_err(|reason| GearError::Outside {
            what: format!("read module {:?}", path.display().to_string()),
            reason,
        })?;
    check_digest(config, path, &bytes)?;
    let guest = GuestModule::read(&bytes, bounds(config));
    guest.map_err(|reason| GearError::Config(format!("{}: {reason}", path.display())))
}

fn check_digest(config: &WasmConfig, path: &Path, bytes: &[u8]) -> Result<(), GearError> {
    let Some(wanted) = &config.sha256 else { return Ok(()) };
    let found = format!("{:x}", Sha256::digest(bytes));
    if found.eq_ignore_ascii_case(wanted) {
        return Ok(());
    }
    let path = path.display();
    Err(GearError::Config(format!(
        "{path} has the SHA-256 {found}; the scenario wants {wanted}"
    )))
}
