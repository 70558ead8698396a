//! `wasm` as data: its manifest and its configuration.

use std::path::PathBuf;

use model::gear_manifest::{self, GearConfig, GearManifest};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::wasm_module::check_module;

/// The outputs, in the order of their numbers.
pub const OUTPUTS: &[&str] = &["out", "a", "b", "c", "d"];

/// The longest text of a module in a scenario, in bytes.
const MAX_CODE: usize = 256 * 1024;

/// What the type is.
pub const MANIFEST: GearManifest = GearManifest {
    kind: "wasm",
    summary: "lets a WebAssembly module handle each message, sandboxed, with bounded memory and fuel",
    inputs: &["in"],
    outputs: OUTPUTS,
    doc: "A module exports `memory`, `alloc(len) -> at` and `process(at, len)`, and may import `flux.emit(port, at, len)`, \
          `flux.log(level, at, len)` and `flux.reject(at, len)`; [docs/wasm.md](wasm.md) has it whole, with modules in three languages. It \
          gets no files, no network, no clock. What it emits leaves once it has handled its message, by the port of that number: 0 is `out`, \
          1 to 4 are `a` to `d`; outputs that are not wired are counted as dropped. A message for which it traps, has no fuel or no memory left is \
          tried once more in a new instance and then refused.",
    example: include_str!("../../examples/gears/wasm.yaml"),
    schema: gear_manifest::schema::<WasmConfig>,
    check: gear_manifest::check::<WasmConfig>,
    passes_on: gear_manifest::never,
};

/// Configuration of `wasm`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WasmConfig {
    /// The file of the module on the Rack, beneath a folder of its `policy.read_roots`: binary, or in the text format. This or `code`.
    #[serde(default)]
    #[schemars(extend("x-access" = "read"))]
    pub module: Option<PathBuf>,
    /// The SHA-256 of that file in hexadecimal; another one does not start.
    #[serde(default)]
    pub sha256: Option<String>,
    /// The module itself in the text format, at most 256 KiB. It travels with the scenario and is checked with it.
    #[serde(default)]
    pub code: Option<String>,
    /// What a module is given and what it emits: the bare `body`, or the `envelope` in CBOR.
    #[serde(default)]
    pub message: GuestMessageFormat,
    /// Whether an instance handles one message after the other and may remember, or each message gets a `fresh` one.
    #[serde(default)]
    pub instance: InstanceLifetime,
    /// The most bytes of the module's memory, 65536 to 268435456. What it emits of one message has this bound, too, and is 10000 messages at most.
    #[serde(default = "default_memory")]
    pub memory: u64,
    /// The fuel for one message, and for the start of an instance: about one unit for each instruction, or byte that is passed on.
    #[serde(default = "default_fuel")]
    pub fuel: u64,
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
pub enum GuestMessageFormat {
    /// The body: its bytes, or its value as JSON. What is emitted is a body of bytes; the facts stay.
    #[default]
    Body,
    /// The whole message in CBOR. What is emitted is a CBOR map of `raw`, `data` and `meta`; without `meta`, the facts stay.
    Envelope,
}

/// How long an instance is used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum InstanceLifetime {
    /// Until it fails, or the gear stops.
    #[default]
    Reuse,
    /// For one message.
    Fresh,
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
            (None, Some(code)) => check_module(code.as_bytes(), self.memory)
                .map(drop)
                .map_err(|reason| format!("code: {reason}")),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::json;

    use super::*;

    /// A module whose messages lie at 1024, and which does nothing with them.
    const MODULE: &str = r#"(module
  (import "flux" "emit" (func $emit (param i32 i32 i32)))
  (import "flux" "log" (func $log (param i32 i32 i32)))
  (import "flux" "reject" (func $reject (param i32 i32)))
  (memory (export "memory") 2)
  (func (export "alloc") (param i32) (result i32) (i32.const 1024))
  (func (export "process") (param $at i32) (param $len i32)))"#;

    #[test]
    fn a_configuration_that_cannot_be_obeyed_is_refused() {
        let (good, digest) = (MODULE, "ab".repeat(32));
        for (config, says) in [
            (json!({}), "name its file as module, or write it as code"),
            (json!({"module": "a.wasm", "code": good}), "use one of them"),
            (json!({"module": "/"}), "does not name a file"),
            (json!({"module": "a.wasm", "sha256": "abc"}), "64 hexadecimal digits"),
            (json!({"code": good, "sha256": digest}), "sha256 belongs to module"),
            (json!({"code": good, "memory": 1}), "memory must be"),
            (json!({"code": good, "fuel": 1}), "fuel must be"),
            (
                json!({"code": format!(";;{}", " ".repeat(MAX_CODE))}),
                "at most 262144 travel",
            ),
            (
                json!({"code": good, "memory": 65_536}),
                "begins with 131072 bytes of memory; memory allows 65536",
            ),
        ] {
            let error = (MANIFEST.check)(config.as_object().unwrap()).unwrap_err();
            assert!(error.contains(says), "{config}: {error}");
        }
        (MANIFEST.check)(json!({"code": good, "memory": 131_072}).as_object().unwrap()).unwrap();
    }

    #[test]
    fn a_module_that_is_none_or_wants_more_is_refused_with_what_it_wants() {
        let with = |from: &str, to: &str| MODULE.replace(from, to);
        let mut wrong = Vec::new();
        let first = r#"(import "flux" "emit" (func $emit (param i32 i32 i32)))"#;
        for (code, says) in [
            (String::new(), "at 1:1: expected at least one module field"),
            ("(module)".into(), "exports no memory called memory"),
            ("(module".into(), "code: the text of the module cannot be read at 1:8"),
            ("(module\n (func (export 3)))".into(), "at 2:9"),
            ("(module (func (result i32) (i64.const 1)))".into(), "is not valid"),
            ("\0asm".into(), "is not valid"),
            ("(".repeat(200_000), "cannot be read"),
            (
                with(
                    first,
                    &format!(
                        r#"{first} (import "env" "abort" (func)) (import "wasi_snapshot_preview1" "fd_write" (func))"#
                    ),
                ),
                "imports env.abort, wasi_snapshot_preview1.fd_write; a module gets flux.emit, flux.log, flux.reject and nothing else",
            ),
            (
                with(
                    first,
                    &format!(
                        "{first}{}",
                        (0..9)
                            .map(|n| format!(r#"(import "x" "f{n}" (func))"#))
                            .collect::<String>()
                    ),
                ),
                "imports x.f0, x.f1, x.f2, x.f3, x.f4 and 4 more;",
            ),
            (
                with(first, r#"(import "flux" "emit" (global i32))"#).replace("(func $log", "(func $emit"),
                "but not as a function",
            ),
            (
                with(first, r#"(import "flux" "emit" (func $emit (param i32) (result i64)))"#),
                "imports flux.emit as (i32) -> (i64); it is (i32, i32, i32) -> ()",
            ),
            (with(r#"(export "memory")"#, ""), "exports no memory called memory"),
            (
                with(r#"(export "alloc")"#, ""),
                "exports no function alloc (i32) -> (i32)",
            ),
            (
                with("(param $at i32)", "(param $at i64)"),
                "function process is (i64, i32) -> (); it must be (i32, i32) -> ()",
            ),
            (
                with("(memory", r#"(func (export "_initialize") (param i32)) (memory"#),
                "function _initialize is (i32) -> ()",
            ),
            (
                with(r#"(export "memory") 2"#, r#"(export "memory") i64 2"#),
                "is not valid",
            ),
            (with("(memory", "(memory 1) (memory"), "is not valid"),
        ] {
            let error = (MANIFEST.check)(json!({ "code": code }).as_object().unwrap()).unwrap_err();
            if !error.contains(says) {
                wrong.push(format!("{says}: {error}"));
            }
            assert!(error.len() < 600, "{} bytes", error.len());
        }
        assert!(wrong.is_empty(), "{wrong:#?}");
    }
}
