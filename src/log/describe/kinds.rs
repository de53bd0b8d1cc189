//! The names of all kinds of inputs and events, as their types declare them.

use serde::Deserialize;
use serde::de::{Deserializer, Error, Visitor};
use std::cell::Cell;
use weir_kernel::{Event, Input};

/// Every kind of input, in disk order.
pub fn input_kinds() -> &'static [&'static str] {
    variants::<Input>()
}

/// Every kind of event, in disk order.
pub fn event_kinds() -> &'static [&'static str] {
    variants::<Event>()
}

/// What an enum's own reader expects to find.
fn variants<T: for<'de> Deserialize<'de>>() -> &'static [&'static str] {
    let names = Cell::new(&[][..]);
    // It is never read: that it asked is enough.
    let _ = T::deserialize(Asked(&names));
    names.get()
}

/// Takes note of the variants that are asked for, and has none.
struct Asked<'a>(&'a Cell<&'static [&'static str]>);

impl<'de> Deserializer<'de> for Asked<'_> {
    type Error = serde::de::value::Error;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Self::Error> {
        Err(Self::Error::custom("not an enum"))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Self::Error> {
        self.0.set(variants);
        Err(Self::Error::custom("asked"))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::describe::{event_kind, input_kind};

    #[test]
    fn the_names_are_those_that_are_shown() {
        assert_eq!(input_kinds().first(), Some(&"Started"));
        assert!(input_kinds().contains(&input_kind(&Input::TimePassed)));
        assert_eq!(event_kinds().first(), Some(&"StartNoted"));
        for event in
            [Event::Paused, Event::HoldLifted, Event::RestatedPurge { request: weir_kernel::RequestId(1) }]
        {
            assert!(event_kinds().contains(&event_kind(&event)));
        }
    }
}
