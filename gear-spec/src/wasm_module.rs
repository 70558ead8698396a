//! WebAssembly modules of `wasm`: whether one is valid, and held against what a module may import and must export.
//!
//! # Invariants
//!
//! - A module is valid if the Rack's interpreter takes it: the features are those that it has, and its parser is this one. What it cannot
//!   translate though it is valid, such as a function of tens of thousands of variables, only the Rack finds.
//! - A guest gets the functions of [`MODULE`] and nothing else: no clock, no files, no network, no entropy.
//! - Nothing that a module says ends the program: it is read with bounds, and a panic of the library is an error.
//!
//! # Not here
//!
//! Instances (`rack::gears::wasm`).

use std::borrow::Cow;
use std::panic::{AssertUnwindSafe, catch_unwind};

use model::panic_text;
use wasmparser::types::{EntityType, Types};
use wasmparser::{
    BinaryReaderError, Export, FuncType, FuncValidatorAllocations, Import, Parser, Payload, ValType, ValidPayload,
    Validator, WasmFeatures,
};

/// The module of which guests import.
pub const MODULE: &str = "flux";

/// What a guest may import, with the parameters.
const IMPORTS: &[(&str, &[ValType])] = &[
    ("emit", &[ValType::I32, ValType::I32, ValType::I32]),
    ("log", &[ValType::I32, ValType::I32, ValType::I32]),
    ("reject", &[ValType::I32, ValType::I32]),
];

/// The largest module in bytes.
pub const MAX_MODULE: usize = 16 << 20;

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

/// WebAssembly 2.0 without vectors, with constant expressions that add and multiply, and tail calls.
const FEATURES: WasmFeatures = WasmFeatures::MUTABLE_GLOBAL
    .union(WasmFeatures::MULTI_VALUE)
    .union(WasmFeatures::SATURATING_FLOAT_TO_INT)
    .union(WasmFeatures::SIGN_EXTENSION)
    .union(WasmFeatures::BULK_MEMORY)
    .union(WasmFeatures::REFERENCE_TYPES)
    // Reference types need them.
    .union(WasmFeatures::GC_TYPES)
    .union(WasmFeatures::TAIL_CALL)
    .union(WasmFeatures::EXTENDED_CONST)
    .union(WasmFeatures::FLOATS);

/// Checks a binary module, or the text of one, whose instances may have so many bytes of memory; gives it in binary.
///
/// # Errors
/// In words why it is none, or what it may not have or lacks.
pub fn check_module(bytes: &[u8], memory: u64) -> Result<Cow<'_, [u8]>, String> {
    if bytes.len() > MAX_MODULE {
        return Err(format!(
            "the module has {} bytes; it has {MAX_MODULE} at most",
            bytes.len()
        ));
    }
    let check = || {
        let module = binary(bytes)?;
        let surface = ModuleSurface::read(&module).map_err(|error| invalid_module(&error))?;
        surface.check_imports()?;
        surface.check_exports(memory)?;
        Ok(module)
    };
    catch_unwind(AssertUnwindSafe(check)).unwrap_or_else(|panic| Err(unreadable_module(panic_text(panic.as_ref()))))
}

/// Says that a module is not valid.
#[must_use]
pub fn invalid_module(reason: &str) -> String {
    shorten_reason(&format!("the module is not valid: {reason}"))
}

/// Says that the library failed on a module.
#[must_use]
pub fn unreadable_module(reason: &str) -> String {
    shorten_reason(&format!("the module cannot be read: {reason}"))
}

/// What a valid module imports and exports, with the types.
struct ModuleSurface<'a> {
    imports: Vec<Import<'a>>,
    exports: Vec<Export<'a>>,
    types: Types,
}

impl<'a> ModuleSurface<'a> {
    /// Validates a module part by part, as the interpreter does: of two faults the first one is told.
    fn read(module: &'a [u8]) -> Result<Self, String> {
        let told = |error: BinaryReaderError| error.to_string();
        let mut parser = Parser::new(0);
        parser.set_features(FEATURES);
        let mut validator = Validator::new_with_features(FEATURES);
        let mut allocations = FuncValidatorAllocations::default();
        let (mut imports, mut exports) = (Vec::new(), Vec::new());
        for payload in parser.parse_all(module) {
            let payload = payload.map_err(told)?;
            match validator.payload(&payload).map_err(told)? {
                ValidPayload::Func(function, body) => {
                    let mut function = function.into_validator(allocations);
                    function.validate(&body).map_err(told)?;
                    allocations = function.into_allocations();
                }
                ValidPayload::End(types) => {
                    return Ok(Self {
                        imports,
                        exports,
                        types,
                    });
                }
                ValidPayload::Ok | ValidPayload::Parser(_) => {}
            }
            match payload {
                Payload::ImportSection(section) => {
                    imports = section.into_iter().collect::<Result<_, _>>().map_err(told)?
                }
                Payload::ExportSection(section) => {
                    exports = section.into_iter().collect::<Result<_, _>>().map_err(told)?
                }
                _ => {}
            }
        }
        Err("it does not end".to_owned())
    }

    fn function(&self, of: Option<EntityType>) -> Option<&FuncType> {
        match of? {
            EntityType::Func(id) => Some(self.types[id].unwrap_func()),
            _ => None,
        }
    }

    fn export(&self, name: &str) -> Option<EntityType> {
        let export = self.exports.iter().find(|export| export.name == name)?;
        self.types.as_ref().entity_type_from_export(export)
    }

    fn check_imports(&self) -> Result<(), String> {
        let mut unknown = Vec::new();
        for import in &self.imports {
            let name = format!("{}.{}", import.module, import.name);
            let known = IMPORTS
                .iter()
                .find(|(known, ..)| import.module == MODULE && import.name == *known);
            let function = self.function(self.types.as_ref().entity_type_from_import(import));
            match (known, function) {
                (None, _) => unknown.push(name),
                (Some((_, params)), Some(found)) => {
                    if found.params() != *params || !found.results().is_empty() {
                        let wanted = signature(params, &[]);
                        return Err(shorten_reason(&format!(
                            "the module imports {name} as {}; it is {wanted}",
                            shape(found)
                        )));
                    }
                }
                (Some(_), None) => {
                    return Err(shorten_reason(&format!(
                        "the module imports {name}, but not as a function"
                    )));
                }
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
        let given: Vec<_> = IMPORTS.iter().map(|(name, _)| format!("{}.{name}", MODULE)).collect();
        Err(shorten_reason(&format!(
            "the module imports {names}{more}; a module gets {} and nothing else: build it without WASI",
            given.join(", ")
        )))
    }

    fn check_exports(&self, memory: u64) -> Result<(), String> {
        match self.export("memory") {
            Some(EntityType::Memory(exported)) => {
                let needs = exported.initial.saturating_mul(PAGE);
                if needs > memory {
                    return Err(format!(
                        "the module begins with {needs} bytes of memory; memory allows {memory}"
                    ));
                }
            }
            _ => return Err("the module exports no memory called memory".into()),
        }
        for (name, params, results, needed) in EXPORTS {
            let wanted = signature(params, results);
            let export = self.export(name);
            match self.function(export) {
                Some(found) if found.params() == *params && found.results() == *results => {}
                Some(found) => {
                    return Err(shorten_reason(&format!(
                        "the module's function {name} is {}; it must be {wanted}",
                        shape(found)
                    )));
                }
                None if export.is_none() && !needed => {}
                _ => return Err(format!("the module exports no function {name} {wanted}")),
            }
        }
        Ok(())
    }
}

fn binary(bytes: &[u8]) -> Result<Cow<'_, [u8]>, String> {
    wat::parse_bytes(bytes).map_err(|error| {
        let said = error.to_string();
        let reason = said.lines().next().unwrap_or_default();
        // The place stands behind an arrow: `--> <anon>:2:8`.
        let place = said.lines().find_map(|line| line.split_once("<anon>:"));
        let place = place.map(|(_, place)| format!(" at {place}")).unwrap_or_default();
        shorten_reason(&format!("the text of the module cannot be read{place}: {reason}"))
    })
}

fn shape(function: &FuncType) -> String {
    signature(function.params(), function.results())
}

/// `(i32, i32) -> (i32)`.
fn signature(params: &[ValType], results: &[ValType]) -> String {
    let list = |types: &[ValType]| {
        let names: Vec<_> = types.iter().map(|kind| kind.to_string()).collect();
        names.join(", ")
    };
    format!("({}) -> ({})", list(params), list(results))
}

/// What a module or the library says, on one line, cut where it is long.
#[must_use]
pub fn shorten_reason(text: &str) -> String {
    let end = text.floor_char_boundary(MAX_REASON);
    let cut = if end < text.len() { "…" } else { "" };
    let line: String = text[..end]
        .chars()
        .map(|char| if char.is_control() { ' ' } else { char })
        .collect();
    line + cut
}
