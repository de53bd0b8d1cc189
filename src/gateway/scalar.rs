//! One JSON value of a foreign body, kept just well enough to check it and to name it in an error.

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::borrow::Cow;
use std::fmt;

/// A value; lists and objects are read past, not kept.
#[derive(Clone, Debug, PartialEq)]
pub enum Scalar<'a> {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// An integer within `i64` or `u64`.
    Integer(i128),
    /// Any other number.
    Float(f64),
    /// A string.
    Text(Cow<'a, str>),
    /// A list.
    List,
    /// An object.
    Object,
}

impl Scalar<'_> {
    /// The string, if it is one.
    pub fn str(&self) -> Option<&str> {
        match self {
            Scalar::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The integer, if it is one: `1e1` and `1.0` are not.
    pub fn integer(&self) -> Option<i128> {
        match self {
            Scalar::Integer(number) => Some(*number),
            _ => None,
        }
    }

    /// As an error message shows it.
    pub fn text(&self) -> Cow<'_, str> {
        match self {
            Scalar::Null => "null".into(),
            Scalar::Bool(value) => if *value { "true" } else { "false" }.into(),
            Scalar::Integer(number) => number.to_string().into(),
            Scalar::Float(number) => number.to_string().into(),
            Scalar::Text(text) => Cow::Borrowed(text),
            Scalar::List => "[…]".into(),
            Scalar::Object => "{…}".into(),
        }
    }
}

impl<'de> Deserialize<'de> for Scalar<'de> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Any)
    }
}

struct Any;

impl<'de> Visitor<'de> for Any {
    type Value = Scalar<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }
    fn visit_unit<E>(self) -> Result<Scalar<'de>, E> {
        Ok(Scalar::Null)
    }
    fn visit_bool<E>(self, value: bool) -> Result<Scalar<'de>, E> {
        Ok(Scalar::Bool(value))
    }
    fn visit_i64<E>(self, value: i64) -> Result<Scalar<'de>, E> {
        Ok(Scalar::Integer(i128::from(value)))
    }
    fn visit_u64<E>(self, value: u64) -> Result<Scalar<'de>, E> {
        Ok(Scalar::Integer(i128::from(value)))
    }
    fn visit_f64<E>(self, value: f64) -> Result<Scalar<'de>, E> {
        Ok(Scalar::Float(value))
    }
    fn visit_borrowed_str<E>(self, value: &'de str) -> Result<Scalar<'de>, E> {
        Ok(Scalar::Text(Cow::Borrowed(value)))
    }
    fn visit_str<E>(self, value: &str) -> Result<Scalar<'de>, E> {
        Ok(Scalar::Text(Cow::Owned(value.to_owned())))
    }
    fn visit_string<E>(self, value: String) -> Result<Scalar<'de>, E> {
        Ok(Scalar::Text(Cow::Owned(value)))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Scalar<'de>, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Scalar::List)
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Scalar<'de>, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Scalar::Object)
    }
}
