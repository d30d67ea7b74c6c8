//! The list of keys: what each is for, what it may be, who may set it.

use super::layer::Layer;
pub use super::value::Kind;

/// One setting.
#[derive(Debug, PartialEq, Eq)]
pub struct Key {
    /// `section.key`.
    pub name: &'static str,
    pub kind: Kind,
    pub default: &'static str,
    /// Layers that may set it. Those of daemons are not the environment's: it would matter who started them. What is
    /// not in a project's reach could lose data, stop others from working, or change what scripts read.
    pub layers: &'static [Layer],
    pub about: &'static str,
}

const ANY: &[Layer] = &[Layer::System, Layer::User, Layer::Project, Layer::Environment];
const PERSONAL: &[Layer] = &[Layer::System, Layer::User, Layer::Environment];
const DAEMON: &[Layer] = &[Layer::System, Layer::User];
/// Layers that may define profiles: a profile is a program that is run.
pub const PROFILE_LAYERS: &[Layer] = &[Layer::System, Layer::User];

pub const GRACE: Key = Key {
    name: "defaults.grace",
    kind: Kind::Duration,
    default: "10s",
    layers: ANY,
    about: "time between the request to end and the kill, of agents and tasks that say nothing else",
};
pub const MEMORY: Key = Key {
    name: "defaults.memory",
    kind: Kind::Memory,
    default: "none",
    layers: ANY,
    about: "memory limit of agents and tasks that have none of their own",
};
pub const CPU: Key = Key {
    name: "defaults.cpu",
    kind: Kind::Cores,
    default: "none",
    layers: ANY,
    about: "cores of agents and tasks that have no limit of their own",
};
pub const PIDS: Key = Key {
    name: "defaults.pids",
    kind: Kind::Count,
    default: "none",
    layers: ANY,
    about: "processes and threads of agents and tasks that have no limit of their own",
};
pub const TIMEOUT: Key = Key {
    name: "defaults.timeout",
    kind: Kind::TimeLimit,
    default: "none",
    layers: ANY,
    about: "wall-clock limit of agents and tasks that have none of their own",
};
pub const MAX_PARALLEL: Key = Key {
    name: "defaults.max_parallel",
    kind: Kind::Count,
    default: "none",
    layers: ANY,
    about: "tasks of a run that may be live at once, where neither file nor option says",
};
pub const OUTPUT: Key = Key {
    name: "defaults.output",
    kind: Kind::Output,
    default: "table",
    layers: PERSONAL,
    about: "format of output, where -o does not say",
};
pub const DISK_SHARE: Key = Key {
    name: "host.disk_share",
    kind: Kind::Share,
    default: "85%",
    layers: DAEMON,
    about: "share of the disk above which this host takes no new agent; counts from the next phalanx up",
};
pub const LABEL_CAPS: Key = Key {
    name: "limits.labels",
    kind: Kind::Caps,
    default: "none",
    layers: DAEMON,
    about: "tasks with a label that may be live at once, of all runs together; counts from the next phalanx up",
};
pub const RETAIN_ARCHIVE: Key = Key {
    name: "retention.archive",
    kind: Kind::Count,
    default: "5000",
    layers: DAEMON,
    about: "destroyed agents of which transcript and end are kept, the newest; those with outputs stay; counts from the next phalanx up",
};
pub const RETAIN_TRANSCRIPTS: Key = Key {
    name: "retention.transcripts",
    kind: Kind::Retention,
    default: "never",
    layers: DAEMON,
    about: "how long transcript and end of a destroyed agent are kept; those with outputs stay; counts from the next phalanx up",
};
pub const RETAIN_AGENTS: Key = Key {
    name: "retention.agents",
    kind: Kind::Retention,
    default: "never",
    layers: DAEMON,
    about: "how long ended agents are kept before they are destroyed, never with the only copy of work; counts from the next phalanx up",
};
pub const RETAIN_RUNS: Key = Key {
    name: "retention.runs",
    kind: Kind::Bounds,
    default: "never",
    layers: DAEMON,
    about: "runs that are over and of which records are kept, by number, by time since their end, or both; never without those whose work waits or whose agents are there; counts from the next phalanx up",
};
pub const RETAIN_BLOBS: Key = Key {
    name: "retention.blobs",
    kind: Kind::Retention,
    default: "1d",
    layers: DAEMON,
    about: "how long a prompt, log or input stays on the bus that no record names any more; an hour at least is given from its bringing to its naming, or this where it is less; counts from the next phalanx up",
};

pub const KEYS: &[&Key] = &[
    &GRACE,
    &MEMORY,
    &CPU,
    &PIDS,
    &TIMEOUT,
    &MAX_PARALLEL,
    &OUTPUT,
    &DISK_SHARE,
    &LABEL_CAPS,
    &RETAIN_ARCHIVE,
    &RETAIN_TRANSCRIPTS,
    &RETAIN_AGENTS,
    &RETAIN_RUNS,
    &RETAIN_BLOBS,
];

impl Key {
    /// `defaults.max_parallel` → `("defaults", "max_parallel")`.
    #[must_use]
    pub fn parts(&self) -> (&'static str, &'static str) {
        self.name.split_once('.').unwrap_or(("", self.name))
    }

    /// The variable that sets it.
    #[must_use]
    pub fn variable(&self) -> String {
        format!("PHALANX_{}", self.name.replace('.', "_").to_uppercase())
    }

    #[must_use]
    pub fn may_be_set_by(&self, layer: Layer) -> bool {
        self.layers.contains(&layer)
    }
}

/// The key of this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Key> {
    KEYS.iter().copied().find(|key| key.name == name)
}

/// Sections of a file, in their order.
#[must_use]
pub fn sections() -> Vec<&'static str> {
    let mut sections = Vec::new();
    for key in KEYS {
        let (section, _) = key.parts();
        if !sections.contains(&section) {
            sections.push(section);
        }
    }
    sections
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_is_a_value_of_its_key_and_names_are_unique() {
        for (index, key) in KEYS.iter().enumerate() {
            assert_eq!(key.kind.check(key.default), Ok(()), "{}", key.name);
            assert!(!KEYS[..index].iter().any(|before| before.name == key.name), "{}", key.name);
            assert!(key.name.split('.').count() == 2, "{}", key.name);
        }
    }

    #[test]
    fn a_project_can_neither_lose_data_nor_change_what_scripts_read() {
        let reach: Vec<&str> =
            KEYS.iter().filter(|key| key.may_be_set_by(Layer::Project)).map(|key| key.name).collect();
        assert!(reach.iter().all(|name| name.starts_with("defaults.")), "{reach:?}");
        assert!(!OUTPUT.may_be_set_by(Layer::Project));
        assert!(!PROFILE_LAYERS.contains(&Layer::Project));
    }
}
