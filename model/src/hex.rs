//! Lower-case hex of keys, digests and payloads.

/// The two digits of a byte.
#[must_use]
pub const fn digits(byte: u8) -> [u8; 2] {
    const fn digit(half: u8) -> u8 {
        if half < 10 { b'0' + half } else { b'a' + half - 10 }
    }
    [digit(byte >> 4), digit(byte & 15)]
}

/// The hex text of bytes.
#[must_use]
pub fn encode(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes
        .iter()
        .fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
}

/// The bytes of hex text of either case.
#[must_use]
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16);
    let pair = |pair: &[u8]| match pair {
        [high, low] => u8::try_from(digit(high)? * 16 + digit(low)?).ok(),
        _ => None,
    };
    text.as_bytes().chunks(2).map(pair).collect()
}
