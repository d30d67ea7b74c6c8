//! Words of the commands about runs and tasks.

use std::path::PathBuf;

use clap::Args;
use protocol::notify::Told;

use manager_plan::runfile::format::Format;

/// Submit a file of tasks and wait for them
///
/// FILE is a YAML document with tasks, JSON with one task object per line, or one shell command per line; - is standard
/// input. With --map, rows: or --set, texts are templates: {{ row.x }}, {{ index }} and {{ KEY }}.
#[derive(Args, Debug)]
#[command(before_help = "Examples:
  phalanx run tasks.yaml --max-parallel 50
  phalanx run tasks.yaml --detach --notify pager --notify chat:failed,run-end
  printf 'make lint\\nmake test\\n' | phalanx run - --name checks
  tail -f queue.jsonl | phalanx run fix.yaml --map - --follow")]
pub struct Run {
    #[arg(value_name = "FILE", required_unless_present = "resume")]
    pub file: Option<PathBuf>,
    /// Repeat every task for each row of a file (JSON or text, one per line), of - or of 'cmd:PROGRAM'
    #[arg(long, value_name = "ROWS")]
    pub map: Option<String>,
    /// Set a template variable
    #[arg(long, value_name = "K=V", value_parser = variable)]
    pub set: Vec<(String, String)>,
    /// Format of the file [default: detected]
    #[arg(long, value_enum)]
    pub format: Option<Format>,
    /// Name of the run [default: the file's]
    #[arg(long)]
    pub name: Option<String>,
    /// Tasks that may run at once
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_parallel: Option<u32>,
    /// Notify this hook of the run: of the events in its settings, or of these (failed, blocked, review, run-end)
    #[arg(long, value_name = "NAME[:ON,..]", value_parser = manager_plan::notify::asked::of_option, conflicts_with = "resume")]
    pub notify: Vec<Told>,
    /// Wait for the end (the default) and exit with 0 if all tasks were accepted, 7 if some, 8 if none
    #[arg(long, conflicts_with = "detach")]
    pub wait: bool,
    /// Return once the run is accepted
    #[arg(long)]
    pub detach: bool,
    /// Start each task or row as it arrives on standard input; the run ends after the last
    #[arg(long, conflicts_with = "dry_run")]
    pub follow: bool,
    /// Resume an open run: add the tasks of FILE, if given, close the run, and wait
    #[arg(long, value_name = "RUN", conflicts_with_all = ["dry_run", "name"])]
    pub resume: Option<String>,
    /// Check the file and show what would be submitted
    #[arg(long)]
    pub dry_run: bool,
    /// Idempotency key: repeating a command with the same key returns the same run
    #[arg(long, value_name = "K")]
    pub key: Option<String>,
}

impl Run {
    /// Standard input where none is named.
    #[must_use]
    pub fn file(&self) -> &std::path::Path {
        self.file.as_deref().unwrap_or(std::path::Path::new("-"))
    }
}

#[derive(Args, Debug)]
pub struct Tasks {
    /// A run's name or id, or RUN/TASK for one task [default: the latest run]
    #[arg(value_name = "RUN[/TASK]")]
    pub run: Option<String>,
    /// Show only tasks in this state
    #[arg(long = "state", value_parser = state)]
    pub states: Vec<protocol::task::TaskState>,
}

#[derive(Args, Debug)]
pub struct Cancel {
    /// A run's name or id, RUN/TASK, or a task of the latest run
    #[arg(value_name = "RUN|TASK")]
    pub run: String,
    /// Names or ids of tasks of the run [default: all]
    #[arg(value_name = "TASK")]
    pub tasks: Vec<String>,
    /// Time between SIGTERM and SIGKILL [default: the task's own]
    #[arg(long, value_name = "TIME")]
    pub grace: Option<String>,
    /// Wait until everything cancelled has ended
    #[arg(long)]
    pub wait: bool,
    /// With --wait: give up after this time and exit with 124
    #[arg(long, value_name = "TIME", default_value = "24h", requires = "wait")]
    pub timeout: String,
    /// Idempotency key: repeating a command with the same key returns the first answer
    #[arg(long, value_name = "K")]
    pub key: Option<String>,
}

#[derive(Args, Debug)]
pub struct Retry {
    /// A run's name or id [default: the latest]
    pub run: Option<String>,
    /// Names or ids of tasks
    #[arg(value_name = "TASK")]
    pub tasks: Vec<String>,
    /// Retry all tasks that failed
    #[arg(long, conflicts_with = "tasks")]
    pub failed: bool,
    /// Idempotency key: repeating a command with the same key returns the first answer
    #[arg(long, value_name = "K")]
    pub key: Option<String>,
}

#[derive(Args, Debug)]
pub struct Scale {
    /// A run's name or id
    pub run: String,
    /// Tasks that may run at once; none removes the limit
    #[arg(value_name = "N|none", value_parser = at_once, required_unless_present = "caps")]
    pub max_parallel: Option<AtOnce>,
    /// Cap on tasks with this label (KEY=VALUE, or KEY for any value) that may run at once; none removes it
    #[arg(long = "cap", value_name = "LABEL=N|none", value_parser = cap)]
    pub caps: Vec<(String, AtOnce)>,
    /// Idempotency key: repeating a command with the same key returns the first answer
    #[arg(long, value_name = "K")]
    pub key: Option<String>,
}

#[derive(Debug, Clone, Copy)]
pub struct AtOnce(pub Option<u32>);

fn at_once(text: &str) -> Result<AtOnce, String> {
    if text == "none" {
        return Ok(AtOnce(None));
    }
    match text.parse::<u32>() {
        Ok(0) | Err(_) => Err("it is a number from 1, or none".to_owned()),
        Ok(count) => Ok(AtOnce(Some(count))),
    }
}

/// As in a file and in the settings. The label may hold a `=` itself, so the last one parts it from its number.
fn cap(text: &str) -> Result<(String, AtOnce), String> {
    let (label, most) =
        text.rsplit_once([':', '=']).ok_or("write it as LABEL=N, such as gpu=2 or team=infra=3")?;
    Ok((label.trim().to_owned(), at_once(most.trim())?))
}

#[derive(Args, Debug)]
pub struct Why {
    /// An agent, run or task [default: the latest run]
    pub target: Option<String>,
}

#[derive(Args, Debug)]
pub struct Report {
    /// A run's name or id [default: the latest]
    pub run: Option<String>,
    /// Directory to write to [default: reports/RUN in the state directory]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

fn variable(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("write it as key=value")?;
    let mut chars = key.chars();
    let word = chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_');
    if !word {
        return Err("the key must be letters, digits and '_', so that a template can name it".to_owned());
    }
    Ok((key.to_owned(), value.to_owned()))
}

fn state(text: &str) -> Result<protocol::task::TaskState, String> {
    let all = protocol::task::TaskState::ALL;
    protocol::task::TaskState::from_word(&text.to_uppercase()).ok_or_else(|| {
        format!("it is one of {}", all.iter().map(|state| state.as_str()).collect::<Vec<_>>().join(", "))
    })
}
