//! `platform sql`: where its statement comes from, what it prints, how it fails.

use harness::{Failure, TestMixer};
use serde_json::{Value, json};

use super::{Desk, json_rows};

fn desk() -> Result<Desk, Failure> {
    let desk = Desk::open()?;
    let rows = json!([
        { "ts": desk.ago(60), "level": "info", "message": "plain", "attributes": { "n": 1 } },
        { "ts": desk.ago(30), "level": "error", "message": "a\u{1b}[2J\u{7}b\r\u{202e}c\nd", "attributes": { "n": 2 } },
    ]);
    desk.seed("logs", "press", &rows)?;
    Ok(desk)
}

#[test]
fn a_statement_prints_its_columns_in_order_in_every_format() -> Result<(), Failure> {
    let desk = desk()?;
    let statement = "SELECT level, attributes->>'n' AS n, message = 'plain' AS is_plain FROM logs ORDER BY n";
    let with = |format: &str| desk.answer(&["sql", statement, "-o", format]);
    assert_eq!(with("table")?, "LEVEL  N  IS_PLAIN\ninfo   1  true\nerror  2  false\n");
    assert_eq!(with("csv")?, "level,n,is_plain\ninfo,1,true\nerror,2,false\n");
    let rows =
        json!([{ "level": "info", "n": "1", "is_plain": true }, { "level": "error", "n": "2", "is_plain": false }]);
    assert_eq!(Value::from(json_rows(&with("json")?)?), rows);
    let lines: Vec<Value> = with("ndjson")?
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(Value::from(lines), rows);
    Ok(())
}

#[test]
fn tables_have_headers_types_and_plans_as_people_write_them_and_programs_the_mixers() -> Result<(), Failure> {
    let desk = desk()?;
    let count = "SELECT count(*) FROM logs WHERE entity_name = 'press'";
    assert_eq!(desk.answer(&["sql", count])?, "COUNT\n2\n");
    assert_eq!(desk.answer(&["sql", count, "-o", "csv"])?, "count(*)\n2\n");
    let described = desk.answer(&["sql", "DESCRIBE logs"])?;
    let kind = |column: &str| {
        let line = described
            .lines()
            .find(|line| line.split_whitespace().next() == Some(column))?;
        line.split_whitespace().nth(1)
    };
    for (column, expected) in [("ts", "timestamptz"), ("flux_id", "uuid"), ("message", "text")] {
        assert_eq!(kind(column), Some(expected), "{described}");
    }
    let plan = desk.answer(&["sql", &format!("EXPLAIN {count}")])?;
    assert!(plan.lines().count() > 4 && !plan.contains("\\n"), "{plan}");
    assert!(plan.lines().any(|line| line.starts_with("physical_plan")), "{plan}");
    Ok(())
}

#[test]
fn a_statement_comes_from_a_file_too_and_takes_parameters_and_a_limit() -> Result<(), Failure> {
    let desk = desk()?;
    let file = desk.mixer.path().join("query.sql");
    std::fs::write(
        &file,
        "-- by level\nSELECT count(*) AS n\nFROM logs WHERE level = $level AND attributes->>'n' = $n;\n",
    )?;
    let file = file.display().to_string();
    let counted = desk.answer(&["sql", "-f", &file, "-p", "level=error", "-p", "n=\"2\"", "-o", "csv"])?;
    assert_eq!(counted, "n\n1\n");
    let cut = desk.ask(&["sql", "SELECT message FROM logs", "--limit", "1", "-o", "ndjson"])?;
    assert_eq!((cut.code, cut.out.lines().count()), (Some(0), 1), "{}", cut.err);
    assert!(cut.err.contains("more rows"), "{}", cut.err);
    Ok(())
}

#[test]
fn an_answer_that_max_rows_cuts_ends_with_65_and_one_that_limit_cuts_with_0() -> Result<(), Failure> {
    let mixer = TestMixer::with(&[("query.max_rows", "3")], &[])?;
    let now = model::Timestamp::from(std::time::SystemTime::now());
    let desk = Desk { mixer, now };
    let statement = "SELECT * FROM (VALUES (1), (2), (3), (4)) AS t (n)";
    for (limit, code) in [("1", 0), ("3", 0), ("4", 65)] {
        let done = desk.ask(&["sql", statement, "--limit", limit, "-o", "csv"])?;
        assert_eq!(done.code, Some(code), "--limit {limit}: {}", done.err);
        assert!(done.err.contains("more rows"), "--limit {limit}: {}", done.err);
    }
    let cut = desk.ask(&["sql", statement, "-o", "csv"])?;
    assert_eq!((cut.code, cut.out.lines().count()), (Some(65), 4), "{}", cut.err);
    assert!(cut.err.contains("query.max_rows"), "{}", cut.err);
    Ok(())
}

#[test]
fn errors_name_their_place_and_changes_are_refused() -> Result<(), Failure> {
    let desk = desk()?;
    let wrong = desk.ask(&["sql", "SELECT levl FROM logs"])?;
    assert_eq!(wrong.code, Some(64), "{}", wrong.err);
    assert!(
        wrong.err.contains("line 1, column 8") && wrong.err.contains("levl"),
        "{}",
        wrong.err
    );
    let change = desk.ask(&["sql", "DELETE FROM logs"])?;
    assert_eq!(change.code, Some(77), "{}", change.err);
    let nothing = desk.ask(&["sql", "SELECT 1", "-f", "query.sql"])?;
    assert_eq!(nothing.code, Some(64), "{}", nothing.err);
    Ok(())
}

#[test]
fn neither_stored_text_nor_names_of_columns_reach_a_terminal_with_their_controls() -> Result<(), Failure> {
    let desk = desk()?;
    for format in ["table", "csv", "json", "ndjson"] {
        let printed = desk.answer(&[
            "sql",
            "SELECT message AS \"x\u{1b}[2J\u{202e}\", * FROM logs",
            "-o",
            format,
        ])?;
        let bad = |c: char| (c.is_control() && c != '\n') || matches!(c, '\u{202a}'..='\u{202e}');
        assert!(!printed.contains(bad), "{format}: {printed:?}");
        assert!(printed.contains("plain"), "{format}: {printed:?}");
    }
    Ok(())
}
