//! Notifications of runs: what a run asks for, and the hooks that there are. A hook's command or address never crosses a
//! border: what is sent of it may be shown.

use serde::{Deserialize, Serialize};

use crate::ids::{Name, RunId};
use crate::time::Timestamp;
use crate::wire_enum::wire_enum;

wire_enum!(
    /// What can be notified of.
    NoticeKind {
        /// A task failed for good, or an agent that belongs to no task crashed or failed.
        Failed = "failed",
        /// An agent waits for a person.
        Blocked = "blocked",
        /// A task's work waits for a person.
        Review = "review",
        /// Every task of a run is over.
        RunEnd = "run-end",
    }
);

/// A hook that is told of a run because the run asks for it.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Told {
    /// Name of the hook, in the settings of the system or the user.
    pub to: Name,
    /// Of what, in the place of what the hook itself is for; empty: what the hook is for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub on: Vec<NoticeKind>,
}

/// The hooks that are in force.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HooksView {
    pub hooks: Vec<HookView>,
    /// What is wrong with the settings as they are now, while those of before are in force (none, where there are no
    /// hooks of before: nobody is notified then); else empty.
    #[serde(default)]
    pub wrong: String,
    /// What runs that go on ask for and is not there any more.
    #[serde(default)]
    pub missing: Vec<MissingHook>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HookView {
    #[serde(default)]
    pub name: Option<Name>,
    /// Where it goes, as it may be shown.
    pub shown: String,
    pub on: Vec<NoticeKind>,
    /// Only of runs that ask for it.
    #[serde(default)]
    pub only_asked: bool,
    /// Of one delivery.
    pub timeout_ms: u64,
    pub delivered: u64,
    /// Given up after all tries.
    pub lost: u64,
    /// The last delivery, while it fails.
    #[serde(default)]
    pub failure: Option<HookFailure>,
    /// Layer of the settings, and `FILE:LINE`.
    pub layer: String,
    pub place: String,
}

#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HookFailure {
    pub at: Timestamp,
    pub why: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissingHook {
    pub hook: Name,
    pub run: RunId,
    pub run_name: Name,
}
