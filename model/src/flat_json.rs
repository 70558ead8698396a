//! Checks that a JSON text is a flat object, without building it.
//!
//! # Invariants
//!
//! - Values are scalars or arrays, never objects: nested objects break outside readers.
//! - Nothing is allocated for keys or values (escaped text excepted).

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// A JSON object without objects directly inside it; only its form is checked.
pub(crate) struct FlatObject;

struct FlatValue;

impl<'de> Deserialize<'de> for FlatObject {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(Self)
    }
}

impl<'de> Visitor<'de> for FlatObject {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a flat JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self, A::Error> {
        while map.next_entry::<IgnoredAny, FlatValue>()?.is_some() {}
        Ok(self)
    }
}

impl<'de> Deserialize<'de> for FlatValue {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Self)
    }
}

impl<'de> Visitor<'de> for FlatValue {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value that is not an object")
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_unit<E: Error>(self) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_flat_objects_pass() {
        for good in [
            "{}",
            r#"{"a":1,"b":"x\u00e9","c":[1,{"d":2}],"e":null,"f":-1.5e3,"g":true}"#,
        ] {
            assert!(serde_json::from_str::<FlatObject>(good).is_ok(), "{good}");
        }
        for bad in ["", "[]", "3", "{", r#"{"a":{}}"#, r#"{"a":1}x"#, "null"] {
            assert!(serde_json::from_str::<FlatObject>(bad).is_err(), "{bad}");
        }
    }
}
