//! `platform completions` and `platform man`: shell completions and manual pages of the command tree.

use std::io::Write;

use clap::CommandFactory;

use crate::args::{CompletionsArgs, ManArgs, PlatformArgs};
use crate::error::Error;

/// The program's name, as it is installed.
const NAME: &str = "platform";

/// Prints a shell's completions.
pub(crate) fn completions(args: &CompletionsArgs) -> Result<(), Error> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut PlatformArgs::command(), NAME, &mut script);
    let mut out = std::io::stdout().lock();
    out.write_all(&script)?;
    Ok(out.flush()?)
}

/// Writes a page for each command.
pub(crate) fn man(args: &ManArgs) -> Result<(), Error> {
    let failed = |source| Error::WriteFile {
        path: args.folder.clone(),
        source,
    };
    std::fs::create_dir_all(&args.folder).map_err(failed)?;
    // A page for each `help` of each command would say nothing.
    let tree = PlatformArgs::command().disable_help_subcommand(true);
    clap_mangen::generate_to(tree, &args.folder).map_err(failed)
}
