//! Allocator: limits the arenas of glibc's `malloc` to two, so that what one thread freed serves the others.
//!
//! glibc keeps up to eight arenas per processor, and what was freed in one of them serves the threads of that one only. Bodies, rows and
//! row groups go from thread to thread here: each arena grew to its own peak, and resident memory stayed there.
//! `MALLOC_ARENA_MAX` in the environment has the last word.
//!
//! # Not here
//!
//! Large buffers mapped each by itself, and unmapped when freed: half as much again was given back, for a quarter more of processor time.

use libc::c_int;

/// Two threads seldom want the same one at once.
const ARENAS: c_int = 2;

/// Limits the arenas, unless the environment does; before there are threads.
#[allow(unsafe_code, reason = "no safe wrapper has this call")]
pub fn limit_arenas() {
    if std::env::var_os("MALLOC_ARENA_MAX").is_some() {
        return;
    }
    // SAFETY: it only changes a number of the allocator's. Where it refuses, its own stays.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, ARENAS) };
}
