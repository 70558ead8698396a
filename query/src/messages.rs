//! Business messages as they are archived, with their bytes in the form that was asked for.

use model::Table;
use model::filter::{MessageFilter, RawForm};
use serde_json::{Map, Value};

use crate::answer::Page;
use crate::cursor::fingerprint;
use crate::filter::{self, Paging};
use crate::querier::RowQuery;
use crate::{Error, Querier};

/// The column that holds a message's bytes; rows show them as hex.
const RAW: &str = "raw_msg";
const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

impl Querier {
    /// The business messages that a filter lets through, newest first unless it says otherwise.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn messages(&self, filter: &MessageFilter) -> Result<Page, Error> {
        let query = RowQuery {
            table: Table::Messages,
            paging: Paging::check(filter.limit, filter.offset, filter.cursor.as_deref())?,
            order: filter.order.unwrap_or_default(),
            since: filter.since,
            until: filter.until,
            flux_id: filter.flux_id,
            cursor: filter.cursor.clone(),
            fingerprint: fingerprint(filter),
        };
        let mut page = self.rows(query, filter::messages(filter)).await?;
        let form = filter.raw.unwrap_or_default();
        page.rows.iter_mut().for_each(|row| show(row, form));
        Ok(page)
    }
}

fn show(row: &mut Map<String, Value>, form: RawForm) {
    match form {
        RawForm::Hex => {}
        RawForm::None => {
            row.remove(RAW);
        }
        RawForm::Base64 => {
            if let Some(Value::String(hex)) = row.get_mut(RAW) {
                *hex = base64_of_hex(hex);
            }
        }
    }
}

/// Bytes that are written as hex, in base64 with padding.
fn base64_of_hex(hex: &str) -> String {
    let digit = |at: &u8| char::from(*at).to_digit(16).unwrap_or(0);
    // Three bytes are six digits of hex and four of base64.
    let mut text = String::with_capacity(hex.len().div_ceil(6) * 4);
    for digits in hex.as_bytes().chunks(6) {
        let bits = digits.iter().fold(0, |bits, at| bits << 4 | digit(at)) << (24 - 4 * digits.len());
        for place in 0..4 {
            let value = bits >> (18 - 6 * place) & 63;
            text.push(if place * 3 < digits.len() * 2 {
                char::from(BASE64[value as usize])
            } else {
                '='
            });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_of_any_length_is_that_of_the_rfc() {
        for (hex, base64) in [
            ("", ""),
            ("66", "Zg=="),
            ("666f", "Zm8="),
            ("666f6f", "Zm9v"),
            ("666f6f62", "Zm9vYg=="),
            ("666f6f6261", "Zm9vYmE="),
            ("fbffbf", "+/+/"),
        ] {
            assert_eq!(base64_of_hex(hex), base64);
        }
    }
}
