//! psycopg, asyncpg, SQLAlchemy, pandas, ADBC and ConnectorX as clients of a Mixer.
//!
//! They come by `make readers`; without them the test says that it is left out.

use std::path::Path;

use harness::Failure;
use harness::process::run;

use super::{fill, mixer};

/// What `clients.py` prints, of PostgreSQL as of a Mixer.
const EXPECTED: &str = "\
psycopg.any 6
psycopg.interval 6
psycopg.cursor (('row 0',), 2)
psycopg.csv [b'row 0,info\\n']
psycopg.copy (b'row 0',)
psycopg.pool (6,)
asyncpg.pool 6
asyncpg.any 3
asyncpg.interval 6
asyncpg.copy ('COPY 3', b'row 0\\nrow 2\\nrow 4\\n')
sqlalchemy.types ['TIMESTAMP', 'UUID', 'TEXT']
sqlalchemy.key []
sqlalchemy.indexes []
sqlalchemy.foreign []
sqlalchemy.unique []
sqlalchemy.schemas True
sqlalchemy.streamed 6
pandas.table 6
adbc.query (['string', 'timestamp[us, tz=UTC]'], ['row 0', 'row 1'])
connectorx.binary ['row 0', 'row 1']
connectorx.csv ['row 0', 'row 1']
connectorx.cursor ['row 0', 'row 1']
";

#[test]
fn readers_from_python_ask_over_the_protocol_of_postgresql() -> Result<(), Failure> {
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let python = project.join(".tools/bench-python/bin/python");
    if !python.is_file() {
        println!("left out: the readers from Python are missing; make readers installs them");
        return Ok(());
    }
    let mixer = mixer(&[])?;
    fill(&mixer, 6)?;
    let port = mixer.postgres.ok_or("no PostgreSQL port")?.port().to_string();
    let script = project.join("tests/suite/postgres/clients.py").display().to_string();
    let ended = run(&python, &["-W", "ignore", &script, &port, "tester"], mixer.path(), &[])?;
    assert_eq!(ended.out, EXPECTED, "{}", ended.err);
    Ok(())
}
