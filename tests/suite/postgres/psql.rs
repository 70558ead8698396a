//! The real psql.

use harness::{Failure, TestMixer};

use super::{fill, mixer};

/// What psql prints for commands, each of which must pass.
fn psql(mixer: &TestMixer, commands: &[&str]) -> Result<String, Failure> {
    let address = mixer.postgres.ok_or("no port")?;
    let mut command = harness::psql::command(&address.ip().to_string(), address.port(), "tester");
    command.args(["-v", "ON_ERROR_STOP=1"]);
    for text in commands {
        command.args(["-c", text]);
    }
    let output = command.output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    // A command of psql that fails within ends well.
    if !output.status.success() || said.contains("ERROR") {
        return Err(format!("{commands:?}: {said}").into());
    }
    Ok(String::from_utf8(output.stdout)?)
}

#[test]
fn psql_asks_and_describes() -> Result<(), Failure> {
    if !harness::psql::is_installed() {
        return Ok(());
    }
    let mixer = mixer(&[])?;
    fill(&mixer, 7)?;
    assert_eq!(psql(&mixer, &["SELECT count(*) FROM logs"])?, "7\n");
    assert_eq!(
        psql(&mixer, &["BEGIN", "SELECT 1 AS a, NULL AS b; SELECT 'x'", "COMMIT"])?,
        "BEGIN\n1|\nx\nCOMMIT\n"
    );
    let tables = psql(&mixer, &["\\dt"])?;
    for table in ["logs", "traces", "metrics", "messages"] {
        assert!(tables.contains(&format!("public|{table}|table")), "{tables}");
    }
    assert!(psql(&mixer, &["\\d"])?.contains("public|logs|table"));
    let columns = psql(&mixer, &["\\d logs"])?;
    for column in [
        "ts|timestamp with time zone",
        "flux_id|uuid",
        "message|text",
        "attributes|text",
    ] {
        assert!(columns.contains(column), "{column}: {columns}");
    }
    for quiet in [
        "\\l",
        "\\dn",
        "\\dv",
        "\\di",
        "\\ds",
        "\\dx",
        "\\conninfo",
        "\\encoding",
        "\\d+",
        "\\dt+",
        "\\di+",
        "\\dn+",
        "\\du",
        "\\du+",
        "\\dT",
        "\\dT+",
        "\\dp",
        "\\z logs",
        "\\l+",
        "\\df",
        "\\df+",
        "\\sf now",
        "\\dD",
        "\\dF",
        "\\dc",
        "\\dC",
        "\\dd",
        "\\ddp",
        "\\dL",
        "\\dO",
        "\\dy",
        "\\dX",
        "\\db+",
        "\\dconfig",
        "\\drds",
    ] {
        psql(&mixer, &[quiet])?;
    }
    let described = psql(&mixer, &["\\d+ logs"])?;
    assert!(
        described.contains("flux_id|uuid") && described.contains("message|text"),
        "{described}"
    );
    assert!(psql(&mixer, &["\\dp"])?.contains("public|logs|table"));
    assert_eq!(
        psql(
            &mixer,
            &["\\copy (select message, level from logs order by 1 limit 2) to stdout csv header"]
        )?,
        "message,level\nrow 0,info\nrow 1,error\n"
    );
    let error = psql(&mixer, &["SELECT levl FROM logs"])
        .err()
        .ok_or("it passes")?
        .to_string();
    assert!(
        error.contains("LINE 1: SELECT levl FROM logs") && error.contains('^'),
        "{error}"
    );
    Ok(())
}
