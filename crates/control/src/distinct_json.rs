//! JSON whose objects have no member twice.

use std::collections::HashSet;
use std::fmt;

use serde::de::{Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// JSON in which no object has a member twice. A map would take the last one: of `{"a":"1","a":null}` neither the
/// sender nor the audit would know which was meant (RFC 8259, section 4).
pub(crate) struct Distinct;

impl<'de> Deserialize<'de> for Distinct {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Self)
    }
}

impl<'de> Visitor<'de> for Distinct {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self, A::Error> {
        while items.next_element::<Self>()?.is_some() {}
        Ok(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self, A::Error> {
        let mut names = HashSet::new();
        while let Some(name) = members.next_key::<String>()? {
            if names.contains(&name) {
                return Err(A::Error::custom(format_args!("duplicate field `{name}`")));
            }
            names.insert(name);
            members.next_value::<Self>()?;
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn member_that_is_there_twice_is_refused_at_every_depth() {
        let read = |text| serde_json::from_str::<Distinct>(text).map(|_| ()).map_err(|error| error.to_string());
        assert_eq!(read(r#"{"a":{"b":[1,-1,1.5,null,true,"x",{}]},"b":{"a":0}}"#), Ok(()));
        for text in [r#"{"a":"1","a":null}"#, r#"{"t":{"a":1,"a":1}}"#, r#"[{"a":1,"\u0061":1}]"#] {
            assert!(read(text).unwrap_err().contains("duplicate field `a`"), "{text}");
        }
    }
}
