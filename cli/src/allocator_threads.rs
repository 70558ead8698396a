//! Background threads of the allocator, which give free pages back to the system.
//!
//! jemalloc starts them before `main`. What the kernel binds to a thread and to those that it starts later would leave them out.

use std::ptr::null_mut;

use tikv_jemalloc_sys::mallctl;

/// Does something while there are none of them; those that come afterwards are started by this thread.
pub(crate) fn without_allocator_threads<T>(work: impl FnOnce() -> T) -> T {
    set_running(false);
    let done = work();
    set_running(true);
    done
}

/// Waits for the threads to end, or starts the first. Without them the allocator does their work itself, so an error changes nothing else.
#[allow(unsafe_code, reason = "a control of jemalloc has no other door")]
fn set_running(mut is_running: bool) {
    let value = (&raw mut is_running).cast();
    // SAFETY: the name ends with a zero byte, and the value is the one `bool` that this control takes; nothing is kept of either.
    unsafe {
        mallctl(
            c"background_thread".as_ptr(),
            null_mut(),
            null_mut(),
            value,
            size_of::<bool>(),
        )
    };
}
