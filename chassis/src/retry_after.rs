//! The header `Retry-After`: how long a server wants to be left alone, in seconds or until a date.
//!
//! # Not here
//!
//! Which answers are worth another attempt, and the pause where a server asks for none.

use std::time::Duration;

use chrono::DateTime;
use http::HeaderMap;
use http::header::RETRY_AFTER;
use model::Timestamp;

/// The longest that a server may ask to be left alone.
pub const MAX_RETRY_AFTER: Duration = Duration::from_secs(300);

/// How long an answer asks for, up to [`MAX_RETRY_AFTER`]; `None` if it does not say so, or not in a way that can be read.
#[must_use]
pub fn parse_retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let wait = match text.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => Timestamp::from(DateTime::parse_from_rfc2822(text).ok()?.to_utc()).since(now),
    };
    Some(wait.min(MAX_RETRY_AFTER))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn retry_after_is_seconds_or_a_date_and_bounded() {
        let now: Timestamp = "1994-11-06T08:49:30Z".parse().unwrap();
        for (text, wanted) in [
            ("7", Some(7)),
            ("0", Some(0)),
            (" 7 ", Some(7)),
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some(7)),
            ("Sun, 06 Nov 1994 08:49:00 GMT", Some(0)),
            ("300", Some(300)),
            ("86400", Some(300)),
            ("Mon, 07 Nov 1994 08:49:30 GMT", Some(300)),
            ("99999999999999999999", None),
            ("soon", None),
            ("-1", None),
            ("", None),
        ] {
            let headers: HeaderMap = [(RETRY_AFTER, text.parse().unwrap())].into_iter().collect();
            let wait = parse_retry_after(&headers, now);
            assert_eq!(wait, wanted.map(Duration::from_secs), "{text:?}");
        }
        assert_eq!(parse_retry_after(&HeaderMap::new(), now), None);
    }
}
