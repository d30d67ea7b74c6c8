//! Wall-clock time as both cores see it: milliseconds since the Unix epoch, given with each input.

#[cfg(feature = "schema")]
use std::borrow::Cow;

#[cfg(feature = "schema")]
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(pub u64);

#[cfg(feature = "schema")]
impl JsonSchema for Timestamp {
    fn schema_name() -> Cow<'static, str> {
        "Timestamp".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let description = "Milliseconds since the Unix epoch, UTC.";
        json_schema!({"type": "integer", "minimum": 0, "description": description})
    }
}

impl Timestamp {
    /// `self` + `ms`, at most the end of time.
    #[must_use]
    pub fn after_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms))
    }

    /// How long ago `earlier` was; 0 when it lies ahead (a clock that was set back).
    #[must_use]
    pub fn ms_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}
