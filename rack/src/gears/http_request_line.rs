//! Requests of HTTP at the beginning of a stream that is meant for something else: a browser sends one for any web page, to loopback too.
//!
//! # Invariants
//!
//! - What a page can have a browser send begins with a method and a path, and the first line ends with the version. A line that ends otherwise
//!   is no request, and what begins otherwise is none from its first bytes on.

/// Methods that a page may choose.
const METHODS: [&[u8]; 7] = [
    b"GET /",
    b"POST /",
    b"HEAD /",
    b"OPTIONS /",
    b"PUT /",
    b"DELETE /",
    b"PATCH /",
];

/// A first line that is longer and begins like a request is taken for one, so that nobody has it searched again and again.
const LONGEST_LINE: usize = 16 << 10;

/// What the first bytes of a stream are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StreamBeginning {
    /// A request of HTTP.
    Request,
    /// It begins like one, and its first line is not there yet.
    LikeRequest,
    /// Something else, or too little to tell.
    Other,
}

impl StreamBeginning {
    pub(super) fn of(bytes: &[u8]) -> Self {
        if !METHODS.iter().any(|method| bytes.starts_with(method)) {
            return Self::Other;
        }
        let Some(end) = bytes.iter().take(LONGEST_LINE).position(|byte| *byte == b'\n') else {
            return match bytes.len() < LONGEST_LINE {
                true => Self::LikeRequest,
                false => Self::Request,
            };
        };
        let line = bytes.get(..end).unwrap_or_default().trim_ascii_end();
        match line.rsplit(|byte| *byte == b' ').next() {
            Some(version) if version.starts_with(b"HTTP/1.") => Self::Request,
            _ => Self::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_told_by_its_method_and_the_end_of_its_first_line() {
        for (bytes, wanted) in [
            ("POST /x HTTP/1.1\r\nHost: a\r\n", StreamBeginning::Request),
            ("GET / HTTP/1.0\n", StreamBeginning::Request),
            ("OPTIONS /a b HTTP/1.1\r\n", StreamBeginning::Request),
            ("POST /a;b;c", StreamBeginning::LikeRequest),
            ("GET /", StreamBeginning::LikeRequest),
            ("GET /tag 1\n", StreamBeginning::Other),
            ("PUT /tag HTTP/1.1 1\nHTTP/1.1\n", StreamBeginning::Other),
            ("POST", StreamBeginning::Other),
            ("", StreamBeginning::Other),
            ("a line\nGET / HTTP/1.1\n", StreamBeginning::Other),
        ] {
            assert_eq!(StreamBeginning::of(bytes.as_bytes()), wanted, "{bytes:?}");
        }
        let long = format!("GET /{}", "x".repeat(LONGEST_LINE));
        assert_eq!(StreamBeginning::of(long.as_bytes()), StreamBeginning::Request);
    }
}
