//! A module: read, compiled, and held against what a module may import and must export.
//!
//! # Invariants
//!
//! - A guest gets the functions of [`host`] and nothing else: no clock, no files, no network, no entropy.
//! - What a guest does depends on its messages alone.
//! - Nothing that a module says ends the program: it is read with bounds, and a panic of the library is an error.
//!
//! # Not here
//!
//! Running it ([`super::instance`]).

use std::borrow::Cow;
use std::panic::{AssertUnwindSafe, catch_unwind};

use wasmi::{CompilationMode, Engine, ExternType, FuncType, Linker, Module, ValType};

use super::super::supervisor::panic_text;
use super::host::{self, WasmHostState};

/// The largest module in bytes.
pub(super) const MAX_MODULE: usize = 16 << 20;
/// The longest reason in bytes; a reason can quote the module.
const MAX_REASON: usize = 400;
/// Bytes of a page of memory.
const PAGE: u64 = 65_536;
/// The most names of imports that a reason lists.
const MAX_NAMES: usize = 5;

/// What a module must export, and what it may.
const EXPORTS: &[(&str, &[ValType], &[ValType], bool)] = &[
    ("alloc", &[ValType::I32], &[ValType::I32], true),
    ("process", &[ValType::I32, ValType::I32], &[], true),
    ("_initialize", &[], &[], false),
];

/// What one guest may use.
#[derive(Debug, Clone, Copy)]
pub(super) struct GuestLimits {
    /// Bytes of memory.
    pub(super) memory: usize,
    /// Fuel for one message, and for the start of an instance.
    pub(super) fuel: u64,
}

/// A module of which instances can be made.
pub(super) struct GuestModule {
    pub(super) module: Module,
    pub(super) linker: Linker<WasmHostState>,
    pub(super) bounds: GuestLimits,
}

impl GuestModule {
    /// Reads a binary module or the text of one.
    pub(super) fn read(bytes: &[u8], bounds: GuestLimits) -> Result<Self, String> {
        if bytes.len() > MAX_MODULE {
            return Err(format!(
                "the module has {} bytes; it has {MAX_MODULE} at most",
                bytes.len()
            ));
        }
        let compile = || Self::compile(bytes, bounds);
        catch_unwind(AssertUnwindSafe(compile)).unwrap_or_else(|panic| {
            let said = panic_text(panic.as_ref());
            Err(short(&format!("the module cannot be read: {said}")))
        })
    }

    fn compile(bytes: &[u8], bounds: GuestLimits) -> Result<Self, String> {
        let engine = engine();
        let module = Module::new(&engine, binary(bytes)?)
            .map_err(|error| short(&format!("the module is not valid: {error}")))?;
        check_imports(&module)?;
        check_exports(&module, bounds)?;
        let linker = host::linker(&engine).map_err(|error| error.to_string())?;
        Ok(Self { module, linker, bounds })
    }
}

/// WebAssembly 2.0 without vectors. Every function is compiled at once, so that no message pays for it.
fn engine() -> Engine {
    let mut config = wasmi::Config::default();
    config
        .consume_fuel(true)
        .compilation_mode(CompilationMode::Eager)
        .wasm_multi_memory(false)
        .ignore_custom_sections(true)
        .set_max_cached_stacks(1);
    Engine::new(&config)
}

fn binary(bytes: &[u8]) -> Result<Cow<'_, [u8]>, String> {
    wat::parse_bytes(bytes).map_err(|error| {
        let said = error.to_string();
        let reason = said.lines().next().unwrap_or_default();
        // The place stands behind an arrow: `--> <anon>:2:8`.
        let place = said.lines().find_map(|line| line.split_once("<anon>:"));
        let place = place.map(|(_, place)| format!(" at {place}")).unwrap_or_default();
        short(&format!("the text of the module cannot be read{place}: {reason}"))
    })
}

fn check_imports(module: &Module) -> Result<(), String> {
    let mut unknown = Vec::new();
    for import in module.imports() {
        let name = format!("{}.{}", import.module(), import.name());
        let known = host::IMPORTS
            .iter()
            .find(|(known, ..)| import.module() == host::MODULE && import.name() == *known);
        match (known, import.ty()) {
            (None, _) => unknown.push(name),
            (Some((_, params)), ExternType::Func(found)) => {
                if found.params() != *params || !found.results().is_empty() {
                    let wanted = signature(params, &[]);
                    return Err(short(&format!(
                        "the module imports {name} as {}; it is {wanted}",
                        shape(found)
                    )));
                }
            }
            (Some(_), _) => return Err(short(&format!("the module imports {name}, but not as a function"))),
        }
    }
    if unknown.is_empty() {
        return Ok(());
    }
    let more = unknown.len().saturating_sub(MAX_NAMES);
    unknown.truncate(MAX_NAMES);
    let names = unknown.join(", ");
    let more = if more > 0 {
        format!(" and {more} more")
    } else {
        String::new()
    };
    let given: Vec<_> = host::IMPORTS
        .iter()
        .map(|(name, _)| format!("{}.{name}", host::MODULE))
        .collect();
    Err(short(&format!(
        "the module imports {names}{more}; a module gets {} and nothing else: build it without WASI",
        given.join(", ")
    )))
}

fn check_exports(module: &Module, bounds: GuestLimits) -> Result<(), String> {
    match module.get_export("memory") {
        Some(ExternType::Memory(memory)) => {
            let needs = memory.minimum().saturating_mul(PAGE);
            if needs > bounds.memory as u64 {
                let allows = bounds.memory;
                return Err(format!(
                    "the module begins with {needs} bytes of memory; memory allows {allows}"
                ));
            }
        }
        _ => return Err("the module exports no memory called memory".into()),
    }
    for (name, params, results, needed) in EXPORTS {
        let wanted = signature(params, results);
        match module.get_export(name) {
            Some(ExternType::Func(found)) if found.params() == *params && found.results() == *results => {}
            Some(ExternType::Func(found)) => {
                return Err(short(&format!(
                    "the module's function {name} is {}; it must be {wanted}",
                    shape(&found)
                )));
            }
            None if !needed => {}
            _ => return Err(format!("the module exports no function {name} {wanted}")),
        }
    }
    Ok(())
}

fn shape(function: &FuncType) -> String {
    signature(function.params(), function.results())
}

/// `(i32, i32) -> (i32)`.
fn signature(params: &[ValType], results: &[ValType]) -> String {
    let list = |types: &[ValType]| {
        let names: Vec<_> = types.iter().map(|kind| format!("{kind:?}").to_lowercase()).collect();
        names.join(", ")
    };
    format!("({}) -> ({})", list(params), list(results))
}

/// On one line, cut where it is long.
pub(super) fn short(text: &str) -> String {
    let end = text.floor_char_boundary(MAX_REASON);
    let cut = if end < text.len() { "…" } else { "" };
    let line: String = text[..end]
        .chars()
        .map(|char| if char.is_control() { ' ' } else { char })
        .collect();
    line + cut
}
