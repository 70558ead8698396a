//! The binary form of `numeric`: groups of four digits, with the power of the first one.

use bytes::{BufMut, BytesMut};

/// Writes the digits of a number, such as `-12.50`.
pub(super) fn put(out: &mut BytesMut, digits: &str) {
    let (negative, digits) = match digits.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, digits),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let whole = whole.trim_start_matches('0');
    // Whole groups on both sides of the point.
    let before = "0".repeat((4 - whole.len() % 4) % 4);
    let behind = "0".repeat((4 - fraction.len() % 4) % 4);
    let all: Vec<u8> = [before.as_str(), whole, fraction, behind.as_str()]
        .concat()
        .into_bytes();
    let value = |group: &[u8]| {
        let digits = group.iter().map(|digit| i16::from(digit.wrapping_sub(b'0') % 10));
        digits.fold(0, |sum, digit| sum * 10 + digit)
    };
    let groups: Vec<i16> = all.chunks(4).map(value).collect();
    let leading = groups.iter().take_while(|group| **group == 0).count();
    let trailing = groups.iter().rev().take_while(|group| **group == 0).count();
    let used = groups
        .get(leading..groups.len().saturating_sub(trailing).max(leading))
        .unwrap_or_default();
    let in_whole = whole.len().div_ceil(4);
    let power = i16::try_from(in_whole).unwrap_or_default() - 1 - i16::try_from(leading).unwrap_or_default();
    out.put_i16(i16::try_from(used.len()).unwrap_or(i16::MAX));
    out.put_i16(if used.is_empty() { 0 } else { power });
    out.put_u16(if negative && !used.is_empty() { 0x4000 } else { 0 });
    out.put_i16(i16::try_from(fraction.len()).unwrap_or(i16::MAX));
    used.iter().for_each(|group| out.put_i16(*group));
}

/// The digits of a binary number; `None` if it is none, or larger than it may be.
pub(super) fn read(mut bytes: &[u8]) -> Option<String> {
    use bytes::Buf;
    let count = usize::try_from(bytes.try_get_i16().ok()?).ok()?;
    let power = i32::from(bytes.try_get_i16().ok()?);
    let sign = bytes.try_get_u16().ok()?;
    let scale = usize::try_from(bytes.try_get_i16().ok()?).ok()?;
    if sign & 0xc000 == 0xc000 || count > 64 || !(-64..=64).contains(&power) || scale > 256 {
        return None;
    }
    let mut groups = Vec::with_capacity(count);
    for _ in 0..count {
        groups.push(bytes.try_get_u16().ok().filter(|group| *group < 10_000)?);
    }
    let group = |power_of: i32| {
        let index = usize::try_from(power - power_of).ok();
        index.and_then(|index| groups.get(index)).copied().unwrap_or(0)
    };
    let mut text: String = (0..=power.max(0))
        .rev()
        .map(|power| format!("{:04}", group(power)))
        .collect();
    text = text.trim_start_matches('0').to_owned();
    if text.is_empty() {
        text.push('0');
    }
    if scale > 0 {
        let groups = i32::try_from(scale.div_ceil(4)).ok()?;
        let mut fraction: String = (1..=groups).map(|behind| format!("{:04}", group(-behind))).collect();
        fraction.truncate(scale);
        text = format!("{text}.{fraction}");
    }
    Some(if sign == 0x4000 { format!("-{text}") } else { text })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_read_as_it_was_written() {
        for (written, read_as) in [
            ("0", "0"),
            ("-0.00", "0.00"),
            ("1", "1"),
            ("-12.50", "-12.50"),
            ("10000", "10000"),
            ("123456789.000100", "123456789.000100"),
            ("0.00000001", "0.00000001"),
            ("18446744073709551615", "18446744073709551615"),
            ("00012", "12"),
        ] {
            let mut bytes = BytesMut::new();
            put(&mut bytes, written);
            assert_eq!(read(&bytes).as_deref(), Some(read_as), "{written}: {bytes:?}");
        }
        let mut bytes = BytesMut::new();
        put(&mut bytes, "12345.67");
        assert_eq!(&bytes[..], [0, 3, 0, 1, 0, 0, 0, 2, 0, 1, 9, 41, 26, 44]);
        for bad in [
            &b""[..],
            &[0, 9, 0, 0, 0, 0, 0, 0],
            &[0, 1, 0, 0, 0xc0, 0, 0, 0, 0, 1],
            &[0x7f; 8],
        ] {
            assert_eq!(read(bad), None, "{bad:?}");
        }
    }
}
