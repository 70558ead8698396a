//! Damage that happens while the store is open is found without anybody asking.

use super::*;

/// Three sealed files of 300 rows each, one of an hour.
async fn three_sealed(bench: &mut Bench) -> Arc<Engine> {
    bench.ticks_every(Duration::from_millis(5));
    bench.settings.scrub_interval = Duration::from_millis(20);
    let engine = bench.open().await;
    for hour in 1..=3 {
        let times: Vec<i64> = (0..300).map(|row| bench.now() - hour * HOUR - row).collect();
        let rows = batch(&hour.to_string(), &times, from_producer(hour.unsigned_abs()));
        engine.append(rows).await.unwrap();
    }
    engine.flush().await.unwrap();
    bench.advance(Duration::from_secs(1_200));
    until("all are sealed", || stats(&engine).seals == 3).await;
    engine
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bit_that_flips_in_a_sealed_file_takes_the_file_away_and_answers_say_so() {
    let mut bench = Bench::new();
    let engine = three_sealed(&mut bench).await;
    until("two passes found nothing", || stats(&engine).scrubbed_files >= 6).await;
    assert_eq!((engine.view().partial(), stats(&engine).quarantined_files), (None, 0));
    let victim = bench.tree()[1].clone();
    let mut bytes = std::fs::read(&victim).unwrap();
    let at = bytes.len() / 3;
    bytes[at] ^= 1;
    std::fs::write(&victim, bytes).unwrap();
    until("it is put aside", || stats(&engine).quarantined_files == 1).await;
    let view = engine.view();
    assert!(
        view.partial().unwrap().contains(victim.to_str().unwrap()),
        "{:?}",
        view.partial()
    );
    assert_eq!(messages(&view).len(), 600);
    until("it has left the tree", || !victim.exists()).await;
    assert_eq!(files_below(&bench.settings.store_dir.join("quarantine")).len(), 1);
    assert_eq!(bench.tree().len(), 2);
    engine
        .append(batch("x", &[bench.now()], from_producer(4)))
        .await
        .unwrap();
    engine.close().await.unwrap();
    drop(engine);
    let engine = bench.open().await;
    assert_eq!(messages(&engine.view()).len(), 601);
    assert!(
        engine.view().partial().unwrap().contains("300 rows"),
        "{:?}",
        engine.view().partial()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_cannot_be_read_is_not_taken_for_damaged() {
    let mut bench = Bench::new();
    let engine = three_sealed(&mut bench).await;
    let away = bench.dir.path().join("away");
    let victim = bench.tree()[0].clone();
    std::fs::rename(&victim, &away).unwrap();
    let seen = stats(&engine).scrubbed_files;
    until("passes went by", || stats(&engine).scrubbed_files >= seen + 6).await;
    assert_eq!((engine.view().partial(), stats(&engine).quarantined_files), (None, 0));
    std::fs::rename(&away, &victim).unwrap();
    assert_eq!(messages(&engine.view()).len(), 900);
}
