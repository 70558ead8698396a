//! RFC 3339 in its usual form, `2026-11-21T10:00:00.123456Z` with no to nine decimals: an order of magnitude faster than the
//! general way, which decides about every other form and every fault.

/// The microseconds since 1970; `None` for every other form and every fault.
pub(super) fn micros(text: &[u8]) -> Option<i64> {
    let (head, rest) = text.split_first_chunk::<19>()?;
    let number = |from: usize, to: usize| {
        head[from..to].iter().try_fold(0i64, |number, byte| {
            let digit = byte.wrapping_sub(b'0');
            (digit < 10).then(|| number * 10 + i64::from(digit))
        })
    };
    if [head[4], head[7], head[10], head[13], head[16]] != *b"--T::" {
        return None;
    }
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        4 | 6 | 9 | 11 => 30,
        2 => 28 + i64::from(leap),
        1..=12 => 31,
        _ => return None,
    };
    if year < 1 || !(1..=days).contains(&day) || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let micros = match rest.strip_suffix(b"Z")? {
        [] => 0,
        [b'.', decimals @ ..] if (1..=9).contains(&decimals.len()) => (0..6).try_fold(0i64, |micros, at| {
            let digit = decimals.get(at).map_or(0, |byte| byte.wrapping_sub(b'0'));
            (digit < 10).then(|| micros * 10 + i64::from(digit))
        })?,
        _ => return None,
    };
    if rest
        .get(7..rest.len() - 1)
        .is_some_and(|more| !more.iter().all(u8::is_ascii_digit))
    {
        return None;
    }
    // Days since 1970-01-01, in years that begin in March.
    let (year, month) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 719_469;
    Some((((days * 24 + hour) * 60 + minute) * 60 + second) * 1_000_000 + micros)
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;
    use proptest::prelude::*;

    use super::micros;

    proptest! {
        #[test]
        fn it_agrees_with_the_general_way_wherever_it_answers(
            seconds in -62_135_596_800i64..253_402_300_800, decimals in "(\\.[0-9]{1,9})?", at in 0usize..20, byte in 32u8..127,
        ) {
            let whole = DateTime::from_timestamp(seconds, 0).map(|at| at.format("%Y-%m-%dT%H:%M:%S").to_string());
            let text = format!("{}{decimals}Z", whole.unwrap_or_default());
            let general = |text: &str| DateTime::parse_from_rfc3339(text).map(|at| at.timestamp_micros()).ok();
            prop_assert_eq!(micros(text.as_bytes()), general(&text), "{}", text);
            let mut other = text.into_bytes();
            other[at] = byte;
            if let (Some(micros), Ok(other)) = (micros(&other), std::str::from_utf8(&other)) {
                prop_assert_eq!(Some(micros), general(other), "{}", other);
            }
        }
    }
}
