//! The fields of MQTT control packets: integers, texts, and the properties of version 5.
//!
//! ```text
//! text     = length u16 | UTF-8                       big endian
//! variable = 7 bits a byte, the lowest first, at most 4 bytes
//! property = identifier | value
//! ```
//!
//! # Invariants
//!
//! - At most [`MAX_USER_PROPERTIES`] user properties are kept, each of at most [`MAX_USER_PROPERTY`] bytes; the others are read over.

/// The largest integer of variable length.
const MAX_VARIABLE: usize = 268_435_455;
/// How many user properties of a message are kept.
const MAX_USER_PROPERTIES: usize = 32;
/// The most bytes of a user property that is kept, its name included.
const MAX_USER_PROPERTY: usize = 2048;

/// What is no MQTT.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the broker sent what is not MQTT: {0}")]
pub(crate) struct MalformedPacket(pub(super) &'static str);

/// Fields that are read one after another.
#[derive(Debug, Clone, Copy)]
pub(super) struct PacketFieldReader<'a>(&'a [u8]);

impl<'a> PacketFieldReader<'a> {
    pub(super) const fn of(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(super) const fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    pub(super) const fn len(self) -> usize {
        self.0.len()
    }

    /// All that is left.
    pub(super) const fn rest(self) -> &'a [u8] {
        self.0
    }

    pub(super) fn bytes(&mut self, count: usize) -> Result<&'a [u8], MalformedPacket> {
        let cut = self.0.split_at_checked(count);
        let (bytes, rest) = cut.ok_or(MalformedPacket("a packet ends within a field"))?;
        self.0 = rest;
        Ok(bytes)
    }

    pub(super) fn u8(&mut self) -> Result<u8, MalformedPacket> {
        Ok(self.bytes(1)?[0])
    }

    pub(super) fn u16(&mut self) -> Result<u16, MalformedPacket> {
        let bytes = self.bytes(2)?;
        Ok(u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    pub(super) fn u32(&mut self) -> Result<u32, MalformedPacket> {
        let (high, low) = (self.u16()?, self.u16()?);
        Ok(u32::from(high) << 16 | u32::from(low))
    }

    /// An integer of variable length; none if its bytes have not all come.
    pub(super) fn partial_variable(&mut self) -> Result<Option<usize>, MalformedPacket> {
        let mut value = 0;
        for shift in [0, 7, 14, 21] {
            let Some((byte, rest)) = self.0.split_first() else {
                return Ok(None);
            };
            self.0 = rest;
            value |= usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(Some(value));
            }
        }
        Err(MalformedPacket("a length of more than four bytes"))
    }

    pub(super) fn variable(&mut self) -> Result<usize, MalformedPacket> {
        self.partial_variable()?
            .ok_or(MalformedPacket("a packet ends within a field"))
    }

    pub(super) fn binary(&mut self) -> Result<&'a [u8], MalformedPacket> {
        let length = usize::from(self.u16()?);
        self.bytes(length)
    }

    pub(super) fn text(&mut self) -> Result<&'a str, MalformedPacket> {
        let text = std::str::from_utf8(self.binary()?).map_err(|_| MalformedPacket("a text is not UTF-8"))?;
        if text.contains('\0') {
            return Err(MalformedPacket("a text has the character U+0000"));
        }
        Ok(text)
    }
}

/// Properties of a packet that gears know.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PacketProperties {
    pub(crate) content_type: Option<String>,
    pub(crate) user: Vec<(String, String)>,
    /// Why, in the broker's words.
    pub(crate) reason: Option<String>,
    pub(crate) receive_maximum: Option<u16>,
    pub(crate) maximum_qos: Option<u8>,
    pub(crate) retain_available: Option<u8>,
    pub(crate) maximum_packet_size: Option<u32>,
    pub(crate) server_keep_alive: Option<u16>,
}

impl PacketProperties {
    pub(super) fn read(from: &mut PacketFieldReader<'_>) -> Result<Self, MalformedPacket> {
        let length = from.variable()?;
        let mut fields = PacketFieldReader::of(from.bytes(length)?);
        let mut properties = Self::default();
        while !fields.is_empty() {
            let identifier = fields.variable()?;
            properties.read_one(identifier, &mut fields)?;
        }
        Ok(properties)
    }

    fn read_one(&mut self, identifier: usize, fields: &mut PacketFieldReader<'_>) -> Result<(), MalformedPacket> {
        match identifier {
            0x03 => self.content_type = Some(fields.text()?.to_owned()),
            0x1f => self.reason = Some(fields.text()?.to_owned()),
            0x13 => self.server_keep_alive = Some(fields.u16()?),
            0x21 => self.receive_maximum = Some(fields.u16()?),
            0x24 => self.maximum_qos = Some(fields.u8()?),
            0x25 => self.retain_available = Some(fields.u8()?),
            0x27 => self.maximum_packet_size = Some(fields.u32()?),
            0x26 => {
                let (name, value) = (fields.text()?, fields.text()?);
                if self.user.len() < MAX_USER_PROPERTIES && name.len() + value.len() <= MAX_USER_PROPERTY {
                    self.user.push((name.to_owned(), value.to_owned()));
                }
            }
            0x01 | 0x17 | 0x19 | 0x28 | 0x29 | 0x2a => drop(fields.u8()?),
            0x22 | 0x23 => drop(fields.u16()?),
            0x02 | 0x11 | 0x18 => drop(fields.u32()?),
            0x0b => drop(fields.variable()?),
            0x08 | 0x12 | 0x15 | 0x1a | 0x1c => drop(fields.text()?),
            0x09 | 0x16 => drop(fields.binary()?),
            _ => return Err(MalformedPacket("a property that version 5 does not know")),
        }
        Ok(())
    }

    /// Writes what a message has of them.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let mut body = Vec::new();
        if let Some(content_type) = &self.content_type {
            body.push(0x03);
            put_text(&mut body, content_type);
        }
        for (name, value) in &self.user {
            body.push(0x26);
            put_text(&mut body, name);
            put_text(&mut body, value);
        }
        put_variable(out, body.len());
        out.append(&mut body);
    }
}

pub(super) fn put_u16(out: &mut Vec<u8>, value: u16) {
    out.extend_from_slice(&value.to_be_bytes());
}

/// Writes a field of at most [`MAX_TEXT`](gear_spec::mqtt::MAX_TEXT) bytes; the rest of a longer one is cut.
pub(super) fn put_binary(out: &mut Vec<u8>, bytes: &[u8]) {
    let length = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
    put_u16(out, length);
    out.extend_from_slice(&bytes[..usize::from(length)]);
}

pub(super) fn put_text(out: &mut Vec<u8>, text: &str) {
    put_binary(out, text.as_bytes());
}

/// Writes an integer of variable length, of at most four bytes.
pub(super) fn put_variable(out: &mut Vec<u8>, value: usize) {
    let mut rest = value.min(MAX_VARIABLE);
    loop {
        let [low, ..] = rest.to_le_bytes();
        rest >>= 7;
        if rest == 0 {
            out.push(low & 0x7f);
            return;
        }
        out.push(low | 0x80);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn an_integer_of_variable_length_is_read_as_it_was_written_and_only_when_all_of_it_has_come() {
        for value in [0, 1, 127, 128, 16_383, 16_384, 2_097_151, 2_097_152, MAX_VARIABLE] {
            let mut out = Vec::new();
            put_variable(&mut out, value);
            assert_eq!(PacketFieldReader::of(&out).variable(), Ok(value));
            for end in 0..out.len() {
                assert_eq!(
                    PacketFieldReader::of(&out[..end]).partial_variable(),
                    Ok(None),
                    "{value}"
                );
            }
        }
        assert!(PacketFieldReader::of(&[0xff; 5]).partial_variable().is_err());
    }

    #[test]
    fn only_so_many_user_properties_are_kept_and_no_long_one() {
        let long = ("long".to_owned(), "x".repeat(MAX_USER_PROPERTY));
        let short = |n: usize| (format!("n{n}"), n.to_string());
        let user = std::iter::once(long).chain((0..100).map(short)).collect();
        let sent = PacketProperties {
            content_type: Some("text/plain".into()),
            user,
            ..PacketProperties::default()
        };
        let mut out = Vec::new();
        sent.write(&mut out);
        let read = PacketProperties::read(&mut PacketFieldReader::of(&out)).unwrap();
        assert_eq!(read.content_type, sent.content_type);
        assert_eq!(read.user, (0..MAX_USER_PROPERTIES).map(short).collect::<Vec<_>>());
    }
}
