//! Exit codes, after sysexits.

use std::process::ExitCode;

/// How a process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ExitReason {
    /// Done.
    Ok = 0,
    /// Nothing found where something was asked by its id.
    NotFound = 1,
    /// The command line is wrong.
    Usage = 64,
    /// The input data is wrong, or an answer is not whole.
    Data = 65,
    /// Something needed cannot be reached.
    Unavailable = 69,
    /// Reading or writing failed.
    Io = 74,
    /// Not allowed.
    Denied = 77,
    /// The configuration is wrong.
    Config = 78,
}

impl ExitReason {
    /// The number the operating system sees.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }
}

impl From<ExitReason> for ExitCode {
    fn from(exit: ExitReason) -> Self {
        Self::from(exit.code())
    }
}
