//! Bad records that are kept: which bytes of them, how many, and none of what only another may store.

use super::*;

/// The bad records of a body of logs.
fn kept(encoding: BatchEncoding, body: &[u8], writers: Option<WriterEntities>, size: usize) -> Vec<RefusedRecord> {
    let body = body.to_vec().into();
    let records = BodyRecordReader::new_keeping_refused(Table::Logs, encoding, body, publisher());
    let mut records = records.unwrap().with_writers(writers);
    while records.next_part(size).unwrap().is_some() {}
    records.refused().to_vec()
}

fn loud(message: &str) -> Value {
    let mut bad = line(message);
    bad["level"] = "loud".into();
    bad
}

/// The rows with levels that the table does not have.
fn loud_arrow(rows: &[Value]) -> Vec<u8> {
    let body = Value::from(rows.to_vec()).to_string();
    let good = decode(Table::Logs, BatchEncoding::Json, &body.into(), &publisher()).unwrap();
    let levels: Vec<_> = (0..rows.len())
        .map(|row| if row == 1 { "loud" } else { "info" })
        .collect();
    let mut columns = good[0].columns().to_vec();
    columns[4] = std::sync::Arc::new(arrow_array::StringArray::from(levels));
    encode_arrow(&[RecordBatch::try_new(good[0].schema(), columns).unwrap()]).unwrap()
}

#[test]
fn bad_records_are_kept_as_they_were_sent_and_rows_of_arrow_as_json() {
    let (good, bad) = (line("a"), loud("b"));
    let all = json!([good, bad, good, 7]);
    let ndjson = format!("{good}\n  {bad} \r\n{good}\n7");
    let text = |row, text: &Value| (row, text.to_string().into_bytes());
    for (encoding, body, wanted) in [
        (
            BatchEncoding::Ndjson,
            ndjson.into_bytes(),
            vec![text(1, &bad), text(3, &json!(7))],
        ),
        (
            BatchEncoding::Json,
            all.to_string().into_bytes(),
            vec![text(1, &bad), text(3, &json!(7))],
        ),
        (
            BatchEncoding::Cbor,
            cbor(&all),
            vec![(1, cbor(&bad)), (3, cbor(&json!(7)))],
        ),
    ] {
        for size in [1, usize::MAX] {
            let kept = kept(encoding, &body, None, size);
            let found: Vec<_> = kept.iter().map(|bad| (bad.row, bad.record.to_vec())).collect();
            assert_eq!(found, wanted, "{encoding:?}");
            assert!(kept[0].reason.contains("loud"), "{encoding:?}: {kept:?}");
        }
        let mut unasked = BodyRecordReader::new(Table::Logs, encoding, body.into(), publisher()).unwrap();
        while unasked.next_part(usize::MAX).unwrap().is_some() {}
        assert_eq!((unasked.rejected(), unasked.refused().len()), (2, 0), "{encoding:?}");
    }
    let of_arrow = kept(
        BatchEncoding::Arrow,
        &loud_arrow(&[line("a"), line("b"), line("c")]),
        None,
        1,
    );
    assert_eq!((of_arrow.len(), of_arrow[0].row), (1, 1));
    let row: Value = serde_json::from_slice(&of_arrow[0].record).unwrap();
    assert_eq!(
        (&row["level"], &row["message"], &row["entity_name"]),
        (&json!("loud"), &json!("b"), &json!("script"))
    );
}

#[test]
fn what_ends_or_goes_on_where_it_should_not_is_kept_too() {
    let good = line("a").to_string();
    let (mut surplus, mut cut) = (cbor(&json!([line("a")])), cbor(&json!([line("a"), line("b")])));
    surplus.push(7);
    let at = cbor(&json!([line("a")])).len();
    cut.truncate(cut.len() - 3);
    let behind = cut[at..].to_vec();
    for (encoding, body, wanted) in [
        (
            BatchEncoding::Json,
            format!("[{good},{{\"ts\"").into_bytes(),
            b"{\"ts\"".to_vec(),
        ),
        (
            BatchEncoding::Json,
            format!("[{good}] [1] ").into_bytes(),
            b"[1]".to_vec(),
        ),
        (BatchEncoding::Cbor, surplus, vec![7]),
        (BatchEncoding::Cbor, cut, behind),
    ] {
        let kept = kept(encoding, &body, None, usize::MAX);
        let found: Vec<_> = kept.iter().map(|bad| (bad.row, bad.record.to_vec())).collect();
        assert_eq!(found, [(1, wanted)], "{encoding:?}: {}", String::from_utf8_lossy(&body));
    }
}

#[test]
fn rows_of_entities_that_a_sender_may_not_store_are_not_kept() {
    let own = Some(WriterEntities::of(&["press".to_owned()]));
    let all = [line("a"), loud("b"), line("c")];
    let ndjson: String = all.iter().map(|row| format!("{row}\n")).collect();
    for (encoding, body) in [
        (BatchEncoding::Ndjson, ndjson.into_bytes()),
        (BatchEncoding::Cbor, cbor(&json!(all))),
        (BatchEncoding::Arrow, loud_arrow(&[line("a"), line("b"), line("c")])),
    ] {
        let rows: Vec<_> = kept(encoding, &body, own.clone(), usize::MAX)
            .iter()
            .map(|bad| bad.row)
            .collect();
        assert_eq!(rows, [1], "{encoding:?}: of the script's rows only the bad one");
    }
}

#[test]
fn at_most_so_many_bad_records_and_bytes_of_them_are_kept() {
    let many = kept(BatchEncoding::Ndjson, &b"7\n".repeat(KEPT + 5), None, usize::MAX);
    assert_eq!((many.len(), many[KEPT - 1].row), (KEPT, KEPT as u64 - 1));
    // Four of 3 MB, of which two fit, and a small one behind them.
    let large = format!("[{}]\n", "1,".repeat(3 << 19)).repeat(4) + "7\n";
    let large = kept(BatchEncoding::Ndjson, large.as_bytes(), None, usize::MAX);
    let rows: Vec<_> = large.iter().map(|bad| bad.row).collect();
    assert_eq!(rows, [0, 1, 4]);
}
