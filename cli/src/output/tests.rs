//! What is printed of rows, whatever is stored.

use proptest::prelude::*;

use super::*;
use crate::test_strings;

#[test]
fn stored_control_characters_are_shown_and_not_obeyed() {
    assert_eq!(
        escape_controls("a\u{1b}[2Jb\u{7}\n\u{202e}"),
        "a\\u{1b}[2Jb\\u{7}\\n\\u{202e}"
    );
    assert_eq!(escape_controls("grüße"), "grüße");
    assert_eq!(plain(&serde_json::json!({"k\n": "v\t"})), "k\\n=v\\t");
}

#[test]
fn json_gives_back_what_was_stored_and_writes_no_control_character() {
    let stored = "\u{1b}[2J\u{7f}\u{9b}\u{202e}é\n";
    let json = serde_json::to_string_pretty(&[stored]).unwrap_or_default();
    let written = json_safe(&json);
    assert!(!written.replace('\n', "").contains(is_control_or_bidi), "{written}");
    let read: Vec<String> = serde_json::from_str(&written).unwrap_or_default();
    assert_eq!(read, [stored]);
}

#[test]
fn the_times_of_a_table_are_shown_as_such_and_texts_that_look_like_them_are_left_alone() {
    for (column, expected) in [
        ("ts", "2026-11-21T10:00:00.000000Z"),
        ("stored", "2026-11-21T10:00:00.000000Z"),
        ("message", "2026-11-21T10:00:00Z"),
    ] {
        let row = Row::from_iter([(column.to_owned(), "2026-11-21T10:00:00Z".into())]);
        assert_eq!(
            RowPrinter::of(OutputFormat::Table).cell(&row, column, TimeForm::Full),
            expected,
            "{column}"
        );
    }
}

#[test]
fn a_narrow_table_has_short_times_and_every_table_has_units_and_ages() {
    let row = serde_json::json!({
        "ts": "2026-11-21T10:00:00Z", "last_seen": "2026-11-21T10:00:00Z", "waiting_bytes": 6_758, "message": "x".repeat(40),
    });
    let rows = [row.as_object().cloned().unwrap_or_default()];
    let columns = ["ts", "last_seen", "waiting_bytes", "message"];
    let printer = |width, now: &str| RowPrinter {
        width,
        now: now.parse().ok(),
        ..RowPrinter::of(OutputFormat::Table)
    };
    let line = |printer: RowPrinter| printer.table(&rows, &columns).lines().nth(1).map(str::to_owned);
    let whole = "x".repeat(40);
    assert_eq!(
        line(printer(None, "2026-11-21T10:00:03Z")),
        Some(format!(
            "2026-11-21T10:00:00.000000Z  3 s ago    6.6 KiB        {whole}"
        ))
    );
    assert_eq!(
        line(printer(Some(60), "2026-11-21T10:00:03Z")),
        Some("10:00:00.000  3 s ago    6.6 KiB        xxxxxxxxxxxxxxxxxxx…".to_owned())
    );
    assert_eq!(
        line(printer(Some(60), "2026-11-22T10:00:00Z")),
        Some("2026-11-21 10:00:00  24 h ago   6.6 KiB        xxxxxxxxxxxx…".to_owned())
    );
    assert_eq!(
        line(printer(None, "2026-11-21T10:00:03Z").exact()),
        Some(format!(
            "2026-11-21T10:00:00Z  2026-11-21T10:00:00Z  6758           {whole}"
        ))
    );
}

#[test]
fn csv_quotes_what_would_break_a_line() {
    let row: Row = [
        ("a".to_owned(), Value::from("x,\"y\"\n")),
        ("b".to_owned(), Value::from("\u{1b}[2J\r")),
        ("c,d".to_owned(), Value::Null),
    ]
    .into_iter()
    .collect();
    let mut out = Vec::new();
    assert!(csv(&mut out, &[row], &["a", "b", "c,d"]).is_ok());
    assert_eq!(
        String::from_utf8_lossy(&out),
        "a,b,\"c,d\"\n\"x,\"\"y\"\"\n\",\\u{1b}[2J\\r,\n"
    );
}

fn hostile_row() -> impl Strategy<Value = Row> {
    let texts = prop::collection::vec((test_strings::text(), test_strings::text()), 0..4);
    (texts, test_strings::text(), test_strings::text()).prop_map(|(attributes, ts, message)| {
        let attributes: Row = attributes.into_iter().map(|(key, value)| (key, value.into())).collect();
        let row = serde_json::json!({ "ts": ts, "last_seen": message, "message": message, "attributes": attributes });
        row.as_object().cloned().unwrap_or_default()
    })
}

proptest! {
    #[test]
    fn no_stored_text_reaches_a_table_or_csv_with_its_controls(rows in prop::collection::vec(hostile_row(), 1..6)) {
        let columns = ["ts", "last_seen", "message", "attributes"];
        let table = RowPrinter::of(OutputFormat::Table).table(&rows, &columns);
        prop_assert_eq!(table.lines().count(), rows.len() + 1, "{}", table);
        prop_assert!(!table.replace('\n', "").contains(is_control_or_bidi), "{table:?}");
        let mut out = Vec::new();
        prop_assert!(csv(&mut out, &rows, &columns).is_ok());
        let text = String::from_utf8_lossy(&out).replace(['\n', '\t'], "");
        prop_assert!(!text.contains(is_control_or_bidi), "{text:?}");
    }

    #[test]
    fn json_gives_back_any_row_without_its_controls(row in hostile_row()) {
        let written = json_safe(&serde_json::to_string(&row).unwrap_or_default()).into_owned();
        prop_assert!(!written.contains(is_control_or_bidi), "{written:?}");
        prop_assert_eq!(serde_json::from_str::<Row>(&written).ok(), Some(row));
    }
}
