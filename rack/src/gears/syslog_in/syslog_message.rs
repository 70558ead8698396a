//! One syslog line: RFC 5424, or the older form that RFC 3164 describes.
//!
//! ```text
//! <34>1 2003-10-11T22:14:15.003Z host app 7 ID47 [x@9 a="b"] text    RFC 5424
//! <34>Oct 11 22:14:15 host app[7]: text                              RFC 3164; host, app and [7] may be missing,
//! <34>2003-10-11T22:14:15Z host app: text                            and relays write times like this
//! ```
//!
//! # Invariants
//!
//! - Every text becomes something: what does not fit keeps what was read of its priority, and the rest is its message.
//! - Times are as they were sent: the older form knows neither year nor zone, and none is made up.
//!
//! # Not here
//!
//! Bytes that are not UTF-8 (replaced before); where lines come from ([`super`]).

use serde_json::{Map, Value};

const FACILITIES: [&str; 24] = [
    "kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron", "authpriv", "ftp", "ntp",
    "audit", "alert", "clock", "local0", "local1", "local2", "local3", "local4", "local5", "local6", "local7",
];
const SEVERITIES: [&str; 8] = ["emerg", "alert", "crit", "err", "warning", "notice", "info", "debug"];
const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

/// What a line says.
#[derive(Debug, Default, PartialEq)]
pub(super) struct SyslogMessage<'a> {
    /// Whether it is in neither form; `message` is then all that could not be read.
    pub(super) malformed: bool,
    pub(super) format: Option<&'static str>,
    pub(super) facility: Option<&'static str>,
    pub(super) severity: Option<&'static str>,
    pub(super) timestamp: Option<&'a str>,
    pub(super) host: Option<&'a str>,
    pub(super) app: Option<&'a str>,
    pub(super) procid: Option<&'a str>,
    pub(super) msgid: Option<&'a str>,
    pub(super) structured: Map<String, Value>,
    pub(super) message: &'a str,
}

impl<'a> SyslogMessage<'a> {
    /// Reads a line.
    pub(super) fn of(text: &'a str) -> Self {
        let Some((priority, rest)) = priority(text) else {
            return Self {
                malformed: true,
                message: text,
                ..Self::default()
            };
        };
        let read = match version(rest) {
            Some(rest) => modern(rest),
            None => old(rest),
        };
        let line = read.unwrap_or(Self {
            malformed: true,
            message: rest,
            ..Self::default()
        });
        Self {
            facility: FACILITIES.get(priority / 8).copied(),
            severity: SEVERITIES.get(priority % 8).copied(),
            ..line
        }
    }

    /// As a message's data; what is not known is left out.
    pub(super) fn data(self) -> Value {
        let mut data = Map::new();
        for (key, value) in [
            ("facility", self.facility),
            ("severity", self.severity),
            ("timestamp", self.timestamp),
            ("host", self.host),
            ("app", self.app),
            ("procid", self.procid),
            ("msgid", self.msgid),
            ("message", Some(self.message)),
        ] {
            if let Some(value) = value {
                data.insert(key.to_owned(), value.into());
            }
        }
        if !self.structured.is_empty() {
            data.insert("structured".to_owned(), self.structured.into());
        }
        data.into()
    }
}

/// `<0>` to `<191>`.
fn priority(text: &str) -> Option<(usize, &str)> {
    let (digits, rest) = text.strip_prefix('<')?.split_once('>')?;
    let is_number = (1..=3).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
    let number = digits.parse().ok().filter(|number| is_number && *number < 192)?;
    Some((number, rest))
}

/// What follows the version of RFC 5424, if there is one.
fn version(text: &str) -> Option<&str> {
    let (digits, rest) = text.split_once(' ')?;
    let is_version = (1..=3).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
    (is_version && !digits.starts_with('0')).then_some(rest)
}

fn modern(text: &str) -> Option<SyslogMessage<'_>> {
    let mut rest = text;
    let mut field = || {
        let (field, tail) = rest.split_once(' ').filter(|(field, _)| !field.is_empty())?;
        rest = tail;
        Some((field != "-").then_some(field))
    };
    let (timestamp, host, app, procid, msgid) = (field()?, field()?, field()?, field()?, field()?);
    if timestamp.is_some_and(|time| chrono::DateTime::parse_from_rfc3339(time).is_err()) {
        return None;
    }
    let (structured, rest) = structured(rest)?;
    let message = if rest.is_empty() { rest } else { rest.strip_prefix(' ')? };
    Some(SyslogMessage {
        format: Some("rfc5424"),
        timestamp,
        host,
        app,
        procid,
        msgid,
        structured,
        message: message.strip_prefix('\u{feff}').unwrap_or(message),
        ..SyslogMessage::default()
    })
}

/// `-` or elements such as `[id name="value"]`, and what follows them.
fn structured(text: &str) -> Option<(Map<String, Value>, &str)> {
    let mut elements = Map::new();
    if let Some(rest) = text.strip_prefix('-') {
        return Some((elements, rest));
    }
    let mut rest = text;
    while let Some(element) = rest.strip_prefix('[') {
        let (id, mut tail) = name(element, &[' ', ']'])?;
        let mut values = Map::new();
        while let Some(parameter) = tail.strip_prefix(' ') {
            let (key, quoted) = name(parameter, &['='])?;
            let (value, after) = quoted_value(quoted.strip_prefix("=\"")?)?;
            add(&mut values, key, value);
            tail = after;
        }
        elements.insert(id.to_owned(), values.into());
        rest = tail.strip_prefix(']')?;
    }
    (!elements.is_empty()).then_some((elements, rest))
}

/// A name and what follows it, which begins with one of `ends`.
fn name<'a>(text: &'a str, ends: &[char]) -> Option<(&'a str, &'a str)> {
    let (name, rest) = text.split_at_checked(text.find(ends)?)?;
    let is_name = !name.is_empty()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && !b"=]\"".contains(&byte));
    is_name.then_some((name, rest))
}

/// A value up to its quote, and what follows it.
fn quoted_value(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut letters = text.chars();
    loop {
        match letters.next()? {
            '"' => return Some((value, letters.as_str())),
            // A backslash before anything else stands for itself.
            '\\' => match letters.next()? {
                escaped @ ('"' | '\\' | ']') => value.push(escaped),
                other => value.extend(['\\', other]),
            },
            ']' => return None,
            letter => value.push(letter),
        }
    }
}

/// A name that comes again has a list of values.
fn add(values: &mut Map<String, Value>, key: &str, value: String) {
    match values.get_mut(key) {
        None => drop(values.insert(key.to_owned(), value.into())),
        Some(Value::Array(list)) => list.push(value.into()),
        Some(first) => *first = Value::Array(vec![first.take(), value.into()]),
    }
}

fn old(text: &str) -> Option<SyslogMessage<'_>> {
    let (timestamp, rest) = old_time(text)?;
    let mut line = SyslogMessage {
        format: Some("rfc3164"),
        timestamp: Some(timestamp),
        message: rest,
        ..SyslogMessage::default()
    };
    if tag(rest).is_none()
        && let Some((host, tail)) = rest.split_once(' ').filter(|(host, _)| is_host(host))
    {
        line.host = Some(host);
        line.message = tail;
    }
    if let Some((app, procid, message)) = tag(line.message) {
        (line.app, line.procid, line.message) = (Some(app), procid, message);
    }
    Some(line)
}

/// A time and what follows the space behind it.
fn old_time(text: &str) -> Option<(&str, &str)> {
    if let Some((time, rest)) = text.split_at_checked(15)
        && is_old_time(time)
    {
        return Some((time, rest.strip_prefix(' ')?));
    }
    let (time, rest) = text.split_once(' ')?;
    chrono::DateTime::parse_from_rfc3339(time).ok()?;
    Some((time, rest))
}

/// `Oct 11 22:14:15`, days below ten with a space or a zero in front.
fn is_old_time(time: &str) -> bool {
    let within = |range: std::ops::Range<usize>, most: u8| {
        let number = time.get(range).map(str::trim_start);
        number.is_some_and(|text| {
            text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse::<u8>().is_ok_and(|number| number <= most)
        })
    };
    let separators = [(3, b' '), (6, b' '), (9, b':'), (12, b':')];
    separators
        .iter()
        .all(|(at, byte)| time.as_bytes().get(*at) == Some(byte))
        && time.get(..3).is_some_and(|month| MONTHS.contains(&month))
        && within(4..6, 31)
        && [(7..9, 23), (10..12, 59), (13..15, 60)]
            .into_iter()
            .all(|(range, most)| within(range, most))
}

fn is_host(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-._:%".contains(&byte))
}

/// `app:` or `app[7]:` and the text behind it.
fn tag(text: &str) -> Option<(&str, Option<&str>, &str)> {
    let end = text.find([':', '[', ' '])?;
    let (app, rest) = text.split_at_checked(end).filter(|(app, _)| !app.is_empty())?;
    let (procid, rest) = match rest.strip_prefix('[') {
        Some(rest) => {
            let (procid, rest) = rest.split_once(']').filter(|(procid, _)| !procid.contains(' '))?;
            (Some(procid), rest.strip_prefix(':').unwrap_or(rest))
        }
        None => (None, rest.strip_prefix(':')?),
    };
    // An address with colons is no tag.
    let message = if rest.is_empty() { rest } else { rest.strip_prefix(' ')? };
    Some((app, procid, message))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn lines_of_both_forms_are_read() {
        for (text, wanted) in [
            (
                "<34>1 2003-10-11T22:14:15.003Z mymachine.example.com su - ID47 - \u{feff}'su root' failed",
                json!({"facility": "auth", "severity": "crit", "timestamp": "2003-10-11T22:14:15.003Z",
                    "host": "mymachine.example.com", "app": "su", "msgid": "ID47", "message": "'su root' failed"}),
            ),
            (
                r#"<165>1 2003-08-24T05:14:15.000003-07:00 192.0.2.1 myproc 8710 - [a@1 x="1" x="2" y="q\"\]\\\n"][b@2] text"#,
                json!({"facility": "local4", "severity": "notice", "timestamp": "2003-08-24T05:14:15.000003-07:00",
                    "host": "192.0.2.1", "app": "myproc", "procid": "8710", "message": "text",
                    "structured": {"a@1": {"x": ["1", "2"], "y": "q\"]\\\\n"}, "b@2": {}}}),
            ),
            (
                "<0>1 - - - - - -",
                json!({"facility": "kern", "severity": "emerg", "message": ""}),
            ),
            (
                "<34>Oct 11 22:14:15 mymachine su: 'su root' failed",
                json!({"facility": "auth", "severity": "crit", "timestamp": "Oct 11 22:14:15",
                    "host": "mymachine", "app": "su", "message": "'su root' failed"}),
            ),
            (
                "<13>Feb  5 17:32:18 10.0.0.99 Use the BFG!",
                json!({"facility": "user", "severity": "notice", "timestamp": "Feb  5 17:32:18",
                    "host": "10.0.0.99", "message": "Use the BFG!"}),
            ),
            (
                "<30>Feb 05 17:32:18 sshd[42]: hello: you",
                json!({"facility": "daemon", "severity": "info", "timestamp": "Feb 05 17:32:18",
                    "app": "sshd", "procid": "42", "message": "hello: you"}),
            ),
            (
                "<191>2024-02-05T17:32:18+01:00 fe80::1 kernel: x",
                json!({"facility": "local7", "severity": "debug", "timestamp": "2024-02-05T17:32:18+01:00",
                    "host": "fe80::1", "app": "kernel", "message": "x"}),
            ),
        ] {
            let line = SyslogMessage::of(text);
            assert!(!line.malformed && line.format.is_some(), "{text}");
            assert_eq!(line.data(), wanted, "{text}");
        }
    }

    #[test]
    fn what_does_not_fit_keeps_its_text_and_its_priority() {
        for (text, severity, message) in [
            ("", None, ""),
            ("no priority", None, "no priority"),
            ("<192>Oct 11 22:14:15 h a: x", None, "<192>Oct 11 22:14:15 h a: x"),
            ("<+1>1 - - - - - -", None, "<+1>1 - - - - - -"),
            ("<34", None, "<34"),
            ("<34>just a text", Some("crit"), "just a text"),
            ("<34>Oct 41 22:14:15 h a: x", Some("crit"), "Oct 41 22:14:15 h a: x"),
            ("<34>1 yesterday h a p m - x", Some("crit"), "1 yesterday h a p m - x"),
            ("<34>1 - h a p m [a x=1] x", Some("crit"), "1 - h a p m [a x=1] x"),
            ("<34>1 - h a p m [a x=\"1] x", Some("crit"), "1 - h a p m [a x=\"1] x"),
            ("<34>1 - h a p m -x", Some("crit"), "1 - h a p m -x"),
            ("<34>1 - h a", Some("crit"), "1 - h a"),
        ] {
            let line = SyslogMessage::of(text);
            assert!(line.malformed && line.format.is_none(), "{text}");
            assert_eq!((line.severity, line.message), (severity, message), "{text}");
        }
    }
}
