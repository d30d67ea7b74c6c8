//! What a request may say. A refusal names the thing and the field; all problems of a submission are told at once.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path};

use protocol::agent::{AgentSpec, Blob, CheckoutKind, CommitMode, Environment, ResourceLimits};
use protocol::api::{Change, PROMPT_LIMIT};
use protocol::error::WireError;
use protocol::ids::{AgentId, Name};
use protocol::notify::{NoticeKind, Told};
use protocol::task::{Accept, FailureClass, RunSpec, SubmitTask, TaskSpec};

use super::invalid;
use crate::names;
use crate::run::Run;

pub(super) const GRACE_MS_MAX: u64 = 60 * 60 * 1_000;
const DAY_MS: u64 = 24 * 60 * 60 * 1_000;
/// A lease is renewed at thirds of its length; below this a restart of the bus would end agents.
const MOVE_AFTER_MS_MIN: u64 = 5 * 60 * 1_000;
const RETRIES_MAX: u32 = 1_000;
/// An argument of a program cannot be longer than 128 KiB on Linux.
const SCRIPT_BYTES_MAX: usize = 100_000;
/// Linux executes no program with a longer argument or variable: 128 KiB with the NUL at its end.
const WORD_BYTES_MAX: usize = 131_071;
/// Sealed, an environment is one record, and no record is larger than 1,000,000 bytes.
const ENVIRONMENT_BYTES_MAX: usize = 950_000;
/// What a name and its value take in it beside their own bytes, at most.
const PAIR_BYTES: usize = 10;
/// As many as settings have.
const TOLD_MOST: usize = 64;
const PROBLEMS_SHOWN: usize = 20;

/// Who is asked for by such a name is looked for among the ids first.
pub(super) fn is_shaped_like_an_id(name: &Name) -> bool {
    name.as_str().parse::<AgentId>().is_ok()
}

/// The fields of one thing, and what is wrong with them.
struct Fields<'a> {
    owner: &'a str,
    problems: &'a mut Vec<String>,
}

impl Fields<'_> {
    fn wrong(&mut self, field: &str, why: impl std::fmt::Display) {
        self.problems.push(format!("{}: {field}: {why}", self.owner));
    }

    fn name(&mut self, name: &Name) {
        if is_shaped_like_an_id(name) {
            self.wrong("name", "it has the shape of an id, and would be taken for one; choose another");
        }
    }

    fn program(&mut self, field: &str, program: &[String]) {
        match program.first() {
            None => self.wrong(field, "it is empty"),
            Some(first) if first.is_empty() => self.wrong(field, "the program has no name"),
            Some(_) => {}
        }
        if program.iter().any(|word| word.contains('\0')) {
            self.wrong(field, "an argument holds a NUL character");
        }
        if let Some(long) = program.iter().map(String::len).find(|bytes| *bytes > WORD_BYTES_MAX) {
            let most = format_args!("an argument of {long} bytes: Linux takes {WORD_BYTES_MAX}; use a file");
            self.wrong(field, most);
        }
    }

    fn environment(&mut self, environment: &Environment) {
        let words = environment.0.iter().map(|(name, value)| (name, name.len() + value.len() + 1));
        if let Some((name, long)) = words.clone().find(|(_, bytes)| *bytes > WORD_BYTES_MAX) {
            let most = format_args!("{name:?} has {long} bytes: Linux takes {WORD_BYTES_MAX}; use a file");
            self.wrong("environment", most);
        }
        let all: usize = words.map(|(_, bytes)| bytes + PAIR_BYTES).sum();
        if all > ENVIRONMENT_BYTES_MAX {
            let most = format_args!("{all} bytes in all: the limit is {ENVIRONMENT_BYTES_MAX}; use a file");
            self.wrong("environment", most);
        }
    }

    fn limits(&mut self, limits: &ResourceLimits) {
        let given = [
            ("limits.memory_bytes", limits.memory_bytes),
            ("limits.cpu_millis", limits.cpu_millis),
            ("limits.pids", limits.pids),
            ("limits.time_ms", limits.time_ms),
        ];
        for (field, limit) in given {
            if limit == Some(0) {
                self.wrong(field, "a limit of 0 lets nothing run; leave it out for no limit");
            }
        }
    }

    fn grace(&mut self, grace_ms: u64) {
        if grace_ms > GRACE_MS_MAX {
            self.wrong("grace_ms", format_args!("{grace_ms} is more than an hour"));
        }
    }

    /// Beneath the workspace, whatever the program makes of its folder.
    fn beneath(&mut self, field: &str, path: &str) {
        let parts: Vec<Component<'_>> = Path::new(path).components().collect();
        let inside = !parts.is_empty()
            && !path.contains('\0')
            && parts.iter().all(|part| match part {
                Component::Normal(_) | Component::CurDir => true,
                Component::Prefix(_) | Component::RootDir | Component::ParentDir => false,
            });
        if !inside {
            self.wrong(
                field,
                format_args!("{path:?} does not lie in the workspace: a relative path without .."),
            );
        }
    }

    fn files(&mut self, result: Option<&String>, outputs: &[String]) {
        if let Some(result) = result {
            self.beneath("result", result);
        }
        for output in outputs {
            self.beneath("outputs", output);
        }
    }

    fn blob(&mut self, field: &str, blob: Option<&Blob>) {
        let Some(blob) = blob else { return };
        if blob.sha256.len() != 64 || !blob.sha256.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
            self.wrong(field, "its digest is not 64 lower-case hex digits");
        }
        if blob.bytes > PROMPT_LIMIT {
            self.wrong(field, format_args!("{} bytes are more than the limit of {PROMPT_LIMIT}", blob.bytes));
        }
    }

    fn repository(&mut self, repo: &str, commit: Option<&String>) {
        if !repo.starts_with('/') {
            self.wrong("repo", format_args!("{repo:?} is not an absolute path"));
        }
        let is_commit =
            |text: &String| matches!(text.len(), 40 | 64) && text.bytes().all(|b| b.is_ascii_hexdigit());
        if !commit.is_some_and(is_commit) {
            self.wrong("base", "it is not resolved to a commit");
        }
    }

    fn commit_mode(&mut self, mode: CommitMode) {
        match mode {
            CommitMode::Agent | CommitMode::Auto => {}
            CommitMode::Unknown => self.wrong("commit", "this build does not know the word"),
        }
    }
}

fn refuse(mut problems: Vec<String>) -> Result<(), WireError> {
    if problems.is_empty() {
        return Ok(());
    }
    let more = problems.len().saturating_sub(PROBLEMS_SHOWN);
    problems.truncate(PROBLEMS_SHOWN);
    if more > 0 {
        problems.push(format!("and {more} more"));
    }
    Err(invalid(problems.join("; ")))
}

/// A change of agents that are there; what depends on the agent is looked at for each.
pub(super) fn change(change: &Change, targets: usize) -> Result<(), WireError> {
    match change {
        Change::Freeze | Change::Thaw | Change::Start | Change::Limit(_) => Ok(()),
        Change::Rename { .. } if targets != 1 => Err(invalid("a name is for one agent")),
        Change::Rename { .. } => Ok(()),
        Change::Label { set, remove } => {
            let both: Vec<&str> =
                remove.iter().filter(|key| set.contains_key(*key)).map(String::as_str).collect();
            if !both.is_empty() {
                return Err(invalid(format!("set and taken away at once: {}", both.join(", "))));
            }
            match set.keys().chain(remove).find(|key| key.trim().is_empty()) {
                Some(_) => Err(invalid("a label has a key")),
                None => Ok(()),
            }
        }
    }
}

/// A `create`.
pub(super) fn agent(spec: &AgentSpec) -> Result<(), WireError> {
    let mut problems = Vec::new();
    let owner = format!("agent {:?}", spec.name);
    let mut fields = Fields { owner: &owner, problems: &mut problems };
    fields.name(&spec.name);
    fields.program("program", &spec.program);
    fields.limits(&spec.limits);
    fields.grace(spec.grace_ms);
    fields.files(spec.result.as_ref(), &spec.outputs);
    fields.blob("prompt", spec.prompt.as_ref());
    fields.blob("feedback", spec.feedback.as_ref());
    fields.commit_mode(spec.commit);
    if let Some(checkout) = &spec.checkout {
        fields.repository(&checkout.repo, Some(&checkout.commit));
        match checkout.kind {
            CheckoutKind::Auto | CheckoutKind::Overlay | CheckoutKind::Clone | CheckoutKind::Worktree => {}
            CheckoutKind::Unknown => fields.wrong("workspace", "this build does not know the word"),
        }
    }
    refuse(problems)
}

/// Values are sealed after everything else was found right; what cannot be is refused before anything is made.
pub(super) fn environment(name: &Name, environment: &Environment) -> Result<(), WireError> {
    let mut problems = Vec::new();
    let owner = format!("agent {name:?}");
    Fields { owner: &owner, problems: &mut problems }.environment(environment);
    refuse(problems)
}

/// The environments of tasks, in their order.
pub(super) fn environments(tasks: &[SubmitTask], environments: &[Environment]) -> Result<(), WireError> {
    let mut problems = Vec::new();
    for (submitted, environment) in tasks.iter().zip(environments) {
        let owner = format!("task {:?}", submitted.spec.name);
        Fields { owner: &owner, problems: &mut problems }.environment(environment);
    }
    refuse(problems)
}

/// A submission: the run, each task, and the graph of all.
pub(super) fn run(run: &RunSpec, tasks: &[SubmitTask], tasks_max: usize) -> Result<(), WireError> {
    let mut problems = Vec::new();
    let owner = format!("run {:?}", run.name);
    let mut fields = Fields { owner: &owner, problems: &mut problems };
    fields.name(&run.name);
    if run.max_parallel == Some(0) {
        fields.wrong("max_parallel", "with 0 nothing would ever start");
    }
    for (label, most) in &run.caps {
        if let Err(why) = crate::run::caps::check(label, *most) {
            fields.wrong("caps", why);
        }
    }
    told(&mut fields, &run.notify);
    if tasks.is_empty() && !run.open {
        fields.wrong("tasks", "there are none");
    }
    too_many(&mut fields, tasks.len(), tasks_max);
    each(tasks, &mut problems);
    graph(tasks.iter().map(|submitted| &submitted.spec), &BTreeSet::new(), &mut problems);
    refuse(problems)
}

/// Whether there are such hooks is the shell's to know.
fn told(fields: &mut Fields<'_>, told: &[Told]) {
    if told.len() > TOLD_MOST {
        fields.wrong("notify", format_args!("more than {TOLD_MOST} hooks"));
    }
    for (place, one) in told.iter().enumerate() {
        if told.iter().take(place).any(|before| before.to == one.to) {
            fields.wrong("notify", format_args!("{:?} is named twice", one.to));
        }
        if one.on.contains(&NoticeKind::Unknown) {
            fields.wrong("notify", format_args!("{:?}: this build does not know one of the words", one.to));
        }
    }
}

/// Tasks that are added to a run. They may wait for those that it has; those have been checked.
pub(super) fn more(run: &Run, tasks: &[SubmitTask], tasks_max: usize) -> Result<(), WireError> {
    let mut problems = Vec::new();
    let owner = format!("run {:?}", run.record.spec.name);
    let mut fields = Fields { owner: &owner, problems: &mut problems };
    too_many(&mut fields, run.record.tasks.len().saturating_add(tasks.len()), tasks_max);
    each(tasks, &mut problems);
    let there: BTreeSet<&Name> = run.names.keys().collect();
    graph(tasks.iter().map(|submitted| &submitted.spec), &there, &mut problems);
    refuse(problems)
}

fn too_many(fields: &mut Fields<'_>, count: usize, tasks_max: usize) {
    if count > tasks_max {
        fields.wrong("tasks", format_args!("{count} are more than the limit of {tasks_max}"));
    }
}

fn each(tasks: &[SubmitTask], problems: &mut Vec<String>) {
    for submitted in tasks {
        let owner = format!("task {:?}", submitted.spec.name);
        task(&mut Fields { owner: &owner, problems: &mut *problems }, &submitted.spec);
    }
}

fn task(fields: &mut Fields<'_>, spec: &TaskSpec) {
    fields.name(&spec.name);
    fields.program("program", &spec.program);
    fields.limits(&spec.limits);
    fields.grace(spec.grace_ms);
    fields.files(spec.result.as_ref(), &spec.outputs);
    fields.blob("prompt", spec.prompt.as_ref());
    fields.commit_mode(spec.commit);
    match &spec.repo {
        Some(repo) => fields.repository(repo, spec.base_commit.as_ref()),
        None if spec.base_commit.is_some() => fields.wrong("base", "there is no repo"),
        None => {}
    }
    for program in &spec.setup {
        fields.program("setup", program);
    }
    if names::script(&spec.setup).len() > SCRIPT_BYTES_MAX {
        fields.wrong("setup", format_args!("the commands are longer than {SCRIPT_BYTES_MAX} bytes in all"));
    }
    if let Some(prepare) = &spec.prepare {
        prepare.programs.iter().for_each(|program| fields.program("prepare", program));
        if prepare.programs.is_empty() || spec.repo.is_none() {
            fields.wrong("prepare", "it needs commands, and a repo in whose base they are run");
        }
        if prepare.timeout_ms == 0 {
            fields.wrong("prepare_timeout", "with 0 nothing would ever be prepared");
        }
    }
    for path in &spec.copy {
        fields.beneath("copy", path);
    }
    if !spec.copy.is_empty() && spec.repo.is_none() {
        fields.wrong("copy", "there is no repo to copy from");
    }
    match &spec.base_from {
        Some(_) if spec.repo.is_none() => fields.wrong("base_from", "there is no repo"),
        Some(name) if !spec.depends_on.contains(name) => {
            fields.wrong("base_from", format_args!("{name:?} is not one of depends_on"));
        }
        Some(_) | None => {}
    }
    for program in &spec.verify {
        fields.program("verify", program);
        if program.first().is_some_and(|first| first.starts_with('-')) {
            fields.wrong("verify", "a program that begins with '-' reads as an option");
        }
    }
    if names::script(&spec.verify).len() > SCRIPT_BYTES_MAX {
        fields.wrong("verify", format_args!("the commands are longer than {SCRIPT_BYTES_MAX} bytes in all"));
    }
    match spec.accept {
        Accept::Verify if spec.verify.is_empty() => {
            fields.wrong("accept", "`verify` needs commands in the field verify");
        }
        Accept::Verify | Accept::Review if !spec.verify.is_empty() && spec.repo.is_none() => {
            fields.wrong("verify", "it runs in a fresh checkout, so the task needs a repo");
        }
        Accept::Exit if !spec.verify.is_empty() => {
            fields
                .wrong("accept", format_args!("with `{}` the verify commands would never run", spec.accept));
        }
        Accept::Verify | Accept::Exit | Accept::Review => {}
        Accept::Unknown => fields.wrong("accept", "this build does not know the word"),
    }
    if spec.verify_timeout_ms == Some(0) {
        fields.wrong("verify_timeout_ms", "a limit of 0 lets nothing run; leave it out for no limit");
    }
    if spec.move_after_ms.is_some_and(|ms| ms < MOVE_AFTER_MS_MIN) {
        fields.wrong("move_after", "it is shorter than five minutes, which a short outage would reach");
    }
    retries(fields, spec);
}

fn retries(fields: &mut Fields<'_>, spec: &TaskSpec) {
    let retries = &spec.retries;
    if retries.max > RETRIES_MAX {
        fields.wrong("retries.max", format_args!("{} is more than {RETRIES_MAX}", retries.max));
    }
    if retries.backoff_ms > DAY_MS || retries.backoff_max_ms > DAY_MS {
        fields.wrong("retries.backoff", "it is longer than a day");
    }
    if retries.jitter_percent > 100 {
        fields.wrong("retries.jitter", format_args!("{} % is more than all", retries.jitter_percent));
    }
    if retries.on.contains(&FailureClass::Unknown) {
        fields.wrong("retries.on", "this build does not know one of the words");
    }
}

/// Names are unique, dependencies known (or `there`) and without a circle.
fn graph<'a>(specs: impl Iterator<Item = &'a TaskSpec>, there: &BTreeSet<&Name>, problems: &mut Vec<String>) {
    let specs: Vec<&TaskSpec> = specs.collect();
    let mut needs: BTreeMap<&Name, BTreeSet<&Name>> = BTreeMap::new();
    for spec in &specs {
        if needs.insert(&spec.name, spec.depends_on.iter().chain(&spec.after).collect()).is_some()
            || there.contains(&spec.name)
        {
            problems.push(format!("task {:?}: name: another task of this run has it", spec.name));
        }
    }
    let known: BTreeSet<&Name> = needs.keys().copied().collect();
    for spec in specs {
        for (key, names) in [("depends_on", &spec.depends_on), ("after", &spec.after)] {
            for missing in names.iter().filter(|name| !known.contains(name) && !there.contains(name)) {
                problems.push(format!("task {:?}: {key}: there is no task {missing:?}", spec.name));
            }
        }
    }
    for on in needs.values_mut() {
        on.retain(|name| known.contains(name));
    }
    if let Some(circle) = circle(needs) {
        let names: Vec<String> = circle.iter().map(|name| format!("{name:?}")).collect();
        let first = names.first().cloned().unwrap_or_default();
        problems.push(format!("task {first}: depends_on: a circle: {} → {first}", names.join(" → ")));
    }
}

/// Takes away what depends on nothing until only circles (and what depends on them) are left, then walks one.
fn circle<'a>(mut needs: BTreeMap<&'a Name, BTreeSet<&'a Name>>) -> Option<Vec<&'a Name>> {
    let mut needed_by: BTreeMap<&Name, Vec<&Name>> = BTreeMap::new();
    for (name, on) in &needs {
        for other in on {
            needed_by.entry(other).or_default().push(name);
        }
    }
    let mut free: Vec<&Name> = needs.iter().filter(|(_, on)| on.is_empty()).map(|(name, _)| *name).collect();
    while let Some(name) = free.pop() {
        needs.remove(name);
        for dependent in needed_by.remove(name).unwrap_or_default() {
            if let Some(on) = needs.get_mut(dependent) {
                on.remove(name);
                if on.is_empty() {
                    free.push(dependent);
                }
            }
        }
    }
    let mut walk: Vec<&Name> = Vec::new();
    let mut seen: BTreeMap<&Name, usize> = BTreeMap::new();
    let mut at = *needs.keys().next()?;
    loop {
        if let Some(start) = seen.insert(at, walk.len()) {
            return Some(walk.split_off(start));
        }
        walk.push(at);
        at = needs.get(at)?.first().copied()?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(check: impl Fn(&mut Fields<'_>)) -> Vec<String> {
        let mut problems = Vec::new();
        check(&mut Fields { owner: "task \"a\"", problems: &mut problems });
        problems
    }

    #[test]
    fn what_linux_would_not_execute_is_refused_before_anything_is_made() {
        let program = |bytes| problems(|fields| fields.program("program", &["sh".into(), "x".repeat(bytes)]));
        assert!(program(131_071).is_empty());
        assert!(program(131_072)[0].contains("131072 bytes"));
        let variables = |count: usize, bytes: usize| {
            let pairs = (0..count).map(|n| (format!("V{n:03}"), "x".repeat(bytes)));
            problems(|fields| fields.environment(&Environment(pairs.clone().collect())))
        };
        assert!(variables(1, 131_066).is_empty());
        assert!(variables(1, 131_067)[0].contains("\"V000\" has 131072 bytes"));
        assert!(variables(9, 100_000).is_empty());
        assert!(variables(10, 100_000)[0].contains("the limit is 950000"));
    }
}
