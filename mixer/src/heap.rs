//! The heap: what is freed goes back to the system.
//!
//! The C library keeps a heap for several threads each, up to eight per processor, and what one of them freed serves its own
//! threads only; and after the first large buffer was freed it takes buffers of up to 32 MiB from these heaps, where one that lives
//! keeps all below it. Bodies, rows and row groups of megabytes go from thread to thread here: memory that nobody used was
//! as much as what was in use.

use libc::c_int;

/// Heaps for small things: two threads seldom want the same one at once.
const HEAPS: c_int = 2;
/// Larger buffers are mapped each by itself, and unmapped when they are freed.
const LARGE: c_int = 256 << 10;
/// So much may be free at the end of a heap.
const SPARE: c_int = 1 << 20;

/// Sets the allocator up; before there are threads.
#[allow(unsafe_code, reason = "no safe wrapper has this call")]
pub fn set_up() {
    for (setting, value) in [
        (libc::M_ARENA_MAX, HEAPS),
        (libc::M_MMAP_THRESHOLD, LARGE),
        (libc::M_TRIM_THRESHOLD, SPARE),
    ] {
        // SAFETY: it only changes numbers of the allocator's. Where it refuses one its own stays.
        unsafe { libc::mallopt(setting, value) };
    }
}
