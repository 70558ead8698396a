//! `platform config`: the Rack's configuration, shown, created, converted.

use std::io::Write;

use chassis::config::{self, ConfigSources};
use rack::config::{RackConfig, SCHEMA};

use crate::args::{ConfigArgs, ConfigFileVerb, GlobalArgs};
use crate::error::Error;

pub(crate) fn run(global: &GlobalArgs, args: &ConfigArgs) -> Result<(), Error> {
    let mut out = std::io::stdout().lock();
    match &args.verb {
        ConfigFileVerb::Show { origin } => {
            let settings = config::load(&SCHEMA, &sources(global)).map_err(|bad| Error::Config(bad.to_string()))?;
            out.write_all(config::show_text(&settings, *origin).as_bytes())?;
            out.flush()?;
            for warning in settings.warnings() {
                let _ = writeln!(std::io::stderr(), "platform: {warning}");
            }
            // What the agent would refuse to start with is refused here too.
            RackConfig::of(&settings).map_err(|bad| Error::Config(bad.to_string()))?;
        }
        ConfigFileVerb::Init => out.write_all(config::init_text(&SCHEMA).as_bytes())?,
        ConfigFileVerb::Migrate { file } => {
            let text = std::fs::read_to_string(file).map_err(|source| Error::Read {
                path: file.clone(),
                source,
            })?;
            let migrated = config::migrate(&SCHEMA, file, &text).map_err(|bad| Error::Config(bad.to_string()))?;
            out.write_all(migrated.text.as_bytes())?;
            let mut notes = std::io::stderr().lock();
            for note in migrated.notes {
                writeln!(notes, "platform: {note}")?;
            }
        }
    }
    Ok(out.flush()?)
}

/// Where the Rack's configuration comes from, given the flags of the command line.
pub(crate) fn sources(global: &GlobalArgs) -> ConfigSources {
    let flags = global
        .level
        .iter()
        .map(|level| ("logging.level".to_owned(), level.clone()))
        .collect();
    ConfigSources::of_process(&SCHEMA, global.config.clone(), flags)
}
