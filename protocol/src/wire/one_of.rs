//! An enum that is made of enums, with the bytes that one flat enum would have: the name of the variant tells which of them
//! it belongs to. What would otherwise need a wrapper on the wire, or a buffered second try, stays one tag.

use std::fmt;

use serde::de::value::StringDeserializer;
use serde::de::{self, Deserialize, Deserializer, EnumAccess, IntoDeserializer, Visitor};

/// Whether an enum with derived `Deserialize` has a variant of this name on the wire.
pub(crate) fn has_variant<'de, T: Deserialize<'de>>(name: &str) -> bool {
    match T::deserialize(Probe) {
        Ok(_) => false,
        Err(Names(variants)) => variants.contains(&name),
    }
}

/// A variant whose name was read already, as an enum of its own.
pub(crate) struct Named<A> {
    pub(crate) name: String,
    pub(crate) access: A,
}

impl<'de, A: de::VariantAccess<'de>> EnumAccess<'de> for Named<A> {
    type Error = A::Error;
    type Variant = A;

    fn variant_seed<V: de::DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, A), A::Error> {
        let name: StringDeserializer<A::Error> = self.name.into_deserializer();
        Ok((seed.deserialize(name)?, self.access))
    }
}

impl<'de, A: de::VariantAccess<'de>> Deserializer<'de> for Named<A> {
    type Error = A::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, A::Error> {
        visitor.visit_enum(self)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

/// Answers every question with an error that holds the names of the variants.
struct Probe;

#[derive(Debug)]
struct Names(&'static [&'static str]);

impl fmt::Display for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "one of {}", self.0.join(", "))
    }
}

impl std::error::Error for Names {}

impl de::Error for Names {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self(&[])
    }
}

impl<'de> Deserializer<'de> for Probe {
    type Error = Names;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Names> {
        Err(Names(&[]))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Names> {
        Err(Names(variants))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}
