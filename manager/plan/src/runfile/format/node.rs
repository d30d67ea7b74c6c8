//! A value of a task file with its place, whatever format it came from. YAML and JSON are read by the same visitor,
//! which keeps duplicate keys, so that the schema can refuse them by place.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use super::super::problem::Place;

#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    pub at: Place,
    pub kind: Kind,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Kind {
    Null,
    /// Scalars keep their text as written: `1.10` in a command is not `1.1`.
    Bool {
        value: bool,
        text: String,
    },
    Number {
        value: Number,
        text: String,
    },
    Text(String),
    List(Vec<Node>),
    Map(Vec<(Key, Node)>),
}

#[derive(Debug, Clone, PartialEq)]
pub struct Key {
    pub at: Place,
    pub name: String,
}

impl Node {
    pub fn text(at: Place, text: impl Into<String>) -> Self {
        Self { at, kind: Kind::Text(text.into()) }
    }

    /// What it is, for "expected a list, found a map".
    pub fn what(&self) -> &'static str {
        match &self.kind {
            Kind::Null => "nothing",
            Kind::Bool { .. } => "true or false",
            Kind::Number { .. } => "a number",
            Kind::Text(_) => "a text",
            Kind::List(_) => "a list",
            Kind::Map(_) => "a map",
        }
    }

    /// A scalar as it was written.
    pub fn scalar(&self) -> Option<&str> {
        match &self.kind {
            Kind::Text(text) | Kind::Bool { text, .. } | Kind::Number { text, .. } => Some(text),
            Kind::Null | Kind::List(_) | Kind::Map(_) => None,
        }
    }

    pub fn get(&self, key: &str) -> Option<&Node> {
        match &self.kind {
            Kind::Map(entries) => entries.iter().find(|(k, _)| k.name == key).map(|(_, node)| node),
            _ => None,
        }
    }

    /// Without places, for templates.
    pub fn to_json(&self) -> Value {
        match &self.kind {
            Kind::Null => Value::Null,
            Kind::Bool { value, .. } => Value::Bool(*value),
            Kind::Number { value, .. } => Value::Number(value.clone()),
            Kind::Text(text) => Value::String(text.clone()),
            Kind::List(items) => Value::Array(items.iter().map(Node::to_json).collect()),
            Kind::Map(entries) => Value::Object(
                entries.iter().map(|(key, node)| (key.name.clone(), node.to_json())).collect::<Map<_, _>>(),
            ),
        }
    }
}

/// A value before its places are known; `N` is a nested value, `K` a key.
pub(super) enum Raw<N, K> {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<N>),
    Map(Vec<(K, N)>),
}

impl<'de, N: Deserialize<'de>, K: Deserialize<'de>> Deserialize<'de> for Raw<N, K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RawVisitor(PhantomData))
    }
}

struct RawVisitor<N, K>(PhantomData<(N, K)>);

impl<'de, N: Deserialize<'de>, K: Deserialize<'de>> Visitor<'de> for RawVisitor<N, K> {
    type Value = Raw<N, K>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Raw::Null)
    }

    fn visit_none<E>(self) -> Result<Self::Value, E> {
        Ok(Raw::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Self::Value, E> {
        Ok(Raw::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Self::Value, E> {
        Ok(Raw::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Self::Value, E> {
        Ok(Raw::Number(value.into()))
    }

    fn visit_i128<E>(self, value: i128) -> Result<Self::Value, E> {
        Ok(Raw::Text(value.to_string()))
    }

    fn visit_u128<E>(self, value: u128) -> Result<Self::Value, E> {
        Ok(Raw::Text(value.to_string()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Self::Value, E> {
        // JSON has no NaN or infinity; a task file has no use for them but as a text.
        Ok(Number::from_f64(value).map_or_else(|| Raw::Text(value.to_string()), Raw::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Self::Value, E> {
        Ok(Raw::Text(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Self::Value, E> {
        Ok(Raw::Text(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(Raw::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Raw::Map(entries))
    }
}
