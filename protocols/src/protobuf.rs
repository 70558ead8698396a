//! Protocol Buffers' wire format, read in place: fields of a message one after another, nothing copied.
//!
//! Source: <https://protobuf.dev/programming-guides/encoding/>.
//!
//! # Invariants
//!
//! - Fields that a reader does not know are passed over. Groups, which proto3 does not have, are malformed.
//!
//! # Not here
//!
//! What the fields of a message mean; writing messages (`prost`).

use std::ops::Range;

/// Why bytes are no message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MalformedProtobuf {
    /// The message ends within a field.
    #[error("the message ends within a field, at byte {0}")]
    Truncated(usize),
    /// A key or a number of more than 64 bits.
    #[error("there is no valid number at byte {0}")]
    Number(usize),
    /// A group, or a wire type that does not exist.
    #[error("field {field} has the wire type {wire_type} at byte {at}")]
    WireType {
        /// The field's number.
        field: u32,
        /// What the key says.
        wire_type: u8,
        /// Where.
        at: usize,
    },
    /// A field of another type than the schema's.
    #[error("field {0} has another type than its schema says")]
    FieldType(u32),
    /// A text that is not UTF-8.
    #[error("field {0} is not UTF-8")]
    Utf8(u32),
    /// A list of very many numbers, each of which takes eight bytes, however few it was sent in.
    #[error("field {0} has more than {MOST_NUMBERS} numbers")]
    Numbers(u32),
}

/// The longest list of numbers.
const MOST_NUMBERS: usize = 1 << 16;

/// What is wrong with a record is a text.
impl From<MalformedProtobuf> for String {
    fn from(error: MalformedProtobuf) -> Self {
        error.to_string()
    }
}

/// One field of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MessageField {
    pub(crate) number: u32,
    pub(crate) value: WireValue,
}

/// A field's value as it was sent; bytes by their place in the body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum WireValue {
    Varint(u64),
    Fixed64(u64),
    Bytes(Range<usize>),
    Fixed32(u32),
}

/// The fields of a message that lies in a body.
#[derive(Debug, Clone)]
pub(crate) struct FieldReader<'a> {
    /// The body up to the message's end.
    body: &'a [u8],
    /// At most the message's end.
    at: usize,
}

impl<'a> FieldReader<'a> {
    /// The message that lies in a range of a body.
    pub(crate) fn new(body: &'a [u8], range: Range<usize>) -> Self {
        let body = body.get(..range.end).unwrap_or(body);
        Self {
            body,
            at: range.start.min(body.len()),
        }
    }

    /// What is not read yet.
    pub(crate) const fn rest(&self) -> Range<usize> {
        self.at..self.body.len()
    }

    /// The next field; `None` at the end of the message.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<Option<MessageField>, MalformedProtobuf> {
        let Some((key, rest)) = self.body.get(self.at..).and_then(<[u8]>::split_first) else {
            return Ok(None);
        };
        // The keys of nearly all fields have one byte, and so have the lengths of most texts and messages.
        let quick = match (key & 7, rest) {
            (1, _) => rest
                .first_chunk::<8>()
                .map(|number| (self.at + 9, WireValue::Fixed64(u64::from_le_bytes(*number)))),
            (2, [length, text @ ..]) if *length < 0x80 && usize::from(*length) <= text.len() => {
                let (from, to) = (self.at + 2, self.at + 2 + usize::from(*length));
                Some((to, WireValue::Bytes(from..to)))
            }
            _ => None,
        };
        if let Some((end, value)) = quick
            && (8..0x80).contains(key)
        {
            self.at = end;
            let number = u32::from(key >> 3);
            return Ok(Some(MessageField { number, value }));
        }
        self.any_field().map(Some)
    }

    /// The next field, of which there is a byte at least. Not a part of what calls [`next`](Self::next), which stays short by that.
    #[inline(never)]
    fn any_field(&mut self) -> Result<MessageField, MalformedProtobuf> {
        let start = self.at;
        let key = self.varint()?;
        let number = u32::try_from(key >> 3)
            .ok()
            .filter(|number| *number > 0 && *number < 1 << 29);
        let number = number.ok_or(MalformedProtobuf::Number(start))?;
        let value = match key & 7 {
            0 => WireValue::Varint(self.varint()?),
            1 => WireValue::Fixed64(u64::from_le_bytes(self.array()?)),
            2 => {
                let length = self.varint()?;
                let from = self.at;
                let left = self.body.len() - from;
                let length = usize::try_from(length).ok().filter(|length| *length <= left);
                let length = length.ok_or(MalformedProtobuf::Truncated(from))?;
                self.at += length;
                WireValue::Bytes(from..self.at)
            }
            5 => WireValue::Fixed32(u32::from_le_bytes(self.array()?)),
            wire_type => {
                return Err(MalformedProtobuf::WireType {
                    field: number,
                    wire_type: wire_type as u8,
                    at: start,
                });
            }
        };
        Ok(MessageField { number, value })
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], MalformedProtobuf> {
        let rest = self.body.get(self.at..).unwrap_or_default();
        let array = rest.first_chunk::<N>().ok_or(MalformedProtobuf::Truncated(self.at))?;
        self.at += N;
        Ok(*array)
    }

    fn varint(&mut self) -> Result<u64, MalformedProtobuf> {
        let start = self.at;
        let rest = self.body.get(start..).unwrap_or_default();
        let (mut value, mut shift) = (0u64, 0u32);
        for (length, byte) in (1..).zip(rest) {
            // The tenth byte has one bit left.
            if shift == 63 && *byte > 1 {
                return Err(MalformedProtobuf::Number(start));
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                self.at += length;
                return Ok(value);
            }
            shift += 7;
        }
        Err(MalformedProtobuf::Truncated(start))
    }
}

/// The next field of a message of which a range is left.
pub(crate) fn step(body: &[u8], left: &mut Range<usize>) -> Result<Option<MessageField>, MalformedProtobuf> {
    let mut reader = FieldReader::new(body, left.clone());
    let field = reader.next()?;
    *left = reader.rest();
    Ok(field)
}

impl MessageField {
    /// A nested message, text or bytes.
    pub(crate) fn range(&self) -> Result<Range<usize>, MalformedProtobuf> {
        match &self.value {
            WireValue::Bytes(range) => Ok(range.clone()),
            _ => Err(MalformedProtobuf::FieldType(self.number)),
        }
    }

    pub(crate) fn bytes<'a>(&self, body: &'a [u8]) -> Result<&'a [u8], MalformedProtobuf> {
        Ok(body.get(self.range()?).unwrap_or_default())
    }

    pub(crate) fn text<'a>(&self, body: &'a [u8]) -> Result<&'a str, MalformedProtobuf> {
        std::str::from_utf8(self.bytes(body)?).map_err(|_| MalformedProtobuf::Utf8(self.number))
    }

    pub(crate) const fn varint(&self) -> Result<u64, MalformedProtobuf> {
        match self.value {
            WireValue::Varint(value) => Ok(value),
            _ => Err(MalformedProtobuf::FieldType(self.number)),
        }
    }

    pub(crate) const fn fixed64(&self) -> Result<u64, MalformedProtobuf> {
        match self.value {
            WireValue::Fixed64(value) => Ok(value),
            _ => Err(MalformedProtobuf::FieldType(self.number)),
        }
    }

    pub(crate) const fn fixed32(&self) -> Result<u32, MalformedProtobuf> {
        match self.value {
            WireValue::Fixed32(value) => Ok(value),
            _ => Err(MalformedProtobuf::FieldType(self.number)),
        }
    }

    pub(crate) fn double(&self) -> Result<f64, MalformedProtobuf> {
        self.fixed64().map(f64::from_bits)
    }

    /// A signed 32-bit number with zigzag encoding (sint32).
    pub(crate) fn zigzag(&self) -> Result<i32, MalformedProtobuf> {
        let value = u32::try_from(self.varint()? & u64::from(u32::MAX)).unwrap_or_default();
        Ok((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
    }

    /// An enumeration's or int32's number; what is too large is what proto3 makes of it.
    pub(crate) fn int32(&self) -> Result<i32, MalformedProtobuf> {
        let low = u32::try_from(self.varint()? & u64::from(u32::MAX)).unwrap_or_default();
        Ok(low.cast_signed())
    }

    /// Adds the numbers of a repeated field of 64-bit numbers: one, or packed.
    pub(crate) fn repeat_fixed64(&self, body: &[u8], to: &mut Vec<u64>) -> Result<(), MalformedProtobuf> {
        match &self.value {
            WireValue::Fixed64(value) => to.push(*value),
            WireValue::Bytes(range) => {
                let bytes = body.get(range.clone()).unwrap_or_default();
                let (numbers, rest) = bytes.as_chunks::<8>();
                if !rest.is_empty() {
                    return Err(MalformedProtobuf::Truncated(range.end));
                }
                self.check_numbers(to.len() + numbers.len())?;
                to.extend(numbers.iter().map(|number| u64::from_le_bytes(*number)));
            }
            _ => return Err(MalformedProtobuf::FieldType(self.number)),
        }
        self.check_numbers(to.len())
    }

    /// The same of varints.
    pub(crate) fn repeat_varint(&self, body: &[u8], to: &mut Vec<u64>) -> Result<(), MalformedProtobuf> {
        match &self.value {
            WireValue::Varint(value) => to.push(*value),
            WireValue::Bytes(range) => {
                let mut reader = FieldReader::new(body, range.clone());
                while !reader.rest().is_empty() {
                    to.push(reader.varint()?);
                    self.check_numbers(to.len())?;
                }
            }
            _ => return Err(MalformedProtobuf::FieldType(self.number)),
        }
        self.check_numbers(to.len())
    }

    const fn check_numbers(&self, numbers: usize) -> Result<(), MalformedProtobuf> {
        if numbers > MOST_NUMBERS {
            return Err(MalformedProtobuf::Numbers(self.number));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(body: &[u8]) -> Result<Vec<MessageField>, MalformedProtobuf> {
        let mut reader = FieldReader::new(body, 0..body.len());
        std::iter::from_fn(|| reader.next().transpose()).collect()
    }

    fn field(number: u32, value: WireValue) -> MessageField {
        MessageField { number, value }
    }

    #[test]
    fn fields_of_every_wire_type_are_read_in_place() {
        let body = [
            0x08, 0x96, 0x01, 0x12, 2, b'h', b'i', 0x1d, 1, 0, 0, 0, 0x21, 2, 0, 0, 0, 0, 0, 0, 0,
        ];
        assert_eq!(
            fields(&body),
            Ok(vec![
                field(1, WireValue::Varint(150)),
                field(2, WireValue::Bytes(5..7)),
                field(3, WireValue::Fixed32(1)),
                field(4, WireValue::Fixed64(2)),
            ])
        );
    }

    /// A number below 2^14, in so many bytes more than it needs.
    fn varint(value: usize, padding: usize) -> Vec<u8> {
        let needed = if value < 1 << 7 { 1 } else { 2 };
        let mut bytes: Vec<u8> = (0..needed + padding)
            .map(|at| (value >> (7 * at) & 0x7f) as u8 | 0x80)
            .collect();
        if let Some(last) = bytes.last_mut() {
            *last &= 0x7f;
        }
        bytes
    }

    #[test]
    fn keys_and_lengths_of_one_byte_are_read_as_those_of_several() {
        for number in [1, 15, 16] {
            for length in [0, 1, 127, 128] {
                for padding in [0, 1] {
                    let head = [varint(number << 3 | 2, padding), varint(length, padding)].concat();
                    let (number, text) = (u32::try_from(number).unwrap_or_default(), vec![7u8; length]);
                    let (at, body) = (head.len(), [&head[..], &text, &[0x10, 5]].concat());
                    let expected = vec![
                        field(number, WireValue::Bytes(at..at + length)),
                        field(2, WireValue::Varint(5)),
                    ];
                    assert_eq!(fields(&body), Ok(expected), "{number} {length} {padding}");
                    if length > 0 {
                        let cut = fields(&body[..at + length - 1]);
                        assert_eq!(
                            cut,
                            Err(MalformedProtobuf::Truncated(at)),
                            "{number} {length} {padding}"
                        );
                    }
                }
            }
        }
        // A message ends where its range does, whatever lies behind.
        let body = [0x12, 2, 7, 7];
        let mut reader = FieldReader::new(&body, 0..3);
        assert_eq!(reader.next(), Err(MalformedProtobuf::Truncated(2)));
        assert_eq!(FieldReader::new(&body, 4..9).next(), Ok(None));
    }

    #[test]
    fn what_is_no_message_is_named_with_its_place() {
        for (body, error) in [
            (&[0x08][..], MalformedProtobuf::Truncated(1)),
            (&[0x12, 5, 1], MalformedProtobuf::Truncated(2)),
            (&[0x21, 1], MalformedProtobuf::Truncated(1)),
            (&[0x00, 1], MalformedProtobuf::Number(0)),
            (&[0x80; 11], MalformedProtobuf::Number(0)),
            (
                &[0x0b],
                MalformedProtobuf::WireType {
                    field: 1,
                    wire_type: 3,
                    at: 0,
                },
            ),
        ] {
            assert_eq!(fields(body), Err(error), "{body:?}");
        }
        let largest = [0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
        assert_eq!(fields(&largest), Ok(vec![field(1, WireValue::Varint(u64::MAX))]));
    }

    #[test]
    fn numbers_are_what_their_schema_makes_of_them() {
        let zigzag = |value| field(1, WireValue::Varint(value)).zigzag();
        assert_eq!(
            [zigzag(0), zigzag(1), zigzag(2), zigzag(4_294_967_295)],
            [Ok(0), Ok(-1), Ok(1), Ok(i32::MIN)]
        );
        assert_eq!(field(1, WireValue::Varint(u64::MAX)).int32(), Ok(-1));
        assert_eq!(
            field(7, WireValue::Fixed32(1)).varint(),
            Err(MalformedProtobuf::FieldType(7))
        );
        let mut numbers = Vec::new();
        let packed = field(1, WireValue::Bytes(0..3)).repeat_varint(&[0x96, 0x01, 0x02], &mut numbers);
        assert_eq!((packed, numbers), (Ok(()), vec![150, 2]));
    }
}
