//! Times: parts of microseconds, parts of times, zones, `to_char`.

use model::{LogRecord, Timestamp};
use serde_json::json;

use super::{asked, of_messages, one, said};
use crate::QueryErrorKind;
use crate::tests::random_world::{self, Random};
use crate::tests::{Bench, now};

#[tokio::test(flavor = "multi_thread")]
async fn a_time_between_two_microseconds_is_the_nearer_wherever_it_is_compared() {
    let bench = Bench::new().await;
    let midnight: Timestamp = "2026-11-21T00:00:00Z".parse().unwrap();
    let mut random = Random::new();
    let logs: Vec<_> = [-1, 0, 1]
        .map(|micros| LogRecord {
            ts: Timestamp::from_micros(midnight.micros() + micros),
            ..random_world::log(&mut random)
        })
        .into();
    bench.append(&logs).await;
    bench.publish().await;
    let (before, after) = ("2026-11-20 23:59:59.9999994", "2026-11-20 23:59:59.9999995");
    for (condition, count) in [
        (format!("ts = TIMESTAMP '{before}'"), 1),
        (format!("ts < TIMESTAMP '{before}'"), 0),
        (format!("ts >= TIMESTAMP '{after}' AND ts < '2026-11-21T00:00:00Z'"), 0),
        (format!("ts >= '{after}' AND ts < '2026-11-21T00:00:00Z'"), 0),
        (format!("ts <= '{after}'"), 2),
        (format!("ts = to_timestamp_nanos('{after}')"), 1),
        (format!("ts BETWEEN '{after}' AND '{after}'"), 1),
        (format!("ts NOT IN ('{after}', TIMESTAMPTZ '{before}')"), 1),
        (format!("ts IS DISTINCT FROM '{after}'"), 2),
        (format!("CASE WHEN ts > '{before}' THEN true ELSE false END"), 2),
        (format!("'{after}' = ts"), 1),
    ] {
        let query = format!("SELECT count(*) FROM logs WHERE {condition}");
        assert_eq!(one(&bench, &query).await, count, "{condition}");
    }
    let asks = asked(&bench, "SELECT count(*) AS n FROM logs WHERE ts >= $1", json!([after]))
        .await
        .unwrap();
    assert_eq!(asks["data"][0]["n"], 2);
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn parts_of_times_and_of_differences_keep_their_fractions() {
    let bench = of_messages(&["one"]).await;
    let difference = "(TIMESTAMP '2026-07-02 05:03:56.851275' - TIMESTAMP '2026-07-01 00:00:00')";
    let interval = "INTERVAL '1 day 5 hours 3 minutes 56.851275 seconds'";
    let at = "TIMESTAMP '2026-07-02 05:03:56.851275'";
    for (part, of_difference, of_interval, of_time) in [
        ("epoch", "104636.851275", "104636.851275", "1782968636.851275"),
        ("day", "1", "1", "2"),
        ("hour", "5", "5", "5"),
        ("minute", "3", "3", "3"),
        ("second", "56.851275", "56.851275", "56.851275"),
        ("milliseconds", "56851.275", "56851.275", "56851.275"),
        ("microseconds", "56851275", "56851275", "56851275"),
    ] {
        for (of, expected) in [(difference, of_difference), (interval, of_interval), (at, of_time)] {
            let both = format!("extract({part} FROM {of}), date_part('{part}', {of})");
            assert_eq!(said(&bench, &both).await, [expected, expected], "{part} of {of}");
        }
    }
    let of_rows = "SELECT extract(epoch FROM max(ts) + INTERVAL '2.25 seconds' - max(ts)) FROM logs";
    assert_eq!(one(&bench, of_rows).await, 2.25);
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn to_char_writes_times_by_the_patterns_of_postgresql() {
    let bench = of_messages(&["one"]).await;
    let at = "TIMESTAMPTZ '2026-07-02 15:03:06.851275Z'";
    for (pattern, expected) in [
        ("YYYY-MM-DD HH24:MI:SS", "2026-07-02 15:03:06"),
        ("yyyy-mm-dd", "2026-07-02"),
        ("HH12:MI AM", "03:03 PM"),
        ("FMHH:MI pm", "3:03 pm"),
        ("SS.MS US", "06.851 851275"),
        ("YYYY-MM-DD\"T\"HH24:MI TZ", "2026-07-02T15:03 UTC"),
        ("HH24OF", "15+00"),
        ("Dy, DD Mon YY", "Thu, 02 Jul 26"),
        ("DAY|Month|FMmonth|DDD", "THURSDAY |July     |july|183"),
        ("IYYY-IW-ID", "2026-27-4"),
        ("%Y/%m", "2026/07"),
    ] {
        assert_eq!(
            said(&bench, &format!("to_char({at}, '{pattern}')")).await,
            [expected],
            "{pattern}"
        );
    }
    assert_eq!(
        said(
            &bench,
            "to_char(DATE '2026-07-02', 'DD.MM.YYYY HH24'), to_char(TIMESTAMP '2026-07-02 15:03:06', 'HH24 TZ'), \
             to_char(NULL::timestamp, 'Month')"
        )
        .await,
        ["02.07.2026 00", "15 ", "null"]
    );
    // Each call is one expression, however long its pattern is and whatever its time is made of.
    let nested = (0..6).fold(at.to_owned(), |at, _| {
        format!("to_char(({at})::timestamp, 'YYYY-MM-DD HH24:MI:SS')")
    });
    assert_eq!(said(&bench, &nested).await, ["2026-07-02 15:03:06"]);
    for (bad, way) in [
        ("to_char(now(), 'YYYY-MM-DDTHH24')", "'THH24'"),
        ("to_char(now(), message)", "written as a text"),
        ("to_char(now() - ts, 'HH24:MI')", "extract("),
        (&format!("to_char(ts, '{}')", "DY".repeat(20_000)), "at most 256 bytes"),
    ] {
        let error = asked(&bench, &format!("SELECT {bad} FROM logs"), json!([]))
            .await
            .unwrap_err();
        assert!(error.to_string().contains(way), "{bad}: {error}");
    }
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_a_moment_has_the_type_of_moments() {
    let bench = of_messages(&["one"]).await;
    let query = "SELECT now() AS a, current_timestamp AS b, TIMESTAMPTZ '2026-07-01 12:00:00+02' AS c, to_timestamp(0) AS d, \
                 '2026-07-01'::timestamp with time zone AS e, TIMESTAMP '2026-07-01 12:00:00' AS f FROM logs \
                 WHERE ts <= now() AND ts < current_timestamp + INTERVAL '1 day' AND ts <> TIMESTAMPTZ '2026-07-01 12:00:00+02'";
    let answer = asked(&bench, query, json!([])).await.unwrap();
    let types: Vec<_> = answer["columns"]
        .as_array()
        .unwrap()
        .iter()
        .map(|column| &column["type"])
        .collect();
    assert_eq!(
        types,
        [
            "timestamptz",
            "timestamptz",
            "timestamptz",
            "timestamptz",
            "timestamptz",
            "timestamp"
        ]
    );
    let row = &answer["data"][0];
    assert_eq!(row["a"], now().to_string());
    assert_eq!(row["c"], "2026-07-01T10:00:00.000000Z");
    assert_eq!(row["d"], "1970-01-01T00:00:00.000000Z");
    assert_eq!(row["e"], "2026-07-01T00:00:00.000000Z");
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn at_time_zone_moves_between_moments_and_what_clocks_show() {
    let bench = of_messages(&["one"]).await;
    for (expression, expected) in [
        (
            "TIMESTAMPTZ '2026-07-01 10:00:00Z' AT TIME ZONE 'Europe/Berlin'",
            "2026-07-01T12:00:00",
        ),
        (
            "'2026-01-01T10:00:00Z' AT TIME ZONE 'Europe/Berlin'",
            "2026-01-01T11:00:00",
        ),
        (
            "TIMESTAMP '2026-07-01 12:00:00' AT TIME ZONE 'Europe/Berlin'",
            "2026-07-01T10:00:00.000000Z",
        ),
        (
            "TIMESTAMP '2026-07-01 12:00:00' AT TIME ZONE 'Europe/Berlin' AT TIME ZONE 'America/New_York'",
            "2026-07-01T06:00:00",
        ),
        (
            "extract(hour FROM TIMESTAMPTZ '2026-07-01 10:00:00Z' AT TIME ZONE 'Europe/Berlin')",
            "12",
        ),
        (
            "date_trunc('day', TIMESTAMPTZ '2026-07-01 23:00:00Z' AT TIME ZONE 'Europe/Berlin') AT TIME ZONE 'Europe/Berlin'",
            "2026-07-01T22:00:00.000000Z",
        ),
        ("timezone('UTC', NULL::timestamp)", "null"),
    ] {
        assert_eq!(said(&bench, expression).await, [expected], "{expression}");
    }
    let of_rows = "SELECT count(*) FROM logs WHERE ts AT TIME ZONE 'UTC' AT TIME ZONE 'UTC' = ts";
    assert_eq!(one(&bench, of_rows).await, 1);
    for bad in [
        "now() AT TIME ZONE '+02'",
        "now() AT TIME ZONE 'Nowhere'",
        "5 AT TIME ZONE 'UTC'",
    ] {
        let error = asked(&bench, &format!("SELECT {bad}"), json!([])).await.unwrap_err();
        assert_eq!(error.kind(), QueryErrorKind::Statement, "{bad}: {error:?}");
    }
    bench.close().await;
}
