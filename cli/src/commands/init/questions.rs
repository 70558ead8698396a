//! What `platform init` has to know: from flags, from whoever sits at the terminal, or from the machine.

use std::io::{self, BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};

use gear_spec::journald_in;
use model::Token;

use super::LogSource;
use crate::args::InitArgs;
use crate::error::Error;

/// Log files that there is one of on most machines.
const USUAL_LOGS: [&str; 3] = ["/var/log/syslog", "/var/log/messages", "/var/log/dpkg.log"];
/// Where the journal of systemd is while it runs.
const JOURNAL: &str = "/run/systemd/journal";
/// The name where the machine has none that fits.
const UNNAMED: &str = "node-01";
/// What stands for the journal as an answer.
const JOURNAL_ANSWER: &str = "journal";

/// What was answered.
#[derive(Debug)]
pub(super) struct InitAnswers {
    pub(super) name: Token,
    pub(super) source: LogSource,
    /// The API of the Mixer that the Rack is to join, if it is another machine's.
    pub(super) mixer: Option<String>,
}

/// Everything that no flag says is asked for, or is the default with `--yes`.
pub(super) fn ask(args: &InitArgs) -> Result<InitAnswers, Error> {
    if !(args.yes || io::stdin().is_terminal() && io::stderr().is_terminal()) {
        return Err(Error::Usage(
            "there is no terminal to ask on: --yes takes the defaults of what --name, --mixer, --invite, --journald and --follow do not say"
                .to_owned(),
        ));
    }
    let asks = !args.yes;
    let name = match &args.name {
        Some(name) => name.clone(),
        // An invite brings its own.
        None if args.invite.is_some() => host_name(),
        None => ask_for(asks, "the Rack's name", host_name().as_str())?
            .parse::<Token>()
            .map_err(|error| Error::Usage(format!("--name: {error}")))?,
    };
    let is_open = args.mixer.is_none() && args.invite.is_none();
    let mixer = match ask_for(
        asks && is_open,
        "the API of a Mixer to join, or nothing for one on this machine",
        "",
    )? {
        url if url.is_empty() => args.mixer.clone(),
        url => Some(url),
    };
    Ok(InitAnswers {
        name,
        source: source(args, asks)?,
        mixer,
    })
}

fn source(args: &InitArgs, asks: bool) -> Result<LogSource, Error> {
    let file = |path: &Path| match path.is_absolute() && path.parent() != Some(Path::new("/")) {
        true => Ok(LogSource::File(path.to_owned())),
        false => Err(Error::Usage(format!(
            "--follow: {} is no absolute path of a file in a folder",
            path.display()
        ))),
    };
    if args.journald {
        return Ok(LogSource::Journal);
    }
    if let Some(path) = &args.follow {
        return file(path);
    }
    let default = usual_source();
    let shown = default.as_deref().map_or("", |path| path.to_str().unwrap_or_default());
    match ask_for(asks, "what to read: journal, or a log file", shown)?.as_str() {
        "" => Err(Error::Usage(
            "this machine has neither a journal nor a usual log file: name one with --follow FILE".to_owned(),
        )),
        JOURNAL_ANSWER => Ok(LogSource::Journal),
        path => file(Path::new(path)),
    }
}

/// The journal where there is one, else the first of the usual files.
fn usual_source() -> Option<PathBuf> {
    if Path::new(journald_in::PROGRAM).is_file() && Path::new(JOURNAL).is_dir() {
        return Some(JOURNAL_ANSWER.into());
    }
    USUAL_LOGS.map(PathBuf::from).into_iter().find(|path| path.is_file())
}

/// An answer, or the default where nothing is asked or answered.
fn ask_for(asks: bool, question: &str, default: &str) -> Result<String, Error> {
    if !asks {
        return Ok(default.to_owned());
    }
    let shown = if default.is_empty() {
        String::new()
    } else {
        format!(" [{default}]")
    };
    write!(io::stderr(), "{question}{shown}: ")?;
    io::stderr().flush()?;
    read_answer(io::stdin().lock(), default)
}

/// A line, or the default where it is empty; an input that ends has no answer.
fn read_answer(mut input: impl BufRead, default: &str) -> Result<String, Error> {
    let mut answer = String::new();
    if input.read_line(&mut answer)? == 0 {
        return Err(Error::Usage("nothing was answered, and nothing was written".to_owned()));
    }
    match answer.trim() {
        "" => Ok(default.to_owned()),
        answer => Ok(answer.to_owned()),
    }
}

fn host_name() -> Token {
    let host = nix::unistd::gethostname().unwrap_or_default();
    named_after(&host.to_string_lossy())
}

/// The first part of a host's name, as far as a Rack may have it.
fn named_after(host: &str) -> Token {
    match host.split('.').next().unwrap_or_default() {
        "" => Token::nearest(UNNAMED),
        label => Token::nearest(label),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_line_is_the_default_and_the_end_of_input_is_no_answer() {
        let answer = |typed: &str| read_answer(typed.as_bytes(), "press-1").ok();
        assert_eq!(answer("\n").as_deref(), Some("press-1"));
        assert_eq!(answer(" press-2 \n").as_deref(), Some("press-2"));
        assert_eq!(answer("press-2").as_deref(), Some("press-2"));
        assert_eq!(answer(""), None);
    }

    #[test]
    fn a_rack_is_named_after_its_machine() {
        let name = |host: &str| named_after(host).as_str().to_owned();
        assert_eq!(name("press-1.plant.example"), "press-1");
        assert_eq!(name("präsenz 7"), "pr-senz-7");
        assert_eq!(name(""), UNNAMED);
        assert_eq!(name(&"x".repeat(80)), "x".repeat(64));
    }
}
