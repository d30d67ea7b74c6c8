//! The file, rows and variables of `run` → a checked plan; and what `--dry-run` shows of it.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use protocol::error::ErrorCode;
use protocol::ids::Name;
use protocol::notify::HooksView;
use protocol::task::TaskSpec;
use schemars::JsonSchema;
use serde::Serialize;

use super::super::args::run::Run;
use super::super::context::Context;
use super::super::error::Failure;
use super::super::output::render::Listed;
use super::super::system::notify::in_force;
use manager_plan::config::{Settings, key};
use manager_plan::notify::asked::over;
use manager_plan::runfile::format::node::Node;
use manager_plan::runfile::map::{MapError, parse_rows, read_rows};
use manager_plan::runfile::problem::{Collector, suggestion};
use manager_plan::runfile::task::PlannedTask;
use manager_plan::runfile::units::human_size;
use manager_plan::runfile::{Before, Options, Plan, Source, parse};
use protocol::chain;

/// A file larger than this is no task file.
const FILE_LIMIT: u64 = 1 << 30;

/// The plan, with what the command line says over what the file says.
pub fn read(args: &Run, settings: &Settings) -> Result<Plan, Failure> {
    if args.file() == Path::new("-") && args.map.as_deref() == Some("-") {
        return Err(Failure::usage(
            "both the tasks and the rows come from standard input; put one of them into a file",
        ));
    }
    let source = read_source(args.file())?;
    let rows =
        args.map.as_deref().map(|rows| read_rows(rows, &source.folder)).transpose().map_err(rows_failed)?;
    plan_of(args, settings, &source, rows, None)
}

/// A piece of a stream: its lines are rows of the file's tasks, or tasks themselves.
pub fn read_piece(args: &Run, settings: &Settings, lines: &str, before: Before) -> Result<Plan, Failure> {
    let name = "standard input";
    if args.map.is_some() {
        let source = read_source(args.file())?;
        let rows = parse_rows(name, lines).map_err(|problems| rows_failed(MapError::Rows(problems)))?;
        return plan_of(args, settings, &source, Some(rows), Some(before));
    }
    let folder = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
    let source = Source { name: name.to_owned(), folder, bytes: lines.as_bytes().to_vec() };
    plan_of(args, settings, &source, None, Some(before))
}

fn plan_of(
    args: &Run,
    settings: &Settings,
    source: &Source,
    rows: Option<Vec<Node>>,
    before: Option<Before>,
) -> Result<Plan, Failure> {
    let name = args.name.as_deref().map(str::parse::<Name>).transpose();
    let name = name.map_err(|error| Failure::usage(format!("--name: {error}")))?;
    let mut set = BTreeMap::new();
    for (key, value) in &args.set {
        if set.insert(key.clone(), value.clone()).is_some() {
            return Err(Failure::usage(format!("--set {key} is given twice")));
        }
    }
    for (place, told) in args.notify.iter().enumerate() {
        if args.notify.iter().take(place).any(|before| before.to == told.to) {
            return Err(Failure::usage(format!("--notify {} is given twice", told.to)));
        }
    }
    let options = Options {
        format: args.format,
        rows,
        set,
        profiles: settings.profiles(),
        before,
        fields: fields_of(settings),
    };
    let mut plan = parse(source, &options).map_err(|problems| {
        Failure::new(ErrorCode::Invalid, format!("the task file is wrong; nothing was sent\n{problems}"))
    })?;
    let usual = settings.whole(&key::MAX_PARALLEL).and_then(|most| u32::try_from(most).ok());
    plan.max_parallel = args.max_parallel.or(plan.max_parallel).or(usual);
    plan.notify = over(plan.notify, &args.notify);
    plan.name = name.or(plan.name).or_else(|| name_of(args.file()));
    Ok(plan)
}

/// Whether the hooks are there that it asks for, before anything of it is sent. The manager refuses it too.
pub(super) fn check_hooks(context: &Context, args: &Run, plan: &Plan) -> Result<(), Failure> {
    if plan.notify.is_empty() {
        return Ok(());
    }
    let HooksView { hooks, wrong, .. } = in_force(context)?;
    if hooks.is_empty() && !wrong.is_empty() {
        let message = format!("the run asks for hooks and the settings are wrong; nothing was sent\n{wrong}");
        return Err(Failure::new(ErrorCode::Invalid, message).hint("phalanx config edit"));
    }
    let names: Vec<&str> = hooks.iter().filter_map(|hook| Some(hook.name.as_ref()?.as_str())).collect();
    let (mut problems, mut lines) = (Collector::default(), Vec::new());
    for asked in plan.notify.iter().filter(|asked| !names.contains(&asked.told.to.as_str())) {
        let to = asked.told.to.as_str();
        let known = match names.is_empty() {
            true => "; no hook of the settings has a name".to_owned(),
            false => suggestion(to, names.iter().copied()),
        };
        let message = format!("there is no hook {to:?}{known}");
        match asked.at {
            Some(at) => problems.add(at, format!("notify: {message}")),
            None => lines.push(format!("--notify: {message}")),
        }
    }
    let file = if args.file() == Path::new("-") {
        "standard input".to_owned()
    } else {
        args.file().display().to_string()
    };
    if let Err(problems) = problems.finish(&file, ()) {
        lines.insert(0, problems.to_string());
    }
    if lines.is_empty() {
        return Ok(());
    }
    let message =
        format!("the run asks for hooks that are not there; nothing was sent\n{}", lines.join("\n"));
    Err(Failure::new(ErrorCode::Invalid, message).hint("phalanx notify ls"))
}

/// Fields that settings give to tasks.
fn fields_of(settings: &Settings) -> Vec<(&'static str, String)> {
    [&key::GRACE, &key::MEMORY, &key::CPU, &key::PIDS, &key::TIMEOUT]
        .into_iter()
        .filter_map(|key| Some((key.parts().1, settings.text(key)?.to_owned())))
        .collect()
}

fn rows_failed(error: MapError) -> Failure {
    let code = match &error {
        MapError::Read { source, .. } if source.kind() == std::io::ErrorKind::NotFound => ErrorCode::NotFound,
        MapError::Read { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied => {
            ErrorCode::Denied
        }
        MapError::Read { .. } | MapError::TooLarge(_) | MapError::Encoding(_) | MapError::Rows(_) => {
            ErrorCode::Invalid
        }
        MapError::Start { .. } | MapError::Command { .. } => ErrorCode::Failed,
    };
    Failure::new(code, format!("--map: {}; nothing was sent", chain(&error)))
}

/// The file's own name, or `run` for standard input.
fn name_of(file: &Path) -> Option<Name> {
    let stem = if file == Path::new("-") { "run" } else { file.file_stem()?.to_str()? };
    stem.parse().or_else(|_| "run".parse()).ok()
}

fn read_source(file: &Path) -> Result<Source, Failure> {
    let failed = |error: std::io::Error| {
        let code = match error.kind() {
            std::io::ErrorKind::NotFound => ErrorCode::NotFound,
            std::io::ErrorKind::PermissionDenied => ErrorCode::Denied,
            _ => ErrorCode::Invalid,
        };
        Failure::new(code, format!("cannot read {}: {error}", file.display()))
    };
    let here = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
    let (name, folder, reader): (String, PathBuf, Box<dyn Read>) = if file == Path::new("-") {
        ("standard input".to_owned(), here, Box::new(std::io::stdin().lock()))
    } else {
        let opened = std::fs::File::open(file).map_err(failed)?;
        let folder = file.parent().map_or_else(|| here.clone(), |parent| here.join(parent));
        (file.display().to_string(), folder, Box::new(opened))
    };
    let mut bytes = Vec::new();
    reader.take(FILE_LIMIT + 1).read_to_end(&mut bytes).map_err(failed)?;
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > FILE_LIMIT {
        return Err(Failure::usage(format!(
            "{name} is larger than {}; that is no task file",
            human_size(FILE_LIMIT)
        )));
    }
    Ok(Source { name, folder, bytes })
}

/// A task as `--dry-run` shows it. Values of the environment are left out.
pub struct PlannedRow<'a>(pub &'a PlannedTask);

/// A task as it would be submitted.
#[derive(Serialize, JsonSchema)]
pub struct PlannedDocument {
    #[serde(flatten)]
    spec: TaskSpec,
    /// What `repo` starts from, as it was written.
    base: Option<String>,
    /// Names of the variables that it sets.
    environment: Vec<String>,
}

impl Listed for PlannedRow<'_> {
    const KIND: &'static str = "PlannedTaskList";
    const HEADER: &'static [&'static str] = &["TASK", "ACCEPT", "AFTER", "REPO", "PROGRAM"];
    const WIDE: &'static [&'static str] = &["PROMPT", "RETRIES", "PRIORITY"];

    type Document<'a>
        = PlannedDocument
    where
        Self: 'a;

    fn document(&self) -> PlannedDocument {
        let repo = self.0.repo.as_ref();
        let path = repo.map(|repo| repo.path.display().to_string());
        PlannedDocument {
            spec: TaskSpec { repo: path, ..self.0.spec.clone() },
            base: repo.and_then(|repo| repo.base.clone()),
            environment: self.0.environment.0.keys().cloned().collect(),
        }
    }

    fn name(&self) -> String {
        self.0.spec.name.to_string()
    }

    fn cells(&self, wide: bool) -> Vec<String> {
        let spec = &self.0.spec;
        let repo = self.0.repo.as_ref();
        let base =
            repo.and_then(|repo| repo.base.as_ref()).map(|base| format!(" at {base}")).unwrap_or_default();
        let mut cells = vec![
            spec.name.to_string(),
            spec.accept.to_string(),
            spec.depends_on.iter().chain(&spec.after).map(|name| name.as_str()).collect::<Vec<_>>().join(","),
            repo.map(|repo| format!("{}{base}", repo.path.display())).unwrap_or_default(),
            spec.profile.clone().unwrap_or_else(|| shown(&spec.program)),
        ];
        if wide {
            cells.extend([
                spec.prompt.as_ref().map(|prompt| human_size(prompt.bytes)).unwrap_or_default(),
                spec.retries.max.to_string(),
                spec.priority.to_string(),
            ]);
        }
        cells
    }
}

/// A program on one line, cut where it is long.
fn shown(program: &[String]) -> String {
    let words = match program {
        [sh, c, command] if sh == "sh" && c == "-c" => command.clone(),
        words => words.join(" "),
    };
    let mut short: String = words.chars().take(60).collect();
    if short.len() < words.len() {
        short.push('…');
    }
    short
}
