//! Sends long output for people through a pager.
//!
//! It is `$PAGER` (an empty one, or `cat`, means none), or `less -FRX`. It is started only if standard output is a terminal,
//! the text is longer than that, and neither `--no-pager` nor `TERM=dumb` says no. If it cannot be started, the text is
//! written as it is.
//!
//! # Not here
//!
//! Answers for programs: they come here only where somebody reads them, in the shell of `platform sql`.

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::{Child, Command, ExitStatus, Stdio};

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::terminal::TerminalSize;

/// So much is written without asking whether to go on.
const CHUNK: usize = 16 << 10;

/// Writes a text for people to standard output, through a pager if `may_page` and it is worth one.
pub(crate) fn show(text: &str, may_page: bool) -> io::Result<()> {
    show_until(text, may_page, || false).map(drop)
}

/// The same; what goes through no pager breaks off as soon as `stop` says so, and the answer is `false` then.
pub(crate) fn show_until(text: &str, may_page: bool, stop: impl Fn() -> bool) -> io::Result<bool> {
    let is_long = || TerminalSize::of_stdout().is_some_and(|screen| screen.overflows(text));
    if may_page && is_long() && paged(text)? {
        return Ok(true);
    }
    write_until(&mut io::stdout().lock(), text, stop)
}

/// Writes all, or until `stop` says so; what comes next begins on a line of its own.
fn write_until(out: &mut impl Write, text: &str, stop: impl Fn() -> bool) -> io::Result<bool> {
    for chunk in text.as_bytes().chunks(CHUNK) {
        if stop() {
            out.write_all(b"\n")?;
            out.flush()?;
            return Ok(false);
        }
        out.write_all(chunk)?;
    }
    out.flush()?;
    Ok(true)
}

/// Whether a pager took the text. It may end before it has read all: then its reader has seen enough.
fn paged(text: &str) -> io::Result<bool> {
    let Some(mut command) = command(std::env::var_os("PAGER"), std::env::var_os("TERM")) else {
        return Ok(false);
    };
    // An interrupt is meant for the pager, which may go on; this process must outlive it, or the shell takes the terminal.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let _interrupts: Option<Signal> = {
        let _inside = runtime.enter();
        signal(SignalKind::interrupt()).ok()
    };
    let Ok(mut child) = command.stdin(Stdio::piped()).spawn() else {
        return Ok(false);
    };
    let written = feed(&mut child, text);
    let status = child.wait()?;
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
        _ => Ok(!is_missing(status)),
    }
}

fn feed(child: &mut Child, text: &str) -> io::Result<()> {
    match child.stdin.take() {
        // Dropped at the end: the pager sees the end of the text.
        Some(mut input) => input.write_all(text.as_bytes()),
        None => Ok(()),
    }
}

/// What a shell answers for a program that it cannot find or start.
fn is_missing(status: ExitStatus) -> bool {
    matches!(status.code(), Some(126 | 127))
}

/// How the pager is started, if one is wished for.
fn command(pager: Option<OsString>, term: Option<OsString>) -> Option<Command> {
    if term.is_some_and(|term| term == "dumb") {
        return None;
    }
    let mut command = match pager {
        None => {
            let mut less = Command::new("less");
            less.arg("-FRX");
            less
        }
        Some(words) if words.is_empty() || words == "cat" => return None,
        Some(words) => {
            let mut shell = Command::new("sh");
            shell.arg("-c").arg(words);
            shell
        }
    };
    if std::env::var_os("LESSCHARSET").is_none() {
        command.env("LESSCHARSET", "utf-8");
    }
    Some(command)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_text_is_written_whole_or_breaks_off_with_a_line_break_when_it_is_told_to() -> io::Result<()> {
        let text = "0123456789\n".repeat(CHUNK);
        let mut whole = Vec::new();
        assert!(write_until(&mut whole, &text, || false)?);
        assert!(whole == text.as_bytes());
        let asked = Cell::new(0);
        let mut part = Vec::new();
        assert!(!write_until(&mut part, &text, || asked.replace(asked.get() + 1) == 2)?);
        assert!(part == [&text.as_bytes()[..2 * CHUNK], b"\n"].concat());
        Ok(())
    }

    fn line(pager: Option<&str>, term: &str) -> Option<String> {
        let command = command(pager.map(OsString::from), Some(OsString::from(term)))?;
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        Some(words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn the_pager_is_the_users_or_less_and_may_be_switched_off() {
        assert_eq!(line(None, "xterm").as_deref(), Some("less -FRX"));
        assert_eq!(line(Some("more -s"), "xterm").as_deref(), Some("sh -c more -s"));
        for (pager, term) in [
            (Some(""), "xterm"),
            (Some("cat"), "xterm"),
            (None, "dumb"),
            (Some("more"), "dumb"),
        ] {
            assert_eq!(line(pager, term), None);
        }
    }
}
