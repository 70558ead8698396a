//! Memory for what is on its way to appends: who waits for it keeps nobody from publishing, sealing and indexing.

use ::model::batch::slice_bytes;
use ::model::telemetry_codec::decode_arrow;
use arrow_array::Array;
use arrow_select::concat::concat_batches;
use bytes::Bytes;

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn rows_are_published_sealed_and_indexed_while_bodies_hold_all_the_memory_for_them() {
    let mut bench = Bench::new();
    bench.ticks_every(Duration::from_millis(5));
    bench.settings.index = true;
    bench.settings.hot_max = ByteSize::mib(1);
    bench.settings.inbound_max = ByteSize::mib(1);
    let engine = bench.open().await;
    let all = bench.settings.inbound_max.get();
    let inbound = engine.inbound();
    let mut rooms = Vec::new();
    for (memory, share) in [
        (&inbound.bodies, all / 2),
        (&inbound.messages, all / 2),
        (&inbound.decoding, all),
    ] {
        // The share, of which one holds a half at most, and the one beyond it.
        for bytes in [share / 2, share / 2, share] {
            let mut room = memory.room();
            room.grow(bytes).await;
            rooms.push(room);
        }
    }
    assert_eq!(stats(&engine).inbound_bytes, 4 * all);
    // More than there is room for at once.
    for seq in 1..=40 {
        let rows = batch(&format!("{seq:02}"), &vec![bench.now(); 500], from_producer(seq));
        assert_eq!(engine.append(rows).await.unwrap(), stored(500));
    }
    engine.flush().await.unwrap();
    bench.advance(Duration::from_secs(7_200));
    until("the file is sealed", || stats(&engine).seals > 0).await;
    engine.index_all().await.unwrap();
    assert_eq!(stats(&engine).memtable_rows, 0);
    assert_eq!(messages(&engine.view()).len(), 20_000);
    drop(rooms);
    assert_eq!(stats(&engine).inbound_bytes, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn hot_rows_keep_nothing_alive_of_the_body_that_they_came_in_and_no_rows_beside_them() {
    let bench = Bench::new();
    let engine = bench.open().await;
    let all = rows("a", &vec![bench.now(); 4_000]);
    let body = Bytes::from(encode_arrow(std::slice::from_ref(&all)).unwrap());
    let decoded = decode_arrow(Table::Logs, &body).unwrap().remove(0);
    let own = concat_batches(all.schema_ref(), [&all.slice(0, 2_000), &all.slice(0, 10)]).unwrap();
    let whole_body = Bytes::from(encode_arrow(std::slice::from_ref(&all)).unwrap());
    let whole = decode_arrow(Table::Logs, &whole_body).unwrap().remove(0);
    let few = decoded.slice(0, 2_000);
    drop(decoded);
    for (seq, rows) in (1..).zip([few, all.slice(100, 2_000), own.clone(), whole.clone()]) {
        let payload = encode_arrow(std::slice::from_ref(&rows)).unwrap().into();
        let rows = vec![rows];
        let batch = AppendBatch {
            payload,
            rows,
            ..batch("a", &[], from_producer(seq))
        };
        engine.append(batch).await.unwrap();
    }
    let hot = engine.view().hot(Table::Logs).to_vec();
    let sizes: Vec<_> = hot
        .iter()
        .map(|hot| (hot.batch.get_array_memory_size(), slice_bytes(&hot.batch)))
        .collect();
    assert_eq!(sizes.len(), 4);
    for (held, taken) in &sizes[..3] {
        assert!(*held < 2 * taken, "{held} bytes for rows of {taken}");
    }
    assert!(body.is_unique(), "nothing is left of it");
    let address = |batch: &RecordBatch| batch.column(5).to_data().buffers()[1].as_ptr();
    for (hot, rows) in hot[2..].iter().zip([own, whole]) {
        assert_eq!(
            address(&hot.batch),
            address(&rows),
            "rows with memory of their own, or of a body that is theirs alone, are not copied"
        );
    }
}
