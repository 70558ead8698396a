//! The flags of the commands that need no Mixer: schemas, shell completions, manual pages.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use clap_complete::Shell;
use model::Table;
use model::dialect::SchemaDialect;

use super::shared::ApiArgs;

#[derive(Debug, ClapArgs)]
pub(crate) struct JoinArgs {
    /// What `platform racks invite` printed [default: read from standard input]
    pub(crate) invite: Option<String>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct DoctorArgs {
    /// Say what is off in the security of the Mixer (as an auditor or admin) and of this Rack, and how to mend it
    #[arg(long)]
    pub(crate) security: bool,
    /// With --security: fail if anything is off (exit code 77)
    #[arg(long, requires = "security")]
    pub(crate) strict: bool,
    /// Check the Mixer instead of this Rack: its API, storage, Racks, their scenario, wires and dead letters
    #[arg(long, conflicts_with = "security")]
    pub(crate) mixer: bool,
    #[command(flatten)]
    pub(crate) api: ApiArgs,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    pub(crate) shell: Shell,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ManArgs {
    /// The folder; it is created if it is missing
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct SchemaArgs {
    /// Only these tables
    #[arg(value_name = "TABLE", value_parser = table)]
    pub(crate) tables: Vec<Table>,
    /// The table of the spec in this file, for DuckDB; may be repeated
    #[arg(long = "spec", value_name = "FILE")]
    pub(crate) specs: Vec<PathBuf>,
    /// The reader: duckdb, clickhouse, spark, trino or polars
    #[arg(long, value_name = "READER", default_value = SchemaDialect::Duckdb.name())]
    pub(crate) dialect: SchemaDialect,
    /// Where the reader finds the Mixer's store: its folder (store.dir), or a URL that the reader knows
    #[arg(long, value_name = "DIR", default_value = "data")]
    pub(crate) store: String,
}

fn table(name: &str) -> Result<Table, String> {
    let found = Table::ALL.into_iter().find(|table| table.name() == name);
    found.ok_or_else(|| format!("the tables are {}", Table::ALL.map(Table::name).join(", ")))
}
