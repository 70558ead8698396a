//! What drivers and tools send, word for word, and what they are answered: copies, cursors, lists, pools, reflection.

use std::net::TcpStream;

use bytes::Bytes;
use futures::TryStreamExt as _;
use harness::Failure;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, SimpleQueryMessage};

use super::wire::{begun, message, sent};
use super::{connect, fill, mixer, run, told};

/// What SQLAlchemy, JDBC, DuckDB and ADBC ask of the catalogue; with `;` at the end of the last line of each.
const QUESTIONS: &str = include_str!("client_questions.sql");

/// The values of the rows of all answers to a text.
async fn rows(client: &Client, text: &str) -> Result<Vec<Vec<String>>, Failure> {
    let answers = client.simple_query(text).await?;
    let rows = answers.iter().filter_map(|answer| match answer {
        SimpleQueryMessage::Row(row) => {
            let values = (0..row.len()).map(|index| row.get(index).unwrap_or("NULL").to_owned());
            Some(values.collect())
        }
        _ => None,
    });
    Ok(rows.collect())
}

async fn copied(client: &Client, statement: &str) -> Result<Vec<u8>, Failure> {
    let parts: Vec<Bytes> = client.copy_out(statement).await?.try_collect().await?;
    Ok(parts.concat())
}

/// The class of the error that a text ends with.
async fn refused(client: &Client, text: &str) -> String {
    match client.simple_query(text).await {
        Ok(answers) => panic!("{text}: {answers:?}"),
        Err(error) => told(&error).0,
    }
}

#[test]
fn rows_are_copied_as_text_as_csv_and_in_binary() -> Result<(), Failure> {
    let mixer = mixer(&[])?;
    fill(&mixer, 3)?;
    run(async {
        let client = connect(&mixer).await?;
        let query = "SELECT message, NULL AS nothing, attributes->>'text' AS text FROM logs ORDER BY message LIMIT 2";
        let text = copied(&client, &format!("COPY ({query}) TO STDOUT")).await?;
        assert_eq!(
            String::from_utf8(text)?,
            "row 0\t\\N\tit's \"odd\"\nrow 1\t\\N\tit's \"odd\"\n"
        );
        let csv = copied(&client, &format!("COPY ({query}) TO STDOUT WITH (FORMAT csv, HEADER)")).await?;
        assert_eq!(
            String::from_utf8(csv)?,
            "message,nothing,text\nrow 0,,\"it's \"\"odd\"\"\"\nrow 1,,\"it's \"\"odd\"\"\"\n"
        );
        let binary = copied(
            &client,
            "COPY (SELECT 7::int, NULL::text, 'ab') TO STDOUT (FORMAT \"binary\");",
        )
        .await?;
        let head = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";
        let row = b"\0\x03\0\0\0\x04\0\0\0\x07\xff\xff\xff\xff\0\0\0\x02ab";
        assert_eq!(binary, [&head[..], row, b"\xff\xff"].concat());
        let none = copied(&client, "COPY (SELECT 1 WHERE false) TO STDOUT WITH BINARY").await?;
        assert_eq!(none, [&head[..], b"\xff\xff"].concat());
        let columns = copied(
            &client,
            "COPY \"logs\"(\"message\", \"level\") TO STDOUT (FORMAT csv, DELIMITER ';')",
        )
        .await?;
        let mut lines: Vec<_> = std::str::from_utf8(&columns)?.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines, ["row 0;info", "row 1;error", "row 2;info"]);

        for (statement, class) in [
            ("COPY logs FROM STDIN", "25006"),
            ("COPY logs TO '/tmp/logs'", "25006"),
            ("COPY (DELETE FROM logs) TO STDOUT", "25006"),
            ("COPY (SELECT levl FROM logs) TO STDOUT", "42703"),
        ] {
            assert_eq!(refused(&client, statement).await, class, "{statement}");
        }
        assert_eq!(rows(&client, "SELECT count(*) FROM logs").await?, [["3"]]);
        Ok(())
    })
}

#[test]
fn a_copy_of_a_simple_query_is_a_stream_of_its_own_messages() -> Result<(), Failure> {
    let mixer = mixer(&[])?;
    let mut stream = begun(&mixer)?;
    sent(
        &mut stream,
        b'Q',
        b"BEGIN; COPY (SELECT 1 AS a, 'x' UNION ALL SELECT 2, 'y' ORDER BY 1) TO STDOUT; COMMIT\0",
    )?;
    let told = until_ready(&mut stream)?;
    let kinds: Vec<u8> = told.iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds, *b"CHddcCCZ");
    assert_eq!(told[1].1, b"\0\0\x02\0\0\0\0");
    assert_eq!(
        (told[2].1.as_slice(), told[3].1.as_slice()),
        (&b"1\tx\n"[..], &b"2\ty\n"[..])
    );
    assert_eq!(told[5].1, b"COPY 2\0");
    Ok(())
}

/// The messages up to that for the next statement.
fn until_ready(stream: &mut TcpStream) -> Result<Vec<(u8, Vec<u8>)>, Failure> {
    let mut told: Vec<(u8, Vec<u8>)> = Vec::new();
    while told.last().is_none_or(|(kind, _)| *kind != b'Z') {
        told.push(message(stream)?.ok_or("it hung up")?);
    }
    Ok(told)
}

#[test]
fn a_cursor_gives_its_rows_in_parts_and_ends_with_its_transaction() -> Result<(), Failure> {
    let mixer = mixer(&[])?;
    fill(&mixer, 9)?;
    run(async {
        let client = connect(&mixer).await?;
        client.simple_query("BEGIN").await?;
        let declared = "DECLARE \"Big\" CURSOR FOR SELECT message FROM logs WHERE level = $1 ORDER BY message";
        client.execute(declared, &[&"info"]).await?;
        assert_eq!(
            rows(&client, "FETCH FORWARD 2 FROM \"Big\"").await?,
            [["row 0"], ["row 2"]]
        );
        assert_eq!(rows(&client, "MOVE 1 IN \"Big\"").await?, Vec::<Vec<String>>::new());
        let fetched = client.query("FETCH ALL FROM \"Big\"", &[]).await?;
        let fetched: Vec<&str> = fetched.iter().map(|row| row.get("message")).collect();
        assert_eq!(fetched, ["row 6", "row 8"]);
        assert_eq!(rows(&client, "FETCH 5 FROM \"Big\"").await?, Vec::<Vec<String>>::new());
        client.simple_query("CLOSE \"Big\"; COMMIT").await?;

        client
            .simple_query("BEGIN; DECLARE a CURSOR FOR SELECT 1; COMMIT")
            .await?;
        for (text, class) in [
            ("FETCH a", "34000"),
            ("CLOSE a", "34000"),
            ("DECLARE a CURSOR FOR SELECT 1", "25P01"),
            ("BEGIN; DECLARE a CURSOR FOR SELECT levl FROM logs", "42703"),
            ("ROLLBACK; BEGIN; DECLARE a CURSOR FOR DELETE FROM logs", "25006"),
            (
                "ROLLBACK; BEGIN; DECLARE a CURSOR FOR SELECT 1; FETCH BACKWARD 1 FROM a",
                "55000",
            ),
            (
                "ROLLBACK; BEGIN; DECLARE a CURSOR FOR SELECT 1; DECLARE a CURSOR FOR SELECT 2",
                "42P03",
            ),
        ] {
            assert_eq!(refused(&client, text).await, class, "{text}");
        }
        client.simple_query("ROLLBACK").await?;

        client
            .simple_query("DECLARE kept CURSOR WITH HOLD FOR VALUES (1), (2), (3)")
            .await?;
        assert_eq!(rows(&client, "FETCH kept").await?, [["1"]]);
        client.simple_query("BEGIN; COMMIT").await?;
        assert_eq!(rows(&client, "FETCH 2 kept").await?, [["2"], ["3"]]);
        client.simple_query("CLOSE ALL").await?;
        assert_eq!(refused(&client, "FETCH kept").await, "34000");

        let made = "BEGIN; DECLARE \"my cursor\" CURSOR WITH HOLD FOR VALUES (1)";
        client.simple_query(&format!("{made}; ROLLBACK")).await?;
        assert_eq!(refused(&client, "FETCH \"my cursor\"").await, "34000");
        client.simple_query(&format!("{made}; COMMIT; BEGIN; ROLLBACK")).await?;
        assert_eq!(rows(&client, "FETCH \"my cursor\"").await?, [["1"]]);
        client.simple_query("CLOSE \"my cursor\"").await?;
        assert_eq!(refused(&client, "FETCH \"my cursor\"").await, "34000");
        Ok(())
    })
}

#[test]
fn no_more_cursors_have_rows_left_than_portals_may() -> Result<(), Failure> {
    let mixer = mixer(&[])?;
    run(async {
        let client = connect(&mixer).await?;
        let cursor = |name: &str| format!("DECLARE {name} CURSOR FOR VALUES (1), (2), (3); FETCH 1 FROM {name};");
        let two = format!("BEGIN; {} {}", cursor("a"), cursor("b"));
        assert_eq!(rows(&client, &two).await?, [["1"], ["1"]]);
        assert_eq!(rows(&client, &format!("CLOSE a; {}", cursor("c"))).await?, [["1"]]);
        assert_eq!(refused(&client, &cursor("d")).await, "54000");
        Ok(())
    })
}

#[test]
fn values_bound_to_portals_are_bounded_together() -> Result<(), Failure> {
    let mixer = mixer(&[])?;
    run(async {
        let mut client = connect(&mixer).await?;
        let transaction = client.transaction().await?;
        let length = transaction.prepare("SELECT length($1::text)").await?;
        let long = "a".repeat(400 << 10);
        let mut portals = Vec::new();
        for _ in 0..10 {
            portals.push(transaction.bind(&length, &[&long]).await?);
        }
        let refused = transaction.bind(&length, &[&long]).await;
        let error = refused.err().ok_or("an eleventh is bound")?;
        assert_eq!(error.code().map(|code| code.code()), Some("54000"));
        Ok(())
    })
}

#[test]
fn lists_and_intervals_are_parameters() -> Result<(), Failure> {
    let mixer = mixer(&[])?;
    fill(&mixer, 6)?;
    run(async {
        let client = connect(&mixer).await?;
        let any = client
            .prepare("SELECT count(*) FROM logs WHERE level = ANY($1)")
            .await?;
        assert_eq!(any.params(), [Type::TEXT_ARRAY]);
        for (levels, count) in [(vec!["info", "error"], 6), (vec!["info"], 3), (Vec::new(), 0)] {
            let counted: i64 = client.query_one(&any, &[&levels]).await?.get("count");
            assert_eq!(counted, count, "{levels:?}");
        }
        let numbers = "SELECT count(*) FROM logs WHERE (attributes->>'n')::bigint <> ALL($1::bigint[])";
        let counted: i64 = client.query_one(numbers, &[&vec![1_i64, 2]]).await?.get(0);
        assert_eq!(counted, 4);
        let id = uuid::Uuid::nil();
        let ids = "SELECT count(*) FROM logs WHERE flux_id = ANY($1)";
        assert_eq!(client.query_one(ids, &[&vec![id]]).await?.get::<_, i64>(0), 0);
        let recent = client
            .prepare("SELECT count(*) FROM logs WHERE ts > now() - $1::interval")
            .await?;
        assert_eq!(recent.params(), [Type::INTERVAL]);
        let times =
            "SELECT count(*) FROM logs WHERE ts = ANY($1::timestamptz[]) OR ts > $2::timestamp OR ts::date = $3::date";
        let times = client.prepare(times).await?;
        assert_eq!(times.params(), [Type::TIMESTAMPTZ_ARRAY, Type::TIMESTAMP, Type::DATE]);
        let row = client
            .query_one("SELECT $1::bool, $2::text, $2::text", &[&true, &"a"])
            .await?;
        assert_eq!(
            (row.get::<_, bool>(0), row.get::<_, &str>(1), row.get::<_, &str>(2)),
            (true, "a", "a")
        );
        let kinds = [Type::BOOL, Type::BYTEA, Type::UUID, Type::INT8_ARRAY];
        let declared = client.prepare_typed("SELECT $1, $2, $3, $4", &kinds).await?;
        assert!(declared.columns().iter().map(tokio_postgres::Column::type_).eq(&kinds));
        let row = client
            .query_one(&declared, &[&true, &&b"a\0\xff"[..], &id, &vec![1_i64, 2]])
            .await?;
        assert_eq!(
            (
                row.get::<_, bool>(0),
                row.get::<_, Vec<u8>>(1),
                row.get::<_, uuid::Uuid>(2)
            ),
            (true, b"a\0\xff".to_vec(), id)
        );
        assert_eq!(row.get::<_, Vec<i64>>(3), [1, 2]);
        let oids = "SELECT typname FROM pg_type WHERE oid = ANY($1::oid[]) ORDER BY typname";
        let oids = client.prepare(oids).await?;
        assert_eq!(oids.params(), [Type::OID_ARRAY]);
        let names = client.query(&oids, &[&vec![2_950_u32, 2_951]]).await?;
        let names: Vec<&str> = names.iter().map(|row| row.get(0)).collect();
        assert_eq!(names, ["_uuid", "uuid"]);
        Ok(())
    })?;
    // As psycopg sends them: an interval by its type, a list as a text without one.
    let mut stream = begun(&mixer)?;
    sent(
        &mut stream,
        b'P',
        b"\0SELECT count(*) FROM logs WHERE ts > now() - $1 AND level = ANY($2)\0\0\x02\0\0\x04\xa2\0\0\0\0",
    )?;
    sent(
        &mut stream,
        b'B',
        b"\0\0\0\0\0\x02\0\0\0\x101 day, 1:00:00.5\0\0\0\x0c{info,debug}\0\0",
    )?;
    sent(&mut stream, b'E', b"\0\0\0\0\0")?;
    sent(&mut stream, b'S', b"")?;
    let told = until_ready(&mut stream)?;
    let row = told
        .iter()
        .find(|(kind, _)| *kind == b'D')
        .map(|(_, body)| body.as_slice());
    assert_eq!(row, Some(&b"\0\x01\0\0\0\x013"[..]), "{told:?}");
    Ok(())
}

#[test]
fn columns_have_the_headers_of_postgresql() -> Result<(), Failure> {
    let mixer = mixer(&[])?;
    run(async {
        let client = connect(&mixer).await?;
        let beside = client.prepare("SELECT *, ts::date, level FROM logs").await?;
        let names: Vec<_> = beside.columns().iter().map(tokio_postgres::Column::name).collect();
        assert_eq!(names.get(6..), Some(&["attributes", "ts", "level"][..]));
        let text = "SELECT count(*), 1, upper(level), level, level, max(ts)::date, 'x'::text, CASE WHEN true THEN 1 END, $1 \
                    FROM logs GROUP BY level";
        let statement = client.prepare(text).await?;
        let names: Vec<_> = statement.columns().iter().map(tokio_postgres::Column::name).collect();
        assert_eq!(
            names,
            [
                "count", "?column?", "upper", "level", "level", "max", "text", "case", "?column?"
            ]
        );
        Ok(())
    })
}

#[test]
fn a_pool_resets_its_connections_and_all_settings_are_shown() -> Result<(), Failure> {
    let mixer = mixer(&[])?;
    run(async {
        let client = connect(&mixer).await?;
        client.simple_query("SET statement_timeout = 5000").await?;
        let reset = "SELECT pg_advisory_unlock_all();\nCLOSE ALL;\nUNLISTEN *;\nRESET ALL;";
        assert_eq!(rows(&client, reset).await?.len(), 1);
        assert_eq!(rows(&client, "SHOW statement_timeout").await?, [["0"]]);
        let all = rows(&client, "SHOW ALL").await?;
        let has = |name: &str, value: &str| all.contains(&vec![name.to_owned(), value.to_owned(), String::new()]);
        assert!(has("max_index_keys", "32") && has("statement_timeout", "0"), "{all:?}");
        let keys = "SELECT setting FROM pg_catalog.pg_settings WHERE name='max_index_keys'";
        assert_eq!(rows(&client, keys).await?, [["32"]]);
        assert_eq!(
            rows(&client, r"SELECT quote_literal('it''s \')").await?,
            [[r"E'it''s \\'"]]
        );
        assert_eq!(refused(&client, "LISTEN news").await, "25006");
        Ok(())
    })
}

#[test]
fn questions_of_drivers_and_tools_about_the_catalogue_are_answered() -> Result<(), Failure> {
    let mixer = mixer(&[])?;
    fill(&mixer, 1)?;
    run(async {
        let client = connect(&mixer).await?;
        let (mut asked, mut wrong) = (0, Vec::new());
        for statement in QUESTIONS.split(";\n").map(str::trim).filter(|text| !text.is_empty()) {
            asked += 1;
            if let Err(error) = client.prepare(statement).await {
                wrong.push(format!("{statement}\n  {error:?}"));
            }
            if !statement.contains("$1")
                && let Err(error) = client.simple_query(statement).await
            {
                wrong.push(format!("{statement}\n  {error:?}"));
            }
        }
        assert!(asked > 50, "{asked}");
        assert!(wrong.is_empty(), "{} of {asked}:\n{}", wrong.len(), wrong.join("\n"));
        Ok(())
    })
}

#[test]
fn the_catalogue_says_what_there_is_and_nothing_of_what_is_not() -> Result<(), Failure> {
    let mixer = mixer(&[])?;
    run(async {
        let client = connect(&mixer).await?;
        let of_columns = "SELECT column_name, data_type, udt_name, is_nullable FROM information_schema.columns \
                          WHERE table_name = 'logs' AND column_name IN ('ts', 'flux_id', 'message') ORDER BY ordinal_position";
        assert_eq!(
            rows(&client, of_columns).await?,
            [
                ["ts", "timestamp with time zone", "timestamptz", "NO"],
                ["flux_id", "uuid", "uuid", "YES"],
                ["message", "text", "text", "NO"],
            ]
        );
        // ADBC, which reads names of functions where others compare numbers.
        let types = "SELECT oid, typname, typreceive FROM pg_catalog.pg_type WHERE (typreceive != 0 OR typsend != 0) \
                     AND typtype != 'r' AND typreceive::TEXT != 'array_recv' AND typname IN ('uuid', '_uuid')";
        assert_eq!(rows(&client, types).await?, [["2950", "uuid", "uuid_recv"]]);
        // Npgsql, which finds lists by their function.
        let lists = "SELECT typ.typname, proc.proname FROM pg_type AS typ LEFT JOIN pg_proc AS proc ON proc.oid = typ.typreceive \
                     WHERE typ.typname = '_uuid'";
        assert_eq!(rows(&client, lists).await?, [["_uuid", "array_recv"]]);
        // DuckDB, which would read a table with pages page by page.
        let pages =
            "SELECT relpages, to_regclass('logs'), to_regclass('duckdb_secrets') FROM pg_class WHERE relname = 'logs'";
        assert_eq!(rows(&client, pages).await?, [["0", "logs", "NULL"]]);
        for (text, expected) in [
            ("SELECT count(*) FROM pg_index", vec!["0"]),
            (
                "SELECT array_to_string(relacl, ',') FROM pg_class WHERE relname = 'logs'",
                vec!["NULL"],
            ),
            (
                "SELECT EXISTS(SELECT 1 FROM pg_trigger), ARRAY(SELECT enumlabel FROM pg_enum)",
                vec!["f", "{}"],
            ),
            ("SELECT pg_size_pretty(pg_table_size('logs'::regclass))", vec!["NULL"]),
            (
                "SELECT proargnames FROM pg_proc WHERE proname = 'parse_ident'",
                vec!["NULL"],
            ),
            ("SELECT name FROM pg_settings WHERE name = 'TimeZone'", vec!["TimeZone"]),
        ] {
            assert_eq!(rows(&client, text).await?, [expected], "{text}");
        }
        // SQLAlchemy names schemas that do not begin with pg_.
        let schemas =
            "SELECT nspname FROM pg_catalog.pg_namespace WHERE nspname NOT LIKE 'pg/_'::VARCHAR || '%' ESCAPE '/'";
        assert_eq!(rows(&client, schemas).await?, [["public"]]);
        Ok(())
    })
}
