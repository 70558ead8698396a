//! `platform schema`: the tables in the words of an outside reader. Asks nobody.

use std::io::Write;

use model::Table;

use crate::args::SchemaArgs;
use crate::error::Error;

/// Prints it.
pub(crate) fn run(args: &SchemaArgs) -> Result<(), Error> {
    let tables = if args.tables.is_empty() {
        Table::ALL.as_slice()
    } else {
        &args.tables
    };
    let mut out = std::io::stdout().lock();
    out.write_all(args.dialect.schema(tables, &args.store).as_bytes())?;
    Ok(out.flush()?)
}
