//! Frames: what is written is read back, and nothing else is.
#![allow(clippy::unwrap_used, reason = "tests")]

use proptest::prelude::*;
use uuid::Uuid;

use super::*;

fn identity(number: u64) -> SegmentIdentity {
    SegmentIdentity::new(Uuid::from_u128(0xfeed), number)
}

fn frames() -> impl Strategy<Value = Vec<WalFrame>> {
    let one = (
        1u64..5,
        any::<u8>(),
        any::<i64>(),
        proptest::collection::vec(any::<u8>(), 0..40),
        proptest::collection::vec(any::<u8>(), 0..200),
    );
    proptest::collection::vec(one, 0..12).prop_map(|parts| {
        let mut lsn = 0;
        parts
            .into_iter()
            .map(|(step, table, arrived, origin, payload)| {
                lsn += step;
                WalFrame {
                    lsn,
                    table,
                    arrived: Timestamp::from_micros(arrived),
                    origin: origin.into(),
                    payload: payload.into(),
                }
            })
            .collect()
    })
}

fn encode(frames: &[WalFrame], identity: &SegmentIdentity, durable: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    for frame in frames {
        let start = bytes.len();
        frame.encode(identity, durable, &mut bytes);
        assert_eq!((bytes.len() - start) as u64, frame.encoded_len());
    }
    bytes
}

fn read(found: &[ParsedFrame], bytes: &[u8]) -> Vec<WalFrame> {
    let bytes = Bytes::copy_from_slice(bytes);
    found.iter().map(|found| found.frame(&bytes)).collect()
}

proptest! {
    #[test]
    fn frames_read_back_as_written_whatever_follows_them(frames in frames(), noise in proptest::collection::vec(any::<u8>(), 0..300)) {
        let mut bytes = encode(&frames, &identity(9), 0);
        bytes.extend_from_slice(&noise);
        let scan = SegmentScan::run(&identity(9), &bytes, 0);
        prop_assert_eq!(read(&scan.prefix, &bytes), frames);
        prop_assert!(scan.beyond.is_empty());
    }

    #[test]
    fn frames_of_another_segment_or_store_are_foreign(frames in frames(), other in any::<u64>(), store in any::<u128>()) {
        prop_assume!(other != 9 && store != 0xfeed);
        let bytes = encode(&frames, &identity(9), 0);
        for foreign in [identity(other), SegmentIdentity::new(Uuid::from_u128(store), 9)] {
            let scan = SegmentScan::run(&foreign, &bytes, 0);
            prop_assert!(scan.prefix.is_empty() && scan.beyond.is_empty());
        }
    }

    #[test]
    fn any_bytes_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..2000), start in 0usize..64) {
        let scan = SegmentScan::run(&identity(9), &bytes, start.min(bytes.len()));
        prop_assert!(scan.prefix.is_empty() && scan.beyond.is_empty());
    }

    #[test]
    fn a_flipped_bit_costs_its_own_frame_only(frames in frames(), at in any::<prop::sample::Index>()) {
        prop_assume!(!frames.is_empty());
        let mut bytes = encode(&frames, &identity(9), 0);
        let bit = at.index(bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        let scan = SegmentScan::run(&identity(9), &bytes, 0);
        let mut found = scan.prefix;
        found.extend(scan.beyond);
        let found = read(&found, &bytes);
        prop_assert!(found.len() + 1 >= frames.len(), "{} of {}", found.len(), frames.len());
        prop_assert!(found.iter().all(|frame| frames.contains(frame)));
    }
}

#[test]
fn content_made_to_look_like_frames_does_not_make_the_search_slow() {
    // Every 8 bytes claim a frame that reaches to the end.
    let len = 1 << 20;
    let mut bytes = vec![0u8; len];
    for at in (8..len - 64).step_by(8) {
        let claim = u32::try_from(len - at).unwrap();
        bytes[at..at + 4].copy_from_slice(&claim.to_le_bytes());
    }
    let scan = SegmentScan::run(&identity(9), &bytes, 0);
    assert!(scan.prefix.is_empty() && scan.beyond.is_empty());
}
