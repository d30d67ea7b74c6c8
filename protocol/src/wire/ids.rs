//! Ids, names and counters, parsed once at the edge into types that cannot be wrong.
//!
//! `AgentId`, `RunId`, `TaskId`, `MessageId`, `OrderId` are UUIDv7 values written as 26 characters of
//! lower-case base32hex (RFC 4648 §7 without padding, most significant first), so that they sort by time and can be
//! a token of a subject, a KV key, a cgroup and a folder. Labels that people choose ([`Name`]) never are.

#[cfg(feature = "schema")]
use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

#[cfg(feature = "schema")]
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Why a text is not an id or a name. The text itself is quoted with control characters escaped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    #[error("{0:?} is not an id: an id is 26 characters of 0-9 and a-v")]
    NotAnId(String),
    #[error("{0:?} is not a host or region: 1 to 40 of a-z, 0-9 and '-'")]
    NotAToken(String),
    #[error("{name:?} cannot be a name: {why}")]
    NotAName { name: String, why: &'static str },
}

const ALPHABET: &[u8; 32] = b"0123456789abcdefghijklmnopqrstuv";
const ID_LENGTH: usize = 26;

fn encode(value: u128) -> String {
    (0..ID_LENGTH)
        .map(|place| {
            let digit = (value >> (125 - 5 * place)) & 31;
            ALPHABET.get(usize::try_from(digit).unwrap_or(0)).map_or('0', |byte| char::from(*byte))
        })
        .collect()
}

fn decode(text: &str) -> Option<u128> {
    if text.len() != ID_LENGTH {
        return None;
    }
    let mut value: u128 = 0;
    for (place, byte) in text.bytes().enumerate() {
        let digit = ALPHABET.iter().position(|known| *known == byte)?;
        if place == 0 && digit > 7 {
            return None; // 26 characters hold 130 bits: the first one holds three
        }
        value = (value << 5) | u128::try_from(digit).ok()?;
    }
    Some(value)
}

/// UUIDv7 (RFC 9562 §5.7) from a wall clock in ms and 74 or more random bits.
fn uuid_v7(unix_ms: u64, random: u128) -> u128 {
    let time = u128::from(unix_ms & 0xffff_ffff_ffff) << 80;
    let version = 0x7_u128 << 76;
    let rand_a = ((random >> 64) & 0xfff) << 64;
    let variant = 0b10_u128 << 62;
    let rand_b = random & 0x3fff_ffff_ffff_ffff;
    time | version | rand_a | variant | rand_b
}

macro_rules! uuid_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(u128);

        impl $name {
            /// A new id. The clock and the randomness are the caller's: this crate has neither.
            #[must_use]
            pub fn from_parts(unix_ms: u64, random: u128) -> Self {
                Self(uuid_v7(unix_ms, random))
            }

            /// The last six characters: enough to tell ids of one run apart in a branch name or a table.
            #[must_use]
            pub fn tail(&self) -> String {
                self.to_string().chars().skip(ID_LENGTH - 6).collect()
            }

            /// When the id was made, ms since the Unix epoch.
            #[must_use]
            pub fn unix_ms(&self) -> u64 {
                u64::try_from(self.0 >> 80).unwrap_or(0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&encode(self.0))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&encode(self.0))
            }
        }

        impl FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                decode(text).map(Self).ok_or_else(|| IdError::NotAnId(text.to_owned()))
            }
        }

        #[cfg(feature = "schema")]
        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({"type": "string", "pattern": "^[0-7][0-9a-v]{25}$"})
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

uuid_id!(
    /// One supervised program in one session on one host.
    AgentId
);
uuid_id!(
    /// One submission of tasks.
    RunId
);
uuid_id!(
    /// One unit of work with its acceptance.
    TaskId
);
uuid_id!(
    /// One text to an agent.
    MessageId
);
uuid_id!(
    /// One order of a manager to a host.
    OrderId
);

macro_rules! token {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                let fits = (1..=40).contains(&text.len())
                    && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
                if fits { Ok(Self(text.to_owned())) } else { Err(IdError::NotAToken(text.to_owned())) }
            }
        }

        #[cfg(feature = "schema")]
        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({"type": "string", "pattern": "^[a-z0-9-]{1,40}$"})
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

token!(
    /// A machine of the fleet, fixed for life.
    HostId
);
token!(
    /// A group of hosts behind one bus server, fixed for life.
    Region
);

/// A label that a person gives to an agent or run. Never a token of a subject, a key, a path or a tmux target.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Name(String);

impl Name {
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

impl FromStr for Name {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let why = if text.is_empty() {
            Some("it is empty")
        } else if text.chars().count() > 200 {
            Some("it is longer than 200 characters")
        } else if text.starts_with('-') {
            Some("it begins with '-', like an option")
        } else if text == "." || text == ".." {
            Some("it is a folder's own name")
        } else if text.contains('/') || text.contains('@') {
            Some("'/' and '@' have a meaning of their own (NAME@HOST)")
        } else if text.chars().any(is_unprintable) {
            Some("it holds a control character")
        } else {
            None
        };
        match why {
            None => Ok(Self(text.to_owned())),
            Some(why) => Err(IdError::NotAName { name: text.to_owned(), why }),
        }
    }
}

/// Control characters, and the invisible marks that reorder or hide text on a terminal.
fn is_unprintable(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(feature = "schema")]
impl JsonSchema for Name {
    fn schema_name() -> Cow<'static, str> {
        "Name".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "minLength": 1, "maxLength": 200})
    }
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

macro_rules! counter {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u64);

        impl $name {
            #[must_use]
            pub fn next(self) -> Self {
                Self(self.0.saturating_add(1))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

counter!(
    /// Version of what the manager wants of one agent; an order of an older one changes nothing.
    Generation
);
counter!(
    /// One life of a hostd. An order meant for another one is dropped.
    Incarnation
);
counter!(
    /// Place of a report in its host's incarnation.
    Seq
);
counter!(
    /// A manager's term as leader; a host refuses the orders of a lower one.
    Fencing
);

/// Key under which a mutation is answered the same way for 24 hours. Chosen by the client.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RequestKey(pub String);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ids_sort_by_time() {
        let early = AgentId::from_parts(1_000, u128::MAX).to_string();
        let late = AgentId::from_parts(1_001, 0).to_string();
        assert!(early < late);
        assert_eq!(AgentId::from_parts(1_234_567, 9).unix_ms(), 1_234_567);
    }

    proptest! {
        #[test]
        fn every_id_reads_back(ms in 0_u64..(1 << 48), random: u128) {
            let id = TaskId::from_parts(ms, random);
            prop_assert_eq!(id.to_string().len(), ID_LENGTH);
            prop_assert_eq!(id.to_string().parse::<TaskId>(), Ok(id));
        }

        #[test]
        fn no_text_makes_the_parsers_panic(text: String) {
            let _ = text.parse::<AgentId>();
            let _ = text.parse::<HostId>();
            if let Ok(name) = text.parse::<Name>() {
                prop_assert!(!name.as_str().starts_with('-'));
                prop_assert!(!name.as_str().chars().any(char::is_control));
            }
        }
    }

    #[test]
    fn names_people_use_are_accepted_and_dangerous_ones_refused() {
        for good in ["a.b:c", "naïve 名前", "10.0.0.5", "*", ">", &"x".repeat(200)] {
            assert!(good.parse::<Name>().is_ok(), "{good}");
        }
        for bad in ["", "-x", ".", "..", "a/b", "a@b", "a\u{1b}[2J", "a\nb", "a\u{202e}b", &"x".repeat(201)] {
            assert!(bad.parse::<Name>().is_err(), "{bad:?}");
        }
    }
}
