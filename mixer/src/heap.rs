//! The heap: few pieces of it, so that what one thread freed serves the others.
//!
//! The C library keeps up to eight heaps per processor, and what was freed in one of them serves the threads of that one only.
//! Bodies, rows and row groups go from thread to thread here: each heap grew to its own peak, and kept it.
//!
//! # Not here
//!
//! Large buffers mapped each by itself, and unmapped when freed: half as much again was given back, for a quarter more of processor time.

use libc::c_int;

/// Two threads seldom want the same one at once.
const HEAPS: c_int = 2;

/// Sets the allocator up; before there are threads.
#[allow(unsafe_code, reason = "no safe wrapper has this call")]
pub fn set_up() {
    // SAFETY: it only changes a number of the allocator's. Where it refuses, its own stays.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, HEAPS) };
}
