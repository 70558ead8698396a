//! A module, compiled.
//!
//! # Invariants
//!
//! - A guest gets the functions of [`host`] and nothing else: no clock, no files, no network, no entropy.
//! - What a guest does depends on its messages alone.
//! - Nothing that a module says ends the program: it is read with bounds, and a panic of the library is an error.
//!
//! # Not here
//!
//! What a module may import and must export ([`gear_spec::wasm_module`]), running it ([`super::instance`]).

use std::panic::{AssertUnwindSafe, catch_unwind};

use gear_spec::wasm_module::{check_module, invalid_module, unreadable_module};
use model::panic_text;
use wasmi::{CompilationMode, Engine, Linker, Module};

use super::host::{self, WasmHostState};

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
        let module = check_module(bytes, bounds.memory as u64)?;
        let compile = || Self::compile(&module, bounds);
        catch_unwind(AssertUnwindSafe(compile))
            .unwrap_or_else(|panic| Err(unreadable_module(panic_text(panic.as_ref()))))
    }

    fn compile(module: &[u8], bounds: GuestLimits) -> Result<Self, String> {
        let engine = engine();
        let module = Module::new(&engine, module).map_err(|error| invalid_module(&error.to_string()))?;
        let linker = host::linker(&engine).map_err(|error| error.to_string())?;
        Ok(Self { module, linker, bounds })
    }
}

/// WebAssembly as [`gear_spec::wasm_module`] checks it. Every function is compiled at once, so that no message pays for it.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_is_valid_for_the_check_of_configurations_if_it_is_for_the_interpreter() {
        let frame = |more: &str| {
            format!(
                r#"(module {more} (memory (export "memory") 1) (func (export "alloc") (param i32) (result i32) (local.get 0))
                (func (export "process") (param i32 i32)))"#
            )
        };
        let mut refused = 0;
        for more in [
            "",
            "(memory 1)",
            "(memory i64 1)",
            "(memory 1 1 (pagesize 1))",
            "(memory 1 2 shared)",
            "(func (result i32) (i64.const 1))",
            "(func (result i64 i64) (i64.add128 (i64.const 1) (i64.const 1) (i64.const 1) (i64.const 1)))",
            "(func (result v128) (v128.const i64x2 0 0))",
            "(func (param v128))",
            "(func $f (return_call $f))",
            "(func (result i32 i32) (i32.const 1) (i32.const 2))",
            "(func (result i32) (i32.extend8_s (i32.const 1)))",
            "(func (result i32) (i32.trunc_sat_f32_s (f32.const 1)))",
            "(func (param i32) (memory.fill (local.get 0) (local.get 0) (local.get 0)))",
            "(func (param externref) (result i32) (ref.is_null (local.get 0)))",
            "(func $f (param (ref func)))",
            "(func $f (call_ref 0 (ref.null 0)))",
            "(type (struct (field i32)))",
            "(type (array i32))",
            "(func (result i31ref) (ref.i31 (i32.const 1)))",
            "(tag (param i32))",
            "(func (try_table))",
            "(global i32 (i32.add (i32.const 1) (i32.const 2)))",
            "(global $g (import \"a\" \"b\") (mut i32))",
            "(table 1 funcref) (table 1 externref)",
            "(table 1 (ref func) (ref.func 0))",
            "(func (param i32) (drop (i32.atomic.load (local.get 0))))",
            "(func (unreachable) (br 1))",
            "(start 0)",
            "(data (i32.const 0) \"x\") (func (i32.const))",
        ] {
            let text = frame(more);
            let Ok(binary) = wat::parse_bytes(text.as_bytes()) else {
                continue;
            };
            let wanted = Module::new(&engine(), &binary)
                .map(drop)
                .map_err(|error| invalid_module(&error.to_string()));
            let checked = check_module(&binary, 1 << 20).map(drop);
            let is_invalid = |said: &Result<(), String>| said.as_ref().is_err_and(|why| why.contains("is not valid"));
            assert_eq!(is_invalid(&checked), wanted.is_err(), "{more}: {checked:?}, {wanted:?}");
            if wanted.is_err() {
                refused += 1;
                assert_eq!(checked, wanted, "{more}");
            }
        }
        assert!(refused > 10, "{refused}");
    }
}
