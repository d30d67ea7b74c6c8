//! One task of a file: its fields checked and made into a [`TaskSpec`]. Other tasks are `validate.rs`'s, the commit
//! that a base means is the manager's.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use protocol::agent::{Blob, CommitMode, Environment, Prepare, ResourceLimits};
use protocol::ids::Name;
use protocol::task::{Accept, FailureClass, Retries, TaskSpec};

use super::fields::Fields;
use super::format::node::Node;
use super::problem::{Collector, Place, suggestion};
use super::profile::Profile;
use super::prompt::PromptReader;
use super::units::{cpu_millis, duration_ms, share_percent, size_bytes};

/// Every key of a task.
pub const TASK: &[&str] = &[
    "name",
    "command",
    "prompt",
    "prompt_file",
    "profile",
    "repo",
    "base",
    "base_from",
    "depends_on",
    "after",
    "setup",
    "prepare",
    "prepare_timeout",
    "copy",
    "priority",
    "labels",
    "cpu",
    "memory",
    "pids",
    "timeout",
    "grace",
    "retries",
    "verify",
    "verify_timeout",
    "accept",
    "result",
    "outputs",
    "commit",
    "env",
    "user",
    "workspace",
    "move_after",
    "template",
    "allow_no_change",
];
const RETRIES: &[&str] = &["max", "backoff", "jitter", "on"];

/// Between the request to end and the kill, where nothing else is said.
pub const GRACE_MS: u64 = 10_000;

/// For all that is prepared in a base together, where nothing else is said.
const PREPARE_MS: u64 = 30 * 60 * 1000;

/// A task that is right in itself.
#[derive(Debug, Clone, PartialEq)]
pub struct PlannedTask {
    pub at: Place,
    /// `repo` and `base_commit` are empty until the manager has resolved [`PlannedTask::repo`].
    pub spec: TaskSpec,
    pub repo: Option<RepoRequest>,
    pub prompt: Option<Arc<[u8]>>,
    pub environment: Environment,
}

/// A repository as the file names it, its path made absolute.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RepoRequest {
    pub path: PathBuf,
    pub base: Option<String>,
}

/// What a task is read with.
pub struct Reader<'a> {
    /// Relative paths start here.
    pub folder: &'a std::path::Path,
    pub profiles: &'a BTreeMap<String, Profile>,
    pub prompts: PromptReader,
}

impl Reader<'_> {
    /// `None` when something was wrong, which is then in `problems`.
    pub fn read(&mut self, node: &Node, name: &str, problems: &mut Collector) -> Option<PlannedTask> {
        let before = problems.count();
        let mut fields = Fields::open(node, "a task", TASK, Some(name), problems)?;
        fields.text("name"); // a name that is no text is told here; the one that counts was made before
        let parsed_name =
            name.parse::<Name>().map_err(|error| fields.complain(fields.place("name"), error.to_string()));
        let (program, prompt) = self.program(&mut fields);
        let profile = fields.text("profile").and_then(|name| self.profiles.get(&name));
        let (ready_text, signals) =
            profile.map(|profile| (profile.ready.clone(), profile.signals_of_task())).unwrap_or_default();
        let repo = self.repo(&mut fields);
        let verify = fields.programs("verify");
        let accept = accept(&mut fields, &verify, repo.is_some());
        let environment = environment(&mut fields);
        let depends_on = names(&mut fields, "depends_on");
        let after = names(&mut fields, "after");
        let base_from = base_from(&mut fields, &depends_on, repo.is_some());
        let setup = fields.programs("setup");
        let prepare = prepare(&mut fields, repo.is_some());
        let copy = copied(&mut fields, repo.is_some());
        let limits = limits(&mut fields);
        let allows = fields.word("allow_no_change", &[("true", true), ("false", false)]).unwrap_or(false);
        let needs_change = repo.is_some() && !allows;
        let spec = TaskSpec {
            name: parsed_name.ok()?,
            program: program.unwrap_or_default(),
            prompt: prompt.as_ref().map(|(blob, _)| blob.clone()),
            profile: fields.text("profile"),
            repo: None,
            base_commit: None,
            depends_on,
            after,
            base_from,
            setup,
            prepare,
            copy,
            priority: fields.whole("priority").unwrap_or_default(),
            labels: fields.pairs("labels"),
            limits,
            grace_ms: fields.parsed("grace", "a duration", duration_ms).unwrap_or(GRACE_MS),
            retries: retries(&mut fields, name),
            verify,
            verify_timeout_ms: positive(&mut fields, "verify_timeout"),
            accept,
            result: relative_paths(&mut fields, "result").into_iter().next(),
            outputs: relative_paths(&mut fields, "outputs"),
            commit: fields
                .word("commit", &[("agent", CommitMode::Agent), ("auto", CommitMode::Auto)])
                .unwrap_or(CommitMode::Auto),
            user: fields.text("user"),
            has_environment: !environment.0.is_empty(),
            ready_text,
            signals,
            move_after_ms: move_after(&mut fields),
            needs_change,
        };
        check_workspace(&mut fields, repo.is_some());
        // What it means was done when the texts were rendered.
        let _: Option<()> = fields.word("template", &[("true", ()), ("false", ())]);
        let prompt = prompt.map(|(_, bytes)| bytes);
        (problems.count() == before).then_some(PlannedTask { at: node.at, spec, repo, prompt, environment })
    }

    /// The program and the prompt.
    #[expect(clippy::type_complexity, reason = "two results of one decision, taken apart at once")]
    fn program(&mut self, fields: &mut Fields<'_>) -> (Option<Vec<String>>, Option<(Blob, Arc<[u8]>)>) {
        let command = fields.program("command");
        let has_command = fields.get("command").is_some();
        let profile = fields.text("profile");
        let prompt = self.prompts.read(fields, self.folder);
        let has_prompt = fields.get("prompt").is_some() || fields.get("prompt_file").is_some();
        match (has_command, &profile, has_prompt) {
            (true, None, false) => (command, None),
            (true, Some(_), _) => {
                fields.complain(
                    fields.place("profile"),
                    "both command and profile are given; a task has one of them",
                );
                (None, None)
            }
            (true, None, true) => {
                let at = fields.place("command");
                fields.complain(
                    at,
                    "both command and prompt are given; a prompt needs a profile instead of a command",
                );
                (None, None)
            }
            (false, None, true) => {
                fields.complain(fields.at, "a prompt needs a profile that says which program reads it");
                (None, None)
            }
            (false, None, false) => {
                fields.complain(fields.at, "neither command nor prompt and profile is given");
                (None, None)
            }
            (false, Some(name), _) => {
                let Some(known) = self.profiles.get(name) else {
                    let hint = suggestion(name, self.profiles.keys().map(String::as_str));
                    fields.complain(fields.place("profile"), format!("there is no profile {name:?}{hint}"));
                    return (None, None);
                };
                let reads_prompt = known.command.iter().any(|word| word.contains("PHALANX_PROMPT_FILE"));
                if !has_prompt && reads_prompt {
                    let message = format!("the profile {name:?} needs a prompt; give prompt or prompt_file");
                    fields.complain(fields.place("profile"), message);
                }
                (Some(known.command.clone()), prompt)
            }
        }
    }

    fn repo(&self, fields: &mut Fields<'_>) -> Option<RepoRequest> {
        let base = fields.text("base");
        let repo = fields.text("repo");
        if repo.as_deref() == Some("") {
            fields.complain(fields.place("repo"), "repo is empty");
        }
        if let Some(base) = base.as_deref().filter(|base| base.is_empty() || base.starts_with('-')) {
            fields.complain(
                fields.place("base"),
                format!("{base:?} cannot be a base: name a branch, tag or commit"),
            );
        }
        match (repo, base) {
            // Without the `.` that a file names itself by: people read it in tables.
            (Some(repo), base) => {
                Some(RepoRequest { path: self.folder.join(repo).components().collect(), base })
            }
            (None, Some(_)) => {
                fields.complain(fields.place("base"), "base is given without repo");
                None
            }
            (None, None) => None,
        }
    }
}

fn accept(fields: &mut Fields<'_>, verify: &[Vec<String>], has_repo: bool) -> Accept {
    let words = [("verify", Accept::Verify), ("exit", Accept::Exit), ("review", Accept::Review)];
    let default = if verify.is_empty() { Accept::Exit } else { Accept::Verify };
    let accept = fields.word("accept", &words).unwrap_or(default);
    if fields.get("verify").is_some() && !has_repo {
        fields.complain(
            fields.place("verify"),
            "verify needs a repo: it runs in a fresh checkout of the result",
        );
    }
    if accept == Accept::Verify && fields.get("verify").is_none() {
        fields.complain(fields.place("accept"), "accept is verify, but there is no verify");
    }
    if fields.get("verify_timeout").is_some() && fields.get("verify").is_none() {
        fields.complain(fields.place("verify_timeout"), "verify_timeout is given without verify");
    }
    accept
}

fn environment(fields: &mut Fields<'_>) -> Environment {
    let pairs = fields.pairs("env");
    for name in pairs.keys() {
        if let Err(message) = check_variable(name) {
            fields.complain(fields.place("env"), format!("env: {message}"));
        }
    }
    Environment(pairs)
}

/// Whether an environment can hold a variable of this name.
pub fn check_variable(name: &str) -> Result<(), String> {
    if name.is_empty() || name.contains('=') || name.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Err(format!("{name:?} cannot be the name of a variable"));
    }
    if name.starts_with("PHALANX_") {
        return Err(format!("{name:?} is set by Phalanx and cannot be given"));
    }
    Ok(())
}

/// Names of other tasks.
fn names(fields: &mut Fields<'_>, key: &str) -> Vec<Name> {
    let mut names: Vec<Name> = Vec::new();
    for (at, text) in fields.texts(key) {
        match text.parse::<Name>() {
            Ok(name) if names.contains(&name) => fields.complain(at, format!("{key} names {text:?} twice")),
            Ok(name) => names.push(name),
            Err(error) => fields.complain(at, format!("{key}: {error}")),
        }
    }
    names
}

/// The task whose commit it starts from.
fn base_from(fields: &mut Fields<'_>, depends_on: &[Name], has_repo: bool) -> Option<Name> {
    let text = fields.text("base_from")?;
    let at = fields.place("base_from");
    match text.parse::<Name>() {
        Ok(_) if !has_repo => fields.complain(at, "base_from is given without repo"),
        Ok(name) if !depends_on.contains(&name) => {
            fields.complain(at, format!("base_from names {text:?}, which is not in depends_on"));
        }
        Ok(name) => return Some(name),
        Err(error) => fields.complain(at, format!("base_from: {error}")),
    }
    None
}

/// What all checkouts of the base shall find in it.
fn prepare(fields: &mut Fields<'_>, has_repo: bool) -> Option<Box<Prepare>> {
    let programs = fields.programs("prepare");
    let timeout_ms = positive(fields, "prepare_timeout");
    if fields.get("prepare").is_some() && !has_repo {
        fields.complain(
            fields.place("prepare"),
            "prepare needs a repo: it is run in the base of its checkouts",
        );
    }
    if timeout_ms.is_some() && fields.get("prepare").is_none() {
        fields.complain(fields.place("prepare_timeout"), "prepare_timeout is given without prepare");
    }
    let timeout_ms = timeout_ms.unwrap_or(PREPARE_MS);
    (!programs.is_empty()).then(|| Box::new(Prepare { programs, timeout_ms }))
}

/// Files that git does not track, for each checkout.
fn copied(fields: &mut Fields<'_>, has_repo: bool) -> Vec<String> {
    if fields.get("copy").is_some() && !has_repo {
        fields.complain(fields.place("copy"), "copy needs a repo: files are copied from its checkout");
    }
    relative_paths(fields, "copy")
}

fn limits(fields: &mut Fields<'_>) -> ResourceLimits {
    let memory_bytes = fields.parsed("memory", "a size", size_bytes);
    if memory_bytes.is_some_and(|bytes| bytes < 1 << 20) {
        fields.complain(fields.place("memory"), "memory must be at least 1M");
    }
    let pids = fields.whole("pids");
    if pids == Some(0) {
        fields.complain(fields.place("pids"), "pids must be at least 1");
    }
    let cpu_millis = fields.parsed("cpu", "a number of cores", cpu_millis);
    ResourceLimits { memory_bytes, cpu_millis, pids, time_ms: positive(fields, "timeout") }
}

/// A duration above zero.
fn positive(fields: &mut Fields<'_>, key: &str) -> Option<u64> {
    let ms = fields.parsed(key, "a duration", duration_ms)?;
    if ms == 0 {
        fields.complain(fields.place(key), format!("{key} must be longer than 0"));
    }
    Some(ms)
}

/// Shorter, a host that is only slow would lose its work.
const MOVE_AFTER_MIN_MS: u64 = 5 * 60 * 1000;

fn move_after(fields: &mut Fields<'_>) -> Option<u64> {
    let ms = fields.parsed("move_after", "a duration", duration_ms)?;
    if ms < MOVE_AFTER_MIN_MS {
        fields.complain(fields.place("move_after"), "move_after must be at least 5m");
    }
    Some(ms)
}

/// `retries: 2`, or a map.
fn retries(fields: &mut Fields<'_>, task: &str) -> Retries {
    let mut retries = Retries::default();
    let Some(node) = fields.get("retries") else { return retries };
    if node.scalar().is_some() {
        retries.max = fields.whole("retries").unwrap_or_default();
        return retries;
    }
    let Some(mut nested) = Fields::open(node, "retries", RETRIES, Some(task), fields.problems) else {
        return retries;
    };
    retries.max = nested.whole("max").unwrap_or(1);
    if let Some(backoff) = nested.parsed("backoff", "a duration", duration_ms) {
        retries.backoff_ms = backoff;
        retries.backoff_max_ms = retries.backoff_max_ms.max(backoff);
    }
    if let Some(jitter) = nested.parsed("jitter", "a share", share_percent) {
        retries.jitter_percent = jitter;
    }
    if nested.get("on").is_some() {
        retries.on.clear();
        for (at, word) in nested.texts("on") {
            match FailureClass::from_word(&word) {
                Some(class) if !retries.on.contains(&class) => retries.on.push(class),
                Some(_) => {}
                None => {
                    let hint = suggestion(&word, FailureClass::ALL.iter().map(|class| class.as_str()));
                    nested.complain(at, format!("retries.on: {word:?} is not a class of failure{hint}"));
                }
            }
        }
    }
    retries
}

/// Paths that stay in the workspace.
fn relative_paths(fields: &mut Fields<'_>, key: &str) -> Vec<String> {
    let mut paths = Vec::new();
    for (at, path) in fields.texts(key) {
        let inside = std::path::Path::new(&path)
            .components()
            .all(|part| matches!(part, std::path::Component::Normal(_) | std::path::Component::CurDir));
        if path.is_empty() || !inside {
            fields.complain(at, format!("{key}: {path:?} must be a path inside the workspace"));
        } else {
            paths.push(path);
        }
    }
    if key == "result" && paths.len() > 1 {
        fields.complain(fields.place(key), "result must be one file");
    }
    paths
}

/// How the checkout of a task is made is the host's choice; what can be asked for is only whether there is one.
fn check_workspace(fields: &mut Fields<'_>, has_repo: bool) {
    let words = [("auto", true), ("none", false)];
    if fields.word("workspace", &words) == Some(false) && has_repo {
        fields.complain(fields.place("workspace"), "workspace is none, but a repo is given");
    }
}
