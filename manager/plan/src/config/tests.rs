//! Which layer wins, what is refused and where, and that a change of one key changes nothing else.

use super::key::{CPU, DISK_SHARE, GRACE, KEYS, MAX_PARALLEL, MEMORY, OUTPUT};
use super::*;
use std::path::PathBuf;

struct World {
    folder: tempfile::TempDir,
    environment: BTreeMap<String, String>,
}

impl World {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), environment: BTreeMap::new() }
    }

    fn path(&self, layer: Layer) -> PathBuf {
        self.folder.path().join(format!("{layer}.toml"))
    }

    fn write(&self, layer: Layer, text: &str) {
        std::fs::write(self.path(layer), text).unwrap();
    }

    fn read(&self) -> Result<Settings, Wrong> {
        let files = Files {
            system: self.path(Layer::System),
            user: Some(self.path(Layer::User)),
            project: Some(self.path(Layer::Project)),
        };
        Settings::read(&files, &self.environment)
    }

    fn wrong(&self) -> String {
        self.read().unwrap_err().to_string().replace(&self.folder.path().display().to_string(), "")
    }
}

#[test]
fn the_later_layer_wins_and_each_value_knows_where_it_was_written() {
    let mut world = World::new();
    assert_eq!(world.read().unwrap(), Settings::default());
    world.write(Layer::System, "[defaults]\ngrace = '1s'\nmemory = '1G'\ncpu = 1\nmax_parallel = 9\n");
    world.write(Layer::User, "[defaults]\nmemory = '2G'\ncpu = 2\nmax_parallel = 8\n");
    world.write(Layer::Project, "\n[defaults]\ncpu = 1.5\nmax_parallel = 7\n");
    world.environment.insert("PHALANX_DEFAULTS_MAX_PARALLEL".into(), "6".into());
    let settings = world.read().unwrap();
    let of = |key: &Key| {
        let entry = settings.entry(key).unwrap();
        (entry.text.clone(), entry.origin.layer)
    };
    assert_eq!(of(&GRACE), ("1s".into(), Layer::System));
    assert_eq!(of(&MEMORY), ("2G".into(), Layer::User));
    assert_eq!(of(&CPU), ("1.5".into(), Layer::Project));
    assert_eq!(of(&MAX_PARALLEL), ("6".into(), Layer::Environment));
    assert_eq!(of(&OUTPUT), ("table".into(), Layer::BuiltIn));
    assert!(settings.entry(&CPU).unwrap().origin.place.ends_with("project.toml:3"));
}

#[test]
fn none_takes_back_what_an_earlier_layer_set() {
    let world = World::new();
    world.write(Layer::System, "[defaults]\nmemory = '1G'\n");
    assert_eq!(world.read().unwrap().text(&MEMORY), Some("1G"));
    world.write(Layer::User, "[defaults]\nmemory = 'none'\n");
    assert_eq!(world.read().unwrap().text(&MEMORY), None);
}

#[test]
fn everything_that_is_wrong_is_told_at_once_with_its_place_and_the_nearest_key() {
    let mut world = World::new();
    world.write(Layer::System, "[default]\ngrace = '1s'\n");
    world.write(Layer::User, "[defaults]\ngrase = '1s'\nmemory = 5\ncpu = true\n");
    world.environment.insert("PHALANX_DEFAULTS_MEMROY".into(), "1G".into());
    world.environment.insert("PHALANX_AGENT".into(), "not a setting".into());
    let wrong = world.wrong();
    assert!(wrong.contains("/system.toml:1:2: unknown key \"default\""), "{wrong}");
    assert!(wrong.contains("did you mean \"defaults\"?"), "{wrong}");
    assert!(
        wrong.contains("/user.toml:2:1: unknown key \"grase\" in this section; did you mean \"grace\"?"),
        "{wrong}"
    );
    assert!(wrong.contains("/user.toml:3:10: defaults.memory: it must be at least 1M"), "{wrong}");
    assert!(wrong.contains("/user.toml:4:7: defaults.cpu must be cores"), "{wrong}");
    assert!(wrong.contains("did you mean \"PHALANX_DEFAULTS_MEMORY\"?"), "{wrong}");
    assert!(!wrong.contains("PHALANX_AGENT"), "{wrong}");
}

#[test]
fn a_project_sets_nothing_that_could_hurt() {
    for key in KEYS.iter().filter(|key| !key.may_be_set_by(Layer::Project)) {
        let world = World::new();
        let (section, short) = key.parts();
        world.write(Layer::Project, &format!("[{section}]\n{short} = '{}'\n", key.default));
        assert!(world.wrong().contains("cannot be set in this file"), "{}: {}", key.name, world.wrong());
    }
    let world = World::new();
    world.write(Layer::Project, "[profiles.claude]\ncommand = 'rm -rf /'\n");
    assert!(world.wrong().contains("profiles cannot be set in this file"), "{}", world.wrong());
}

#[test]
fn the_environment_does_not_reach_daemons() {
    let mut world = World::new();
    world.environment.insert("PHALANX_HOST_DISK_SHARE".into(), "99%".into());
    assert!(world.wrong().contains("PHALANX_HOST_DISK_SHARE cannot be set"), "{}", world.wrong());
}

#[test]
fn profiles_of_a_later_layer_win_and_the_built_in_ones_stay() {
    let world = World::new();
    world.write(Layer::System, "[profiles.mine]\ncommand = ['a']\n[profiles.claude]\ncommand = 'b'\n");
    world.write(Layer::User, "[profiles.mine]\ncommand = ['c']\ninteractive = ['d']\nready = 'go'\n");
    let settings = world.read().unwrap();
    let profiles = settings.profiles();
    assert_eq!(profiles["mine"].command, ["c"]);
    assert_eq!(profiles["mine"].interactive, ["d"]);
    assert_eq!(profiles["claude"].interactive, ["sh", "-c", "b"]);
    assert!(profiles.contains_key("codex"));
    assert_eq!(settings.named_profiles()["mine"].origin.layer, Layer::User);
}

#[test]
fn a_change_of_one_key_leaves_comments_and_all_else_as_they_are() {
    let text = "# mine\n[defaults] # d\ngrace = '1s' # short\ncpu = 2\n\n# last\n";
    let set = |text: &str, key: &Key, new: &str| edit::set(text, "f", Layer::User, key, new).unwrap();
    let changed = set(text, &GRACE, "5s");
    assert_eq!(changed, "# mine\n[defaults] # d\ngrace = \"5s\" # short\ncpu = 2\n\n# last\n");
    assert_eq!(set(&changed, &GRACE, "5s"), changed);
    let more = set(&changed, &DISK_SHARE, "70%");
    assert!(more.contains("[host]\ndisk_share = \"70%\"\n"), "{more}");
    let back = edit::unset(&more, "f", Layer::User, &DISK_SHARE).unwrap().unwrap();
    assert!(!back.contains("host"), "{back}");
    assert_eq!(edit::unset(&back, "f", Layer::User, &DISK_SHARE).unwrap(), None);
    assert_eq!(set("", &MAX_PARALLEL, "4"), "[defaults]\nmax_parallel = 4\n");
    assert!(edit::set(text, "f", Layer::User, &GRACE, "soon").is_err());
    assert!(edit::set("[nonsense]\n", "f", Layer::User, &GRACE, "1s").is_err());
    assert!(edit::set("", "f", Layer::Project, &DISK_SHARE, "70%").is_err());
}

#[test]
fn a_name_of_a_hook_is_one_hook_in_all_layers_and_a_place_has_one_name() {
    let hook = |name: &str, more: &str| format!("[[notify]]\nname = '{name}'\non = 'failed'\n{more}\n");
    let world = World::new();
    world.write(Layer::System, &hook("pager", "only = 'asked'\ncommand = 'page'"));
    world.write(Layer::User, &hook("chat", "command = 'chat'"));
    let settings = world.read().unwrap();
    let names: Vec<&str> =
        settings.hooks().iter().filter_map(|hook| Some(hook.name.as_ref()?.as_str())).collect();
    assert_eq!(names, ["pager", "chat"]);
    for (user, expected) in [
        (
            hook("pager", "command = 'other'"),
            "/user.toml:1:1: notify: the name \"pager\" is another hook's, in /system.toml:1",
        ),
        (hook("mine", "only = 'asked'\ncommand = 'page'"), "give both one name"),
        (hook("pager", "command = 'page'"), "give `only` in both or none"),
        (hook("a:b", "command = 'x'"), "which ends a name in --notify"),
        (hook("-x", "command = 'x'"), "name: "),
        (hook("x", "only = 'aksed'\ncommand = 'x'"), "did you mean \"asked\"?"),
        ("[[notify]]\non = 'failed'\nonly = 'asked'\ncommand = 'x'\n".to_owned(), "needs a name"),
    ] {
        world.write(Layer::User, &user);
        let wrong = world.wrong();
        assert!(wrong.contains(expected), "{user}\n{wrong}");
    }
    // The same again, or without a name, is the same hook.
    world
        .write(Layer::User, "[[notify]]\non = 'run-end'\nonly = 'asked'\nname = 'pager'\ncommand = 'page'\n");
    let settings = world.read().unwrap();
    let on: Vec<&str> = settings.hooks()[0].on.iter().map(|kind| kind.as_str()).collect();
    assert_eq!((settings.hooks().len(), on), (1, vec!["failed", "run-end"]));
}
