//! Bodies that come slowly, or are larger than they may be.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::Write;

use futures::FutureExt;

use super::*;

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    writer.write_all(bytes).unwrap();
    writer.finish().unwrap()
}

async fn unpacked(packing: RequestCompression, packed: Vec<u8>, room: u64) -> Result<Bytes, ApiProblem> {
    unpack(
        packing,
        packed.into(),
        &mut IngestReservation::new(&InboundMemory::new(room)),
    )
    .await
}

#[tokio::test]
async fn bodies_are_unpacked_and_bombs_and_garbage_are_refused() {
    let text = b"some telemetry, ".repeat(100_000);
    let zstd = |bytes: &[u8]| zstd::encode_all(bytes, 1).unwrap();
    let snappy = |bytes: &[u8]| snap::raw::Encoder::new().compress_vec(bytes).unwrap();
    let twice = [gzip(&text), gzip(&text)].concat();
    for (packing, packed, copies) in [
        (RequestCompression::None, text.clone(), 1),
        (RequestCompression::Gzip, gzip(&text), 1),
        (RequestCompression::Gzip, twice, 2),
        (RequestCompression::Zstd, zstd(&text), 1),
        (RequestCompression::Snappy, snappy(&text), 1),
        (RequestCompression::Zstd, [zstd(&text), zstd(&text)].concat(), 2),
    ] {
        let body = unpacked(packing, packed, 256 << 20).await.unwrap();
        assert_eq!(body.len(), text.len() * copies, "{packing:?}");
    }
    let bomb = vec![b' '; MAX_BODY + 1];
    for (packing, packed, says) in [
        (RequestCompression::Gzip, gzip(&bomb), "larger than"),
        (RequestCompression::Zstd, zstd(&bomb), "larger than"),
        (RequestCompression::Gzip, b"garbage".to_vec(), "decompressed"),
        (RequestCompression::Zstd, b"garbage".to_vec(), "decompressed"),
        (RequestCompression::Gzip, gzip(&text)[..500].to_vec(), "decompressed"),
        (RequestCompression::Zstd, zstd(&text)[..100].to_vec(), "decompressed"),
        (RequestCompression::Snappy, snappy(&bomb), "larger than"),
        (
            RequestCompression::Snappy,
            b"\xff\xff\xff\x1fgarbage".to_vec(),
            "cannot become",
        ),
        (
            RequestCompression::Snappy,
            snappy(&text)[..500].to_vec(),
            "no block of snappy",
        ),
    ] {
        let refused = format!("{:?}", unpacked(packing, packed, 256 << 20).await.unwrap_err());
        assert!(refused.contains(says), "{packing:?}: {refused}");
    }
}

#[tokio::test]
async fn a_zstd_frame_that_wants_a_huge_window_is_refused() {
    let mut writer = zstd::Encoder::new(Vec::new(), 1).unwrap();
    writer.window_log(27).unwrap();
    writer.write_all(b"small").unwrap();
    let frame = writer.finish().unwrap();
    assert!(unpacked(RequestCompression::Zstd, frame, 256 << 20).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_client_below_the_minimum_rate_times_out() {
    let all = InboundMemory::new(1 << 20);
    let sent = async |chunk: usize, count: u64| {
        let chunks = futures::stream::iter(0..count).then(move |_| async move {
            tokio::time::sleep(Duration::from_secs(1)).await;
            Ok::<_, std::convert::Infallible>(Bytes::from(vec![7; chunk]))
        });
        read(
            &HeaderMap::new(),
            Body::from_stream(chunks),
            &mut IngestReservation::new(&all),
        )
        .await
    };
    assert_eq!(sent(64 << 10, 100).await.unwrap().len(), 100 << 16);
    assert_eq!(sent(32 << 10, 50).await.unwrap().len(), 50 << 15);
    for chunk in [1, 32 << 10] {
        let began = Instant::now();
        let slow = format!("{:?}", sent(chunk, 100).await.unwrap_err());
        assert!(slow.contains("slow_request"), "{slow}");
        assert!(
            began.elapsed() <= 2 * SlowClientLimits::default().silence,
            "{:?}",
            began.elapsed()
        );
    }
    let silent = Body::from_stream(futures::stream::pending::<Result<Bytes, std::convert::Infallible>>());
    assert!(
        read(&HeaderMap::new(), silent, &mut IngestReservation::new(&all))
            .await
            .is_err()
    );
    assert_eq!(all.held(), 0);
}

#[tokio::test(start_paused = true)]
async fn clients_hold_little_more_than_they_have_sent_whatever_they_say_that_they_will() {
    let all = InboundMemory::new(16 << 20);
    let headers = HeaderMap::from_iter([(CONTENT_LENGTH, "4194304".parse().unwrap())]);
    let sent = async |chunks: usize, bytes: usize| {
        let chunks = (0..chunks).map(|_| Ok::<_, std::convert::Infallible>(Bytes::from(vec![7; bytes])));
        let body = futures::stream::iter(chunks.collect::<Vec<_>>()).chain(futures::stream::pending());
        read(&headers, Body::from_stream(body), &mut IngestReservation::new(&all)).await
    };
    let mut one_byte: Vec<_> = (0..9).map(|_| Box::pin(sent(1, 1))).collect();
    for client in &mut one_byte {
        assert!(client.now_or_never().is_none());
    }
    let few = 9 * FIRST as u64;
    assert!(all.held() <= few, "{} bytes", all.held());
    let mut many = Box::pin(sent(100, 10_000));
    assert!((&mut many).now_or_never().is_none());
    assert!(all.held() >= USUAL as u64, "it has room for all of it");
    let stalls = tokio::time::timeout(2 * QUICK.silence, &mut many).await;
    assert!(stalls.is_err(), "it may go on");
    assert!(all.held() <= 1_000_000 + few, "{} bytes", all.held());
    drop(many);
    assert!(all.held() <= few, "{} bytes", all.held());
}

#[tokio::test]
async fn a_body_has_its_bytes_in_the_end_packed_or_not() {
    let text = b"some telemetry, ".repeat(100_000);
    for (packing, sent) in [
        (RequestCompression::None, text.clone()),
        (RequestCompression::Gzip, gzip(&text)),
    ] {
        let all = InboundMemory::new(64 << 20);
        let mut room = IngestReservation::new(&all);
        let chunks: Vec<_> = sent
            .chunks(10_000)
            .map(|chunk| Ok::<_, std::convert::Infallible>(Bytes::copy_from_slice(chunk)))
            .collect();
        let body = Body::from_stream(futures::stream::iter(chunks));
        let packed = read(&HeaderMap::new(), body, &mut room).await.unwrap();
        assert_eq!(all.held(), sent.len() as u64, "{packing:?}");
        let body = unpack(packing, packed, &mut room).await.unwrap();
        assert_eq!(
            (body.len() as u64, all.held()),
            (text.len() as u64, text.len() as u64),
            "{packing:?}"
        );
    }
}

#[tokio::test]
async fn a_request_that_finds_no_room_is_sent_away_after_a_while_and_room_comes_back() {
    let all = InboundMemory::new(1 << 20);
    let (mut first, mut second, mut third) = (
        IngestReservation::new(&all),
        IngestReservation::new(&all),
        IngestReservation::new(&all),
    );
    first.grow(1 << 20).await.unwrap();
    second.grow(1).await.unwrap();
    third.patience = Duration::from_millis(10);
    let busy = format!("{:?}", third.grow(1).await.unwrap_err());
    assert!(busy.contains("hold the memory"), "{busy}");
    drop(first);
    IngestReservation::new(&all).grow(1 << 20).await.unwrap();
}
