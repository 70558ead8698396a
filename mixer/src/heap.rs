//! Allocator: limits the arenas of glibc's `malloc` to two, so that what one thread freed serves the others, and gives free pages
//! back to the system.
//!
//! glibc keeps up to eight arenas per processor, and what was freed in one of them serves the threads of that one only. Bodies, rows and
//! row groups go from thread to thread here: each arena grew to its own peak, and resident memory stayed there.
//! `MALLOC_ARENA_MAX` in the environment has the last word.
//!
//! By itself glibc gives back only what is free at the end of an arena: after a minute of ingest 430 MiB of 540 were free, and stayed.
//! So once a second, if much is free, pages in between are given back too.
//!
//! # Not here
//!
//! Large buffers mapped each by itself, and unmapped when freed: half as much again was given back, for a quarter more of processor time.

use std::io;
use std::thread;
use std::time::Duration;

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

/// Free memory that stays for what comes next.
const SPARE: usize = 64 << 20;
/// Between two looks.
const INTERVAL: Duration = Duration::from_secs(1);

/// Starts the thread that gives free pages back.
///
/// # Errors
/// If the thread cannot be had.
pub fn trim_in_background() -> io::Result<()> {
    let trimming = || {
        loop {
            thread::sleep(INTERVAL);
            trim();
        }
    };
    thread::Builder::new().name("heap-trim".to_owned()).spawn(trimming)?;
    Ok(())
}

#[allow(unsafe_code, reason = "no safe wrapper has these calls")]
fn trim() {
    // SAFETY: both take the allocator's own locks; free pages alone are given back.
    unsafe {
        if libc::mallinfo2().fordblks > SPARE {
            libc::malloc_trim(0);
        }
    }
}
