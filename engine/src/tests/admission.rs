//! Memory for what is on its way to appends: who waits for it keeps nobody from publishing, sealing and indexing.

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
        // The share, and the one beyond it.
        for _ in 0..2 {
            let mut room = memory.room();
            room.grow(share).await;
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
    assert_eq!(stats(&engine).hot_rows, 0);
    assert_eq!(messages(&engine.view()).len(), 20_000);
    drop(rooms);
    assert_eq!(stats(&engine).inbound_bytes, 0);
}
