//! The formats of `COPY … TO STDOUT`: text, CSV and binary, as PostgreSQL writes them.
//!
//! # Invariants
//!
//! - A row is one message. The signature of the binary format stands before its first row, or before its end if there is none, in the
//!   same message.

use arrow_array::{Array as _, ArrayRef};
use bytes::{BufMut, BytesMut};

use super::copy_statement::{CopyFormat, DelimitedFormat};
use super::framing::{BackendWriter, put_count};
use super::pg_types::{self, FormatCode};
use super::rows::PgColumn;

/// With which a binary copy begins: a signature, no flags, no extension.
const BINARY_HEAD: &[u8; 19] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";

/// Writes rows as messages of a copy.
#[derive(Debug)]
pub(super) struct CopyEncoder<'a> {
    format: &'a CopyFormat,
    /// Whether the signature is still to be written.
    owes_head: bool,
    /// One value, with its length before it.
    value: BytesMut,
}

impl<'a> CopyEncoder<'a> {
    /// Says that a copy begins.
    pub(super) fn begin(out: &mut BackendWriter, format: &'a CopyFormat, columns: &[PgColumn]) -> Self {
        let is_binary = *format == CopyFormat::Binary;
        out.message(b'H', |out| {
            out.put_u8(is_binary.into());
            put_count(out, columns.len());
            for _ in columns {
                out.put_u16(is_binary.into());
            }
        });
        let encoder = Self {
            format,
            owes_head: is_binary,
            value: BytesMut::new(),
        };
        if let CopyFormat::Text(form) | CopyFormat::Csv { form, .. } = format
            && form.has_header
        {
            out.message(b'd', |out| {
                for (index, column) in columns.iter().enumerate() {
                    let name = column.name.as_bytes();
                    encoder.field(out, form, index, Some(name), columns.len());
                }
                out.put_u8(b'\n');
            });
        }
        encoder
    }

    /// Writes one row of canonical columns.
    pub(super) fn row(&mut self, out: &mut BackendWriter, columns: &[PgColumn], arrays: &[ArrayRef], row: usize) {
        let owes_head = std::mem::take(&mut self.owes_head);
        let mut value = std::mem::take(&mut self.value);
        out.message(b'd', |out| {
            let (CopyFormat::Text(form) | CopyFormat::Csv { form, .. }) = self.format else {
                put_head(out, owes_head);
                put_count(out, columns.len());
                for (array, column) in arrays.iter().zip(columns) {
                    pg_types::put(out, column.kind, FormatCode::Binary, array.as_ref(), row);
                }
                return;
            };
            for (index, (array, column)) in arrays.iter().zip(columns).enumerate() {
                value.clear();
                pg_types::put(&mut value, column.kind, FormatCode::Text, array.as_ref(), row);
                let text = array.is_valid(row).then(|| value.get(4..).unwrap_or_default());
                self.field(out, form, index, text, columns.len());
            }
            out.put_u8(b'\n');
        });
        self.value = value;
    }

    /// Says that the copy has ended.
    pub(super) fn end(self, out: &mut BackendWriter) {
        if *self.format == CopyFormat::Binary {
            out.message(b'd', |out| {
                put_head(out, self.owes_head);
                out.put_i16(-1);
            });
        }
        out.message(b'c', |_| ());
    }

    /// Writes one value of a row, with what stands before it.
    fn field(&self, out: &mut BytesMut, form: &DelimitedFormat, index: usize, text: Option<&[u8]>, count: usize) {
        if index > 0 {
            out.put_u8(form.delimiter);
        }
        let Some(text) = text else {
            out.put_slice(form.null.as_bytes());
            return;
        };
        match self.format {
            CopyFormat::Csv {
                quote,
                escape,
                quotes_all,
                ..
            } => {
                let special = |byte: &u8| [form.delimiter, *quote, b'\n', b'\r'].contains(byte);
                let is_end_mark = count == 1 && text == b"\\.";
                if !(*quotes_all || text == form.null.as_bytes() || is_end_mark || text.iter().any(special)) {
                    out.put_slice(text);
                    return;
                }
                out.put_u8(*quote);
                for byte in text {
                    if byte == quote || byte == escape {
                        out.put_u8(*escape);
                    }
                    out.put_u8(*byte);
                }
                out.put_u8(*quote);
            }
            _ => escaped(out, text, form.delimiter),
        }
    }
}

fn put_head(out: &mut BytesMut, owes_head: bool) {
    if owes_head {
        out.put_slice(BINARY_HEAD);
    }
}

/// Writes a value of the text format.
fn escaped(out: &mut BytesMut, text: &[u8], delimiter: u8) {
    for byte in text {
        let letter = match byte {
            b'\\' => b'\\',
            0x08 => b'b',
            0x0c => b'f',
            b'\n' => b'n',
            b'\r' => b'r',
            b'\t' => b't',
            0x0b => b'v',
            byte if *byte == delimiter => delimiter,
            byte => {
                out.put_u8(*byte);
                continue;
            }
        };
        out.put_slice(&[b'\\', letter]);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn form(delimiter: u8, null: &str) -> DelimitedFormat {
        DelimitedFormat {
            delimiter,
            null: null.to_owned(),
            has_header: false,
        }
    }

    fn written(format: &CopyFormat, form: &DelimitedFormat, fields: &[Option<&str>]) -> String {
        let encoder = CopyEncoder {
            format,
            owes_head: false,
            value: BytesMut::new(),
        };
        let mut out = BytesMut::new();
        for (index, field) in fields.iter().enumerate() {
            encoder.field(&mut out, form, index, field.map(str::as_bytes), fields.len());
        }
        String::from_utf8(out.to_vec()).unwrap()
    }

    #[test]
    fn what_is_special_is_escaped_and_null_is_told_from_an_empty_text() {
        let tabs = form(b'\t', "\\N");
        let text = CopyFormat::Text(tabs.clone());
        let fields = [Some("a\tb\\c\nd\r"), None, Some(""), Some("ä")];
        assert_eq!(written(&text, &tabs, &fields), "a\\tb\\\\c\\nd\\r\t\\N\t\tä");
        let bars = form(b'|', "-");
        let text = CopyFormat::Text(bars.clone());
        assert_eq!(written(&text, &bars, &[Some("a|b"), None]), "a\\|b|-");

        let commas = form(b',', "");
        let csv = |quotes_all| CopyFormat::Csv {
            form: commas.clone(),
            quote: b'"',
            escape: b'"',
            quotes_all,
        };
        let fields = [
            Some("a,b"),
            Some("say \"x\""),
            None,
            Some(""),
            Some("two\nlines"),
            Some("c"),
        ];
        assert_eq!(
            written(&csv(false), &commas, &fields),
            "\"a,b\",\"say \"\"x\"\"\",,\"\",\"two\nlines\",c"
        );
        assert_eq!(written(&csv(true), &commas, &[Some("a"), None]), "\"a\",");
        assert_eq!(written(&csv(false), &commas, &[Some("\\.")]), "\"\\.\"");
        assert_eq!(written(&csv(false), &commas, &[Some("\\."), Some("a")]), "\\.,a");
    }
}
