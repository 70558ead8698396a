//! A stable 64-bit hash: for what is written to disks or handed out as text and read by a later version.
//!
//! # Invariants
//!
//! - The same bytes have the same hash on every machine and in every release: the tests pin it.

/// Mixes all bits of a number into all others, as MurmurHash3 does at its end.
const fn mix(mut x: u64) -> u64 {
    x ^= x >> 33;
    x = x.wrapping_mul(0xff51_afd7_ed55_8ccd);
    x ^= x >> 33;
    x = x.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    x ^ (x >> 33)
}

/// The hash of some bytes.
#[must_use]
pub fn stable_hash(bytes: &[u8]) -> u64 {
    extend(0, bytes)
}

/// The hash of values one after the other, each there or not, by the hash of those before it; that of none is 0.
#[must_use]
pub fn extend_stable_hash(hash: u64, value: Option<&[u8]>) -> u64 {
    // What is absent is as long as no text can be.
    value.map_or_else(|| mix(hash.rotate_left(29) ^ u64::MAX), |bytes| extend(hash, bytes))
}

fn extend(hash: u64, bytes: &[u8]) -> u64 {
    bytes
        .chunks(8)
        .fold(mix(hash.rotate_left(29) ^ bytes.len() as u64), |hash, chunk| {
            let mut word = [0; 8];
            word.iter_mut().zip(chunk).for_each(|(to, from)| *to = *from);
            mix(hash.rotate_left(29) ^ u64::from_le_bytes(word))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_what_earlier_versions_wrote() {
        let hashes = [&b""[..], b"a", b"0123456789abcdef", b"0123456789abcdef0"].map(stable_hash);
        assert_eq!(
            hashes,
            [0, 0x985f_a481_fbf7_b619, 0x32b0_f73b_5310_f3cc, 0x8da6_d1bd_158d_6ed3]
        );
    }

    #[test]
    fn values_are_told_apart_by_where_they_end_and_whether_they_are_there() {
        let hash = |values: &[Option<&[u8]>]| values.iter().fold(0, |hash, value| extend_stable_hash(hash, *value));
        let all = [
            hash(&[Some(b"ab"), Some(b"c")]),
            hash(&[Some(b"a"), Some(b"bc")]),
            hash(&[Some(b"abc"), Some(b"")]),
            hash(&[Some(b"abc"), None]),
            hash(&[None, Some(b"abc")]),
            hash(&[Some(b"abc")]),
        ];
        for (n, one) in all.iter().enumerate() {
            assert!(!all[n + 1..].contains(one), "{all:x?}");
        }
    }
}
