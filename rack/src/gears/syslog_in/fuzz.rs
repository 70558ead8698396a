//! Fuzz targets of syslog: lines in a stream, and what a line says.

use futures::FutureExt;
use model::fuzz::FuzzTarget;
use tokio::io::AsyncReadExt;

use super::line_reader::SyslogLineReader;
use super::syslog_message::SyslogMessage;

/// The longest line.
const MAX_LINE: usize = 1_000;

/// The targets.
pub(in crate::gears) fn fuzz_targets() -> Vec<FuzzTarget> {
    let lines = [
        "<34>1 2003-10-11T22:14:15.003Z host app 7 ID47 [x@9 a=\"b\\\"c\"][y] text",
        "<34>Oct 11 22:14:15 host app[7]: text",
        "<191>2003-10-11T22:14:15Z host app: text",
    ];
    let counted: String = lines.iter().map(|line| format!("{} {line}", line.len())).collect();
    let samples = vec![counted.into_bytes(), (lines.join("\n") + "\n").into_bytes()];
    vec![
        FuzzTarget::new("framing.syslog", samples, |bytes| {
            let whole = read((bytes, &[]));
            assert_eq!(
                read(bytes.split_at(bytes.len() / 2)),
                whole,
                "its pieces make a difference"
            );
            whole.is_some_and(|lines| !lines.is_empty())
        }),
        FuzzTarget::of_text("framing.syslog_line", &lines, |text| {
            let message = SyslogMessage::of(text);
            let is_read = !message.malformed;
            message.data();
            is_read
        }),
    ]
}

/// The lines of a stream, and what is left of it; none where it is given up.
fn read((one, two): (&[u8], &[u8])) -> Option<Vec<Vec<u8>>> {
    let mut stream = AsyncReadExt::chain(one, two);
    let mut reader = SyslogLineReader::new(MAX_LINE);
    let mut lines = Vec::new();
    loop {
        let mut more = reader.read(&mut stream).now_or_never()?.ok()?;
        if more.is_empty() {
            lines.extend(reader.rest());
            return Some(lines);
        }
        lines.append(&mut more);
    }
}
