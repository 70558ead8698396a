//! `platform schema`: statements by which external readers open the tables. Needs no Mixer.

use std::io::Write;

use model::Table;
use model::dialect::{DataFileSet, SchemaDialect, duckdb, specs};
use model::spec::SpecColumn;

use crate::args::SchemaArgs;
use crate::error::Error;

/// Prints it.
pub(crate) fn run(args: &SchemaArgs) -> Result<(), Error> {
    let tables = if args.tables.is_empty() && args.specs.is_empty() {
        Table::ALL.as_slice()
    } else {
        &args.tables
    };
    let mut text = args.dialect.schema(tables, &args.store);
    if args.dialect != SchemaDialect::Duckdb && !args.specs.is_empty() {
        let reason = format!("--spec is for --dialect duckdb, not for {}", args.dialect.name());
        return Err(Error::Usage(reason));
    }
    for file in &args.specs {
        let spec = super::spec::read(file)?;
        let store = duckdb::literal(args.store.trim_end_matches('/'));
        let files = format!("{store}/messages/fluxSpec/{}/**/*.parquet", spec.name);
        let columns: Vec<_> = spec.fields.iter().map(SpecColumn::of).collect();
        text.push('\n');
        text.push_str(&specs::views(&spec.name, &columns, &[DataFileSet::Parquet(&files)]));
    }
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}
