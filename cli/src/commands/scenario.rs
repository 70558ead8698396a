//! `platform scenario`.

use std::io::Write;

use crate::args::{ScenarioArgs, ScenarioVerb};
use crate::client::Client;
use crate::error::Error;
use crate::output::Printer;

const COLUMNS: &[&str] = &["name", "version", "hash", "active"];

pub(crate) fn run(args: &ScenarioArgs) -> Result<(), Error> {
    match &args.verb {
        ScenarioVerb::Validate { file } => {
            let yaml = std::fs::read_to_string(file).map_err(|source| Error::Read {
                path: file.clone(),
                source,
            })?;
            let scenario = model::scenario::parse(&yaml, rack::manifests()).map_err(|bad| Error::Data {
                path: file.clone(),
                reason: bad.to_string(),
            })?;
            let meta = &scenario.meta;
            let (gears, wires) = (scenario.gears.len(), scenario.wires.len());
            let mut out = std::io::stdout().lock();
            writeln!(
                out,
                "{}: {}:{} is valid: {gears} gears, {wires} wires",
                file.display(),
                meta.name,
                meta.version
            )?;
            Ok(out.flush()?)
        }
        ScenarioVerb::List(api) => {
            let page = Client::new(api).page("/api/v1/scenarios", &())?;
            Ok(Printer::from(api).rows(&page.rows, COLUMNS)?)
        }
    }
}
