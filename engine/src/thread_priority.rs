//! Thread priority: niceness and time slices of our threads, so that what somebody waits for runs first.
//!
//! # Invariants
//!
//! - Where the system refuses, the thread goes on as it is: priorities decide when work is done, never whether.
//!
//! # Not here
//!
//! Which threads there are, how fast they may write ([`crate::io_pacing`]).

use std::time::Duration;

/// How far a thread stands back where the processors are busy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThreadNiceness {
    /// Work that takes long and that nobody looks at: a third of the weight of what somebody waits for.
    Background = 5,
    /// Work of any length for one who asked: a fifth of the weight of that in the background, so that what comes in is still stored.
    Bulk = 12,
}

/// Lets other threads go before this one and those it starts, for good. Where it is refused nothing changes.
#[allow(unsafe_code, reason = "no safe wrapper has this call")]
pub fn lower_thread_priority(by: ThreadNiceness) {
    /// The nicest that a thread can be.
    const NICEST: libc::c_int = 19;
    // SAFETY: it takes numbers; zero stands for the calling thread. Where it fails it says -1, and the thread is one less nice.
    let own = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
    let nice = own.saturating_add(by as libc::c_int).min(NICEST);
    // SAFETY: it takes three numbers; zero stands for the calling thread. A refusal changes nothing.
    let _ = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) };
    set_time_slice(Duration::from_millis(100), nice);
}

/// Lets this thread run as soon as it can: others wait for it, and it soon waits again itself.
pub(crate) fn raise_thread_priority() {
    set_time_slice(Duration::from_micros(100), 0);
}

/// Asks for turns of a length. Who wakes up interrupts a thread of longer turns at once, one of turns like its own only when the
/// turn is over, which may be two ticks of the clock later, though another core has nothing to do. Kernels before Linux 6.12
/// take no notice.
#[allow(unsafe_code, reason = "no safe wrapper has this call")]
fn set_time_slice(turn: Duration, nice: libc::c_int) {
    let size = size_of::<libc::sched_attr>();
    // SAFETY: all of it are numbers.
    let mut wanted: libc::sched_attr = unsafe { std::mem::zeroed() };
    wanted.size = u32::try_from(size).unwrap_or(0);
    wanted.sched_nice = nice;
    wanted.sched_runtime = u64::try_from(turn.as_nanos()).unwrap_or(u64::MAX);
    // SAFETY: zero stands for the calling thread, the structure has the size it says and is only read. A refusal changes nothing.
    let _ = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, std::ptr::from_ref(&wanted), 0) };
}
