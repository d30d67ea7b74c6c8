//! A message as a tree, whatever its type: what the rules need to leave fields out and to add some. Order and kinds
//! of numbers are kept, so that a tree is written as the bytes that it was read from.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Tree {
    Nil,
    Bool(bool),
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Text(String),
    Bytes(Vec<u8>),
    List(Vec<Tree>),
    Map(Vec<(String, Tree)>),
}

/// One step from a node to one of its children: the place of a field or of an element.
pub(crate) type Path = Vec<usize>;

impl Tree {
    /// Paths of all maps beneath, this one too.
    pub(crate) fn maps(&self) -> Vec<Path> {
        let mut found = Vec::new();
        self.walk(&mut Vec::new(), &mut found);
        found
    }

    fn walk(&self, at: &mut Path, found: &mut Vec<Path>) {
        if matches!(self, Self::Map(_)) {
            found.push(at.clone());
        }
        for (place, child) in self.children().into_iter().enumerate() {
            at.push(place);
            child.walk(at, found);
            at.pop();
        }
    }

    fn children(&self) -> Vec<&Tree> {
        match self {
            Self::List(items) => items.iter().collect(),
            Self::Map(fields) => fields.iter().map(|(_, value)| value).collect(),
            _ => Vec::new(),
        }
    }

    pub(crate) fn at(&self, path: &[usize]) -> &Tree {
        path.iter().fold(self, |node, place| node.children()[*place])
    }

    fn at_mut(&mut self, path: &[usize]) -> &mut Tree {
        path.iter().fold(self, |node, place| match node {
            Self::List(items) => &mut items[*place],
            Self::Map(fields) => &mut fields[*place].1,
            leaf => panic!("{leaf:?} has no children"),
        })
    }

    /// The fields of the map at `path`.
    pub(crate) fn fields(&self, path: &[usize]) -> &[(String, Tree)] {
        match self.at(path) {
            Self::Map(fields) => fields,
            other => panic!("{other:?} is no map"),
        }
    }

    pub(crate) fn without(&self, path: &[usize], place: usize) -> Tree {
        let mut changed = self.clone();
        if let Self::Map(fields) = changed.at_mut(path) {
            fields.remove(place);
        }
        changed
    }

    pub(crate) fn with(&self, path: &[usize], name: &str, value: Tree) -> Tree {
        let mut changed = self.clone();
        if let Self::Map(fields) = changed.at_mut(path) {
            fields.push((name.to_owned(), value));
        }
        changed
    }

    pub(crate) fn replaced(&self, path: &[usize], value: Tree) -> Tree {
        let mut changed = self.clone();
        *changed.at_mut(path) = value;
        changed
    }

    /// `a.b[2].c`, for people and for lists of rules.
    pub(crate) fn name_of(&self, path: &[usize]) -> String {
        let (mut node, mut name) = (self, String::new());
        for place in path {
            match node {
                Self::Map(fields) => {
                    let dot = if name.is_empty() { "" } else { "." };
                    name = format!("{name}{dot}{}", fields[*place].0);
                }
                _ => name = format!("{name}[{place}]"),
            }
            node = node.children()[*place];
        }
        name
    }

    /// For readers; bytes as hex digits.
    pub(crate) fn to_json(&self) -> serde_json::Value {
        match self {
            Self::Nil => serde_json::Value::Null,
            Self::Bool(value) => (*value).into(),
            Self::Unsigned(value) => (*value).into(),
            Self::Signed(value) => (*value).into(),
            Self::Float(value) => (*value).into(),
            Self::Text(text) => text.clone().into(),
            Self::Bytes(bytes) => {
                let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
                serde_json::json!({ "$hex": hex })
            }
            Self::List(items) => items.iter().map(Self::to_json).collect(),
            Self::Map(fields) => fields.iter().map(|(name, value)| (name.clone(), value.to_json())).collect(),
        }
    }
}

impl Serialize for Tree {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Nil => serializer.serialize_none(),
            Self::Bool(value) => serializer.serialize_bool(*value),
            Self::Unsigned(value) => serializer.serialize_u64(*value),
            Self::Signed(value) => serializer.serialize_i64(*value),
            Self::Float(value) => serializer.serialize_f64(*value),
            Self::Text(text) => serializer.serialize_str(text),
            Self::Bytes(bytes) => serializer.serialize_bytes(bytes),
            Self::List(items) => {
                let mut list = serializer.serialize_seq(Some(items.len()))?;
                for item in items {
                    list.serialize_element(item)?;
                }
                list.end()
            }
            Self::Map(fields) => {
                let mut map = serializer.serialize_map(Some(fields.len()))?;
                for (name, value) in fields {
                    map.serialize_entry(name, value)?;
                }
                map.end()
            }
        }
    }
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyTree)
    }
}

struct AnyTree;

impl<'de> Visitor<'de> for AnyTree {
    type Value = Tree;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_unit<E>(self) -> Result<Tree, E> {
        Ok(Tree::Nil)
    }

    fn visit_none<E>(self) -> Result<Tree, E> {
        Ok(Tree::Nil)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Tree, D::Error> {
        Tree::deserialize(deserializer)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Tree, E> {
        Ok(Tree::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Tree, E> {
        Ok(Tree::Unsigned(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Tree, E> {
        Ok(u64::try_from(value).map_or(Tree::Signed(value), Tree::Unsigned))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Tree, E> {
        Ok(Tree::Float(value))
    }

    fn visit_str<E>(self, text: &str) -> Result<Tree, E> {
        Ok(Tree::Text(text.to_owned()))
    }

    fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Tree, E> {
        Ok(Tree::Bytes(bytes.to_vec()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Tree, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element()? {
            items.push(item);
        }
        Ok(Tree::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Tree, A::Error> {
        let mut fields = Vec::new();
        while let Some(field) = map.next_entry()? {
            fields.push(field);
        }
        Ok(Tree::Map(fields))
    }
}
