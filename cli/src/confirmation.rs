//! Confirmation prompt for changes that nobody can undo.

use std::io::{self, IsTerminal, Write};

use crate::error::Error;

/// Asks whoever sits at the terminal. Without one it is an error that says what would happen, and the flag that needs no answer.
pub(crate) fn is_confirmed(would: &str, question: &str) -> Result<bool, Error> {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Err(Error::Usage(format!(
            "{would}: there is no terminal to confirm on, use --yes"
        )));
    }
    write!(io::stderr(), "{question} [y/N] ")?;
    io::stderr().flush()?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
