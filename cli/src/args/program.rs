//! The flags of the commands that need no Mixer: first configurations, schemas, shell completions, manual pages.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use clap_complete::Shell;
use model::dialect::SchemaDialect;
use model::{Table, Token};

use super::shared::ApiArgs;

#[derive(Debug, ClapArgs)]
pub(crate) struct JoinArgs {
    /// What `platform racks invite` printed [default: read from standard input]
    pub(crate) invite: Option<String>,
    /// Only say whether this Rack was admitted or keeps an invite (exit code 1 if neither)
    #[arg(long, conflicts_with = "invite")]
    pub(crate) check: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct InitArgs {
    /// The folder that the files go into; /etc/platform is what the services of the packages read
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) dir: PathBuf,
    /// The Rack's name [default: that of this machine]
    #[arg(long, conflicts_with = "invite")]
    pub(crate) name: Option<Token>,
    /// Join the Mixer with this API, which is asked for an invite; without it, or --invite, this machine gets a Mixer of its own
    #[arg(long, value_name = "URL", conflicts_with = "invite")]
    pub(crate) mixer: Option<String>,
    /// Join with this invite; - reads it from standard input
    #[arg(long)]
    pub(crate) invite: Option<String>,
    /// The first scenario reads the journal of systemd [default: where there is one]
    #[arg(long)]
    pub(crate) journald: bool,
    /// The first scenario follows this file [default: a usual one of /var/log, where there is no journal]
    #[arg(long, value_name = "FILE", conflicts_with = "journald")]
    pub(crate) follow: Option<PathBuf>,
    /// Ask nothing
    #[arg(long)]
    pub(crate) yes: bool,
    /// Replace files that are there
    #[arg(long)]
    pub(crate) force: bool,
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
    /// With --mixer: only whether it is ready, for probes (exit code 69 if it is not, or does not answer)
    #[arg(long, requires = "mixer")]
    pub(crate) ready: bool,
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
