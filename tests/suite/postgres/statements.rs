//! Statements by the simple and the extended protocol: types, parameters, errors, transactions.

use chrono::{DateTime, Utc};
use harness::Failure;
use serde_json::json;
use tokio_postgres::{Client, SimpleQueryMessage};
use uuid::Uuid;

use super::{connect, fill, mixer, run, told};

const ID: &str = "018f2c1e-0000-7000-8000-000000000001";

#[test]
fn values_of_every_type_come_as_what_they_are_in_both_protocols() -> Result<(), Failure> {
    let mixer = mixer(&[])?;
    fill(&mixer, 4)?;
    run(async {
        let client = connect(&mixer).await?;
        let row = client
            .query_one(
                "SELECT ts, entity_id, flux_id, level, message, attributes, attributes->>'text' AS text, \
                 1.5::double AS double, 7::bigint AS big, 7::int AS int, 7::smallint AS small, 2.5::real AS real, true AS yes, \
                 to_timestamp_micros(1234567) AS moment, DATE '2024-02-29' AS day, uuid('018f2c1e-0000-7000-8000-000000000001') AS id \
                 FROM logs ORDER BY ts LIMIT 1",
                &[],
            )
            .await?;
        let listed = mixer.api.get("/api/v1/telemetry/logs?order=asc&limit=1")?.json;
        let first = &listed["data"][0];
        let ts: DateTime<Utc> = row.get("ts");
        assert_eq!(
            ts,
            first["ts"].as_str().ok_or("no ts")?.parse::<DateTime<Utc>>()?,
            "{first}"
        );
        assert_eq!(
            row.get::<_, Uuid>("entity_id").to_string(),
            first["entity_id"],
            "{first}"
        );
        assert_eq!(row.get::<_, Option<Uuid>>("flux_id"), None, "{first}");
        assert_eq!(row.get::<_, &str>("level"), first["level"]);
        assert_eq!(row.get::<_, &str>("message"), "row 0");
        let attributes: serde_json::Value = serde_json::from_str(row.get("attributes"))?;
        assert_eq!(attributes, first["attributes"]);
        assert_eq!(row.get::<_, &str>("text"), "it's \"odd\"");
        assert_eq!((row.get::<_, f64>("double"), row.get::<_, f32>("real")), (1.5, 2.5));
        assert_eq!(
            (
                row.get::<_, i64>("big"),
                row.get::<_, i32>("int"),
                row.get::<_, i16>("small")
            ),
            (7, 7, 7)
        );
        assert!(row.get::<_, bool>("yes"));
        assert_eq!(row.get::<_, Uuid>("id"), Uuid::try_parse(ID)?);
        assert_eq!(row.get::<_, chrono::NaiveDate>("day").to_string(), "2024-02-29");

        let simple = client
            .simple_query(
                "SELECT arrow_cast('2024-02-29T12:00:00.000001Z', 'Timestamp(Microsecond, Some(\"UTC\"))') AS a, 1.5::double AS b, NULL AS c, \
                 uuid('018f2c1e-0000-7000-8000-000000000001') AS d, [1, 2] AS e, true AS f, 1e300::double AS g, \
                 12.50::decimal(10,2) AS h, INTERVAL '1 month 2 days 3 seconds' AS i, '' AS j, ['a b', NULL] AS k",
            )
            .await?;
        let row = simple.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        });
        let row = row.ok_or("no row")?;
        let values: Vec<_> = (0..row.len()).map(|column| row.get(column)).collect();
        assert_eq!(
            values,
            [
                Some("2024-02-29 12:00:00.000001+00"),
                Some("1.5"),
                None,
                Some(ID),
                Some("{1,2}"),
                Some("t"),
                Some("1e+300"),
                Some("12.50"),
                Some("1 mon 2 days 00:00:03"),
                Some(""),
                Some("{\"a b\",NULL}"),
            ]
        );
        Ok(())
    })
}

#[test]
fn parameters_have_the_types_of_what_they_are_compared_with() -> Result<(), Failure> {
    let mixer = mixer(&[])?;
    fill(&mixer, 6)?;
    run(async {
        let client = connect(&mixer).await?;
        let statement = client
            .prepare("SELECT message FROM logs WHERE entity_id = $1 AND ts >= $2 AND level = $3 ORDER BY ts LIMIT $4")
            .await?;
        let types: Vec<_> = statement
            .params()
            .iter()
            .map(tokio_postgres::types::Type::name)
            .collect();
        assert_eq!(types, ["uuid", "timestamptz", "text", "int8"]);
        let (entity, since) = {
            let row = client
                .query_one("SELECT entity_id, min(ts) FROM logs GROUP BY entity_id", &[])
                .await?;
            (row.get::<_, Uuid>(0), row.get::<_, DateTime<Utc>>(1))
        };
        for (limit, expected) in [(2_i64, &["row 1", "row 3"][..]), (10, &["row 1", "row 3", "row 5"])] {
            let rows = client.query(&statement, &[&entity, &since, &"error", &limit]).await?;
            let messages: Vec<&str> = rows.iter().map(|row| row.get(0)).collect();
            assert_eq!(messages, expected);
        }
        let none = client
            .query(&statement, &[&None::<Uuid>, &since, &"error", &1_i64])
            .await?;
        assert!(none.is_empty(), "nothing equals null");
        let late = since + chrono::Duration::microseconds(5);
        let rows = client.query(&statement, &[&entity, &late, &"error", &10_i64]).await?;
        assert_eq!(rows.len(), 1, "times are exact to the microsecond");
        let text = "a'; DROP TABLE logs; --";
        let row = client
            .query_one("SELECT $1::text AS a, $2::double + 1 AS b", &[&text, &0.5_f64])
            .await?;
        assert_eq!((row.get::<_, &str>("a"), row.get::<_, f64>("b")), (text, 1.5));
        Ok(())
    })
}

#[test]
fn a_portal_gives_its_rows_in_parts() -> Result<(), Failure> {
    let mixer = mixer(&[])?;
    fill(&mixer, 10)?;
    run(async {
        let mut client = connect(&mixer).await?;
        let transaction = client.transaction().await?;
        let statement = transaction.prepare("SELECT message FROM logs ORDER BY ts").await?;
        let portal = transaction.bind(&statement, &[]).await?;
        let mut parts = Vec::new();
        for most in [4, 4, 4, 4] {
            parts.push(transaction.query_portal(&portal, most).await?.len());
        }
        assert_eq!(parts, [4, 4, 2, 0]);
        transaction.commit().await?;
        Ok(())
    })
}

#[test]
fn errors_have_a_class_and_a_place_and_leave_the_connection_as_it_was() -> Result<(), Failure> {
    let mixer = mixer(&[])?;
    run(async {
        let client = connect(&mixer).await?;
        for (text, class, place) in [
            (
                "SELECT level,\n  levl FROM logs",
                "42703",
                Some("SELECT level,\n  l".len()),
            ),
            ("SELECT * FROM nowhere", "42P01", None),
            ("SELEC 1", "42601", Some(1)),
            ("SELECT no_such_function(1)", "42883", None),
            ("SELECT 1/0", "22012", None),
            ("SELECT * FROM logs WHERE flux_id = 'x'", "22P02", None),
            ("INSERT INTO logs VALUES (1)", "25006", None),
            ("DELETE FROM logs", "25006", None),
            ("DROP TABLE logs", "25006", None),
            ("COPY logs TO '/tmp/a.csv'", "25006", None),
            ("CREATE TABLE t (a int)", "25006", None),
            ("SELECT * INTO t FROM logs", "25006", None),
            ("SHOW no_such_setting", "42704", None),
        ] {
            let simple = client
                .simple_query(text)
                .await
                .err()
                .ok_or_else(|| format!("{text} passes"))?;
            let (code, message, at) = told(&simple);
            assert_eq!(code, class, "{text}: {message}");
            let place = place.map(|place| u32::try_from(place).unwrap());
            assert!(place.is_none() || at == place, "{text}: {message} at {at:?}");
            if !text.starts_with("SHOW") {
                let extended = client
                    .query(text, &[])
                    .await
                    .err()
                    .ok_or_else(|| format!("{text} passes"))?;
                assert_eq!(told(&extended).0, class, "{text}");
            }
        }
        let after = "SELECT 'ä'; SELECT 1; SELECT levl FROM logs";
        let (code, _, at) = told(&client.simple_query(after).await.err().ok_or("it passes")?);
        assert_eq!((code.as_str(), at), ("42703", Some(30)));
        assert_eq!(client.query_one("SELECT 7::bigint", &[]).await?.get::<_, i64>(0), 7);
        Ok(())
    })
}

#[test]
fn what_clients_send_beside_queries_is_accepted_and_shown_again() -> Result<(), Failure> {
    let mixer = mixer(&[])?;
    run(async {
        let client = connect(&mixer).await?;
        client
            .batch_execute(
                "BEGIN READ ONLY; SET extra_float_digits = 3; SET SESSION application_name = 'a b'; SELECT 1; \
                 SAVEPOINT s; RELEASE SAVEPOINT s; COMMIT; SET TIME ZONE 'UTC'; UNLISTEN *; ; DISCARD PLANS",
            )
            .await?;
        for (name, value) in [
            ("server_version", "15.0"),
            ("application_name", "a b"),
            ("extra_float_digits", "3"),
            ("transaction_isolation", "repeatable read"),
            ("TimeZone", "UTC"),
            ("standard_conforming_strings", "on"),
        ] {
            assert_eq!(
                client.query_one(&format!("SHOW {name}"), &[]).await?.get::<_, &str>(0),
                value,
                "{name}"
            );
        }
        client.batch_execute("BEGIN").await?;
        assert!(client.batch_execute("SELECT nothing").await.is_err());
        let refused = client.simple_query("SELECT 1").await.err().ok_or("it passes")?;
        assert_eq!(told(&refused).0, "25P02", "until the transaction is over");
        client.batch_execute("ROLLBACK").await?;
        client.batch_execute("SELECT 1").await?;
        client.batch_execute("").await?;
        let version: String = client.query_one("SELECT version()", &[]).await?.get("version");
        assert!(version.starts_with("PostgreSQL 15"), "{version}");
        let over_http = mixer
            .api
            .post("/api/v1/sql", &json!({ "query": "SELECT * FROM pg_catalog.pg_class" }))?;
        assert_eq!(
            over_http.status, 400,
            "only its clients see its catalogue: {}",
            over_http.text
        );
        Ok(())
    })
}

/// What `SHOW` says of a setting.
async fn shown(client: &Client, name: &str) -> Result<String, Failure> {
    Ok(client.query_one(&format!("SHOW {name}"), &[]).await?.get(0))
}

#[test]
fn a_setting_is_reset_and_ends_with_its_transaction_where_it_should() -> Result<(), Failure> {
    let mixer = mixer(&[])?;
    run(async {
        let client = connect(&mixer).await?;
        for back in [
            "RESET statement_timeout",
            "RESET ALL",
            "DISCARD ALL",
            "SET statement_timeout TO DEFAULT",
        ] {
            client.batch_execute("SET statement_timeout = '1h'").await?;
            client.batch_execute(back).await?;
            assert_eq!(shown(&client, "statement_timeout").await?, "0", "{back}");
        }
        for (end, after) in [("COMMIT", "2h"), ("ROLLBACK", "0")] {
            client.batch_execute("BEGIN; SET statement_timeout = '2h'").await?;
            client.batch_execute("SET LOCAL statement_timeout = '1h'").await?;
            assert_eq!(shown(&client, "statement_timeout").await?, "1h");
            client.batch_execute(end).await?;
            assert_eq!(shown(&client, "statement_timeout").await?, after, "{end}");
            client.batch_execute("RESET statement_timeout").await?;
        }
        client.batch_execute("SET LOCAL statement_timeout = 1").await?;
        assert_eq!(
            shown(&client, "statement_timeout").await?,
            "0",
            "there was no transaction"
        );
        Ok(())
    })
}

#[test]
fn another_time_zone_than_utc_is_refused_and_a_statement_converts() -> Result<(), Failure> {
    let mixer = mixer(&[])?;
    run(async {
        let client = connect(&mixer).await?;
        for zone in [
            "TimeZone = 'UTC'",
            "TIME ZONE 'Etc/UTC'",
            "SESSION TIMEZONE TO 'GMT'",
            "TIME ZONE LOCAL",
        ] {
            client.batch_execute(&format!("SET {zone}")).await?;
        }
        for zone in [
            "timezone = 'Europe/Berlin'",
            "TIME ZONE 'Europe/Berlin'",
            "LOCAL TimeZone TO 'CET'",
        ] {
            client.batch_execute("BEGIN").await?;
            let set = client.batch_execute(&format!("SET {zone}")).await;
            let (code, message, _) = told(&set.err().ok_or_else(|| format!("{zone} passes"))?);
            assert_eq!(code, "22023", "{zone}");
            assert!(message.contains("ts AT TIME ZONE 'Europe/Berlin'"), "{message}");
            client.batch_execute("ROLLBACK").await?;
        }
        let day = "SELECT date_trunc('day', arrow_cast('2026-07-01T10:00:00Z', 'Timestamp(Microsecond, Some(\"UTC\"))') \
                   AT TIME ZONE 'Europe/Berlin') AT TIME ZONE 'Europe/Berlin'";
        let day: DateTime<Utc> = client.query_one(day, &[]).await?.get(0);
        assert_eq!(
            day.to_rfc3339(),
            "2026-06-30T22:00:00+00:00",
            "where it begins in Berlin"
        );
        Ok(())
    })
}

#[test]
fn rolling_back_to_a_savepoint_without_a_transaction_is_refused_and_opens_none() -> Result<(), Failure> {
    let mixer = mixer(&[])?;
    run(async {
        let client = connect(&mixer).await?;
        let refused = client.batch_execute("ROLLBACK TO SAVEPOINT s").await;
        assert_eq!(told(&refused.err().ok_or("it passes")?).0, "25P01");
        assert!(client.batch_execute("SELECT nothing").await.is_err());
        client.batch_execute("SELECT 1").await?;
        client.batch_execute("BEGIN; SAVEPOINT s").await?;
        assert!(client.batch_execute("SELECT nothing").await.is_err());
        client
            .batch_execute("ROLLBACK TO SAVEPOINT s; SELECT 1; COMMIT")
            .await?;
        for (text, class) in [
            ("SAVEPOINT s", "25P01"),
            ("SELECT 1; SAVEPOINT s", "25P01"),
            ("BEGIN; ROLLBACK TO s", "3B001"),
            ("ROLLBACK; BEGIN; SAVEPOINT s; RELEASE s; RELEASE s", "3B001"),
        ] {
            let refused = client.batch_execute(text).await.err().ok_or(text)?;
            assert_eq!(told(&refused).0, class, "{text}");
        }
        Ok(())
    })
}

#[test]
fn a_savepoint_that_is_rolled_back_to_takes_back_settings_and_cursors_of_after_it() -> Result<(), Failure> {
    let mixer = mixer(&[])?;
    run(async {
        let client = connect(&mixer).await?;
        let one = async |text: &str| -> Result<Option<String>, Failure> {
            let rows = client.simple_query(text).await?;
            Ok(rows.iter().find_map(|message| match message {
                SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
                _ => None,
            }))
        };
        let numbers = "CURSOR FOR VALUES (1), (2), (3)";
        let begun = format!("BEGIN; SET application_name = 'before'; DECLARE before {numbers}; FETCH FROM before");
        assert_eq!(one(&begun).await?.as_deref(), Some("1"));
        let after = "SAVEPOINT s; SET application_name = 'after'; DECLARE after CURSOR WITH HOLD FOR VALUES (7)";
        client.batch_execute(after).await?;
        assert!(client.batch_execute("SELECT nothing").await.is_err());
        client.batch_execute("ROLLBACK TO SAVEPOINT s").await?;
        assert_eq!(one("SHOW application_name").await?.as_deref(), Some("before"));
        assert_eq!(one("FETCH FROM before").await?.as_deref(), Some("2"));
        let gone = client
            .batch_execute("FETCH FROM after")
            .await
            .err()
            .ok_or("it is there")?;
        assert_eq!(told(&gone).0, "34000");

        client.batch_execute("ROLLBACK TO s").await?;
        client.batch_execute(after).await?;
        client.batch_execute("RELEASE s; COMMIT").await?;
        assert_eq!(one("SHOW application_name").await?.as_deref(), Some("after"));
        assert_eq!(one("FETCH FROM after").await?.as_deref(), Some("7"));
        Ok(())
    })
}
