//! How many values a record of JSON or CBOR has, without building any: each becomes tens of bytes while it is read, an object
//! hundreds, however few bytes of text it is.

use std::fmt;

use serde::de::{
    Deserialize, Deserializer, EnumAccess, Error, IgnoredAny, MapAccess, SeqAccess, VariantAccess, Visitor,
};

/// The most values of a record, keys not counted.
const MOST: u64 = 1 << 16;
/// A JSON text of so many bytes has no more.
const SHORT: usize = 2 * MOST as usize;

/// The values of a record, all levels together.
pub(super) struct ValueCount(u64);

impl ValueCount {
    /// Refuses a JSON record of very many values.
    pub(super) fn check_json(text: &[u8]) -> Result<(), String> {
        if text.len() <= SHORT {
            return Ok(());
        }
        let count: Self = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        count.check()
    }

    /// Refuses very many values.
    pub(super) fn check(&self) -> Result<(), String> {
        let Self(values) = self;
        if *values > MOST {
            return Err(format!(
                "the record has {values} values, more than {MOST}: send several records, or a list as a text"
            ));
        }
        Ok(())
    }
}

impl<'de> Deserialize<'de> for ValueCount {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Self(1))
    }
}

impl<'de> Visitor<'de> for ValueCount {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_i128<E: Error>(self, _: i128) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_u128<E: Error>(self, _: u128) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_bytes<E: Error>(self, _: &[u8]) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_unit<E: Error>(self) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_none<E: Error>(self) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<Self, D::Error> {
        from.deserialize_any(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut seq: A) -> Result<Self, A::Error> {
        while let Some(Self(more)) = seq.next_element()? {
            self.0 += more;
        }
        Ok(self)
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Self, A::Error> {
        while let Some((_, Self(more))) = map.next_entry::<IgnoredAny, _>()? {
            self.0 += more;
        }
        Ok(self)
    }

    /// A tag of CBOR.
    fn visit_enum<A: EnumAccess<'de>>(self, data: A) -> Result<Self, A::Error> {
        let (_, tagged) = data.variant::<IgnoredAny>()?;
        tagged.tuple_variant(2, self)
    }
}
