//! Bodies in parts, from any position on, and which of their records are bad.

use super::*;

#[test]
fn a_body_comes_in_parts_of_the_size_asked_for_and_a_large_record_comes_alone() {
    let large = "x".repeat(50_000);
    let all: Vec<Value> = (0..100)
        .map(|n| line(if n == 50 { &large } else { "a line of the usual length" }))
        .collect();
    let ndjson: String = all.iter().map(|line| format!("{line}\n")).collect();
    let arrow = decode(
        Table::Logs,
        BatchEncoding::Json,
        &Value::from(all.clone()).to_string().into(),
        &publisher(),
    )
    .unwrap();
    for (encoding, body) in [
        (BatchEncoding::Ndjson, ndjson.into_bytes()),
        (BatchEncoding::Json, Value::from(all.clone()).to_string().into_bytes()),
        (BatchEncoding::Arrow, encode_arrow(&arrow).unwrap()),
    ] {
        let (batches, records) = read(Table::Logs, encoding, &body, 4_000);
        assert_eq!((messages(&batches).len(), records.rejected()), (100, 0));
        assert!(batches.len() > 3, "{encoding:?}: {}", batches.len());
        let with_large = batches
            .iter()
            .find(|batch| messages(std::slice::from_ref(batch)).contains(&large));
        assert_eq!(with_large.unwrap().num_rows(), 1, "{encoding:?}");
    }
}

#[test]
fn a_body_is_read_on_from_where_it_was_left_in_parts_of_any_size() {
    let all: Vec<Value> = (0..200).map(|n| line(&format!("line {n}"))).collect();
    let arrow = Value::from(all.clone()).to_string().into();
    let arrow = decode(Table::Logs, BatchEncoding::Json, &arrow, &publisher()).unwrap();
    let mixed: Vec<Value> = (0..)
        .zip(all)
        .map(|(n, line)| if n % 7 == 3 { json!(n) } else { line })
        .collect();
    let ndjson: String = mixed.iter().map(|line| format!("{line}\n\n")).collect();
    for (encoding, body) in [
        (BatchEncoding::Ndjson, ndjson.into_bytes()),
        (BatchEncoding::Json, Value::from(mixed.clone()).to_string().into_bytes()),
        (BatchEncoding::Cbor, cbor(&Value::from(mixed))),
        (
            BatchEncoding::Arrow,
            encode_arrow(&[arrow[0].slice(0, 90), arrow[0].slice(90, 110)]).unwrap(),
        ),
    ] {
        let (whole, first) = read(Table::Logs, encoding, &body, usize::MAX);
        for (before, now) in [(500, 6_000), (6_000, 500), (1, usize::MAX), (usize::MAX, 1)] {
            let mut records = BodyRecordReader::new(Table::Logs, encoding, body.clone().into(), publisher()).unwrap();
            let mut kept = Vec::new();
            for parts in 1..=3 {
                let Some(part) = records.next_part(before).unwrap() else {
                    break;
                };
                kept.push(part.batch);
                let rows: usize = kept.iter().map(RecordBatch::num_rows).sum();
                let mut again = BodyRecordReader::new(Table::Logs, encoding, body.clone().into(), publisher()).unwrap();
                assert_eq!(
                    again.skip_to(part.to, now).unwrap(),
                    rows as u64,
                    "{encoding:?} {parts}"
                );
                let mut all = kept.clone();
                while let Some(part) = again.next_part(now).unwrap() {
                    all.push(part.batch);
                }
                assert_eq!(messages(&all), messages(&whole), "{encoding:?} {before} {now} {parts}");
                assert_eq!((again.named(), again.rejected()), (first.named(), first.rejected()));
            }
        }
    }
}

#[test]
fn what_ends_or_goes_on_where_it_should_not_is_one_more_bad_record() {
    let good = line("a").to_string();
    for (encoding, body, says) in [
        (BatchEncoding::Json, format!("[{good},{good}"), "not closed"),
        (BatchEncoding::Json, format!("[{good}] []"), "bytes follow"),
        (BatchEncoding::Json, format!("[{good},]"), "EOF"),
        (BatchEncoding::Ndjson, format!("{good}\n{}", &good[..20]), "EOF"),
        (BatchEncoding::Ndjson, format!("{good}\n{good}{good}"), "trailing"),
        (BatchEncoding::Ndjson, format!("{good}\n\u{0}"), "expected value"),
    ] {
        let (batches, records) = read(Table::Logs, encoding, body.as_bytes(), usize::MAX);
        assert_eq!((messages(&batches).len(), records.rejected()), (1, 1), "{body}");
        let bad = &records.named()[0];
        assert!(bad.row == 1 && bad.reason.contains(says), "{says}: {bad:?}");
    }
    let mut cut = cbor(&json!([line("a"), line("b")]));
    cut.truncate(cut.len() - 3);
    let (batches, records) = read(Table::Logs, BatchEncoding::Cbor, &cut, usize::MAX);
    assert_eq!((messages(&batches).len(), records.rejected()), (1, 1));
    assert!(
        records.named()[0].reason.contains("nothing behind it"),
        "{:?}",
        records.named()
    );
}

#[test]
fn bad_records_are_marked_by_position_also_those_that_are_not_named_or_refused_later() {
    let line = |n: usize| match n % 3 {
        1 => "bad\n".to_owned(),
        _ => format!("{{\"ts\":\"2026-11-21T10:00:00Z\",\"level\":\"info\",\"message\":\"line {n}\"}}\n"),
    };
    let body: String = (0..400).map(line).collect();
    let reader = BodyRecordReader::new(Table::Logs, BatchEncoding::Ndjson, body.into(), publisher());
    let mut records = reader.unwrap().marking_refused();
    let mut refused_later = 0..0;
    while let Some(part) = records.next_part(2_000).unwrap() {
        assert_eq!(part.positions.len(), part.batch.num_rows());
        if refused_later.is_empty() && part.positions[0] > 200 {
            refused_later = part.positions[0]..part.to;
            records.reject_rows(&part.positions, "the log refuses them");
        }
    }
    assert_eq!(records.named().len(), NAMED);
    assert!(refused_later.end - refused_later.start > 3, "{refused_later:?}");
    let marks = records.take_marks();
    for position in 0..400_u64 {
        let is_marked = marks[(position / 64) as usize] >> (position % 64) & 1 == 1;
        let is_bad = position % 3 == 1 || refused_later.contains(&position);
        assert_eq!(is_marked, is_bad, "{position}");
    }
}
