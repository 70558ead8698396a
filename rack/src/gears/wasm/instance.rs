//! An instance of a guest: its memory, its globals, and the fuel of a message in slices.
//!
//! # Invariants
//!
//! - A guest at work stands back after each slice of fuel: other tasks go on, and who stops the gear ends it there.
//! - An instance that failed, or whose message was given up, is not used again.
//!
//! # Not here
//!
//! Which instance handles which message ([`super`]).

use gear_spec::wasm_module::shorten_reason;
use wasmi::{Error, Memory, Store, TrapCode, TypedFunc, TypedResumableCall, WasmParams, WasmResults};

use super::guest::GuestModule;
use super::host::{GuestLog, GuestOutput, WasmHostState};

/// Fuel after which a guest stands back: about a millisecond.
pub(super) const SLICE: u64 = 200_000;

/// An instance that can handle messages.
pub(super) struct GuestInstance {
    store: Store<WasmHostState>,
    memory: Memory,
    alloc: TypedFunc<u32, u32>,
    process: TypedFunc<(u32, u32), ()>,
    fuel: u64,
    slice: u64,
}

impl GuestInstance {
    /// Makes an instance and lets it begin, with the fuel of one message. It keeps its thread.
    pub(super) fn new(guest: &GuestModule, slice: u64) -> Result<Self, String> {
        let begin = || {
            let bounds = guest.bounds;
            let mut store = Store::new(guest.module.engine(), WasmHostState::new(bounds.memory));
            store.limiter(|host| &mut host.limits);
            store.set_fuel(bounds.fuel)?;
            let instance = guest.linker.instantiate_and_start(&mut store, &guest.module)?;
            if let Some(begin) = instance.get_func(&store, "_initialize") {
                begin.call(&mut store, &[], &mut [])?;
            }
            store.data_mut().seal(bounds.memory);
            let memory = instance.get_memory(&store, "memory");
            Ok(Self {
                memory: memory.ok_or_else(|| Error::new("it exports no memory"))?,
                alloc: instance.get_typed_func(&store, "alloc")?,
                process: instance.get_typed_func(&store, "process")?,
                fuel: bounds.fuel,
                slice,
                store,
            })
        };
        begin().map_err(|error| {
            shorten_reason(&format!(
                "the module cannot begin: {}",
                error_text(&error, guest.bounds.fuel)
            ))
        })
    }

    /// Lets the guest handle a message.
    pub(super) async fn handle(&mut self, message: &[u8], made: GuestOutput) -> Result<GuestOutput, String> {
        self.store.data_mut().made = Some(made);
        let handled = self.work(message).await;
        let made = self.store.data_mut().made.take();
        handled
            .and_then(|()| made.ok_or_else(|| Error::new("nothing is known of what it made")))
            .map_err(|error| shorten_reason(&format!("the module failed: {}", error_text(&error, self.fuel))))
    }

    /// The lines that were logged since they were last taken.
    pub(super) fn lines(&mut self) -> GuestLog {
        std::mem::take(&mut self.store.data_mut().lines)
    }

    async fn work(&mut self, message: &[u8]) -> Result<(), Error> {
        let len = u32::try_from(message.len()).map_err(|error| Error::new(error.to_string()))?;
        self.store.set_fuel(0)?;
        self.store.data_mut().owed = 0;
        let mut left = self.fuel;
        let at = self.call(self.alloc, len, &mut left).await?;
        if at == 0 {
            return Err(Error::new(format!("alloc has no room for {len} bytes")));
        }
        let memory = self.memory.data_mut(&mut self.store);
        let size = memory.len();
        let place = memory.get_mut(at as usize..at as usize + len as usize).ok_or_else(|| {
            Error::new(format!(
                "alloc gave {len} bytes at {at}, outside of its memory of {size} bytes"
            ))
        })?;
        place.copy_from_slice(message);
        self.call(self.process, (at, len), &mut left).await
    }

    async fn call<P: WasmParams, R: WasmResults>(
        &mut self,
        function: TypedFunc<P, R>,
        params: P,
        left: &mut u64,
    ) -> Result<R, Error> {
        self.fill(left, 0)?;
        let mut call = function.call_resumable(&mut self.store, params)?;
        loop {
            call = match call {
                TypedResumableCall::Finished(result) => return Ok(result),
                TypedResumableCall::HostTrap(trap) => return Err(Error::new(trap.host_error().to_string())),
                TypedResumableCall::OutOfFuel(call) => {
                    self.fill(left, call.required_fuel())?;
                    tokio::task::yield_now().await;
                    call.resume(&mut self.store)?
                }
            };
        }
    }

    /// Takes the fuel of the next slice, which is `needs` at least, from what is left for the message.
    fn fill(&mut self, left: &mut u64, needs: u64) -> Result<(), Error> {
        let unburnt = self.store.get_fuel()?;
        let owed = std::mem::take(&mut self.store.data_mut().owed);
        *left = left.saturating_add(unburnt).saturating_sub(owed);
        if *left < needs.max(1) {
            return Err(Error::from(TrapCode::OutOfFuel));
        }
        let slice = (*left).min(self.slice.max(needs));
        *left -= slice;
        self.store.set_fuel(slice)
    }
}

/// What went wrong, for people.
fn error_text(error: &Error, fuel: u64) -> String {
    match error.as_trap_code() {
        Some(TrapCode::OutOfFuel) => format!("it has used all of its fuel, {fuel}: raise fuel if it needs more"),
        Some(TrapCode::MemoryOutOfBounds) => "it has reached outside of its memory".to_owned(),
        Some(TrapCode::UnreachableCodeReached) => "it trapped (unreachable)".to_owned(),
        Some(TrapCode::StackOverflow) => "its calls are nested too deeply".to_owned(),
        _ => error.to_string(),
    }
}
