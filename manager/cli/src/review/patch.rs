//! `patch`: recorded work as files that `git am` takes. A file is there whole or not at all, and none that is there is
//! written over unasked.

use std::fs::File;
use std::io::Write;
use std::path::{Component, Path, PathBuf};

use protocol::api::{Item, Query};
use protocol::compare::CompareForm;
use protocol::error::ErrorCode;
use protocol::task::{TaskState, TaskView};
use schemars::JsonSchema;
use serde::Serialize;

use super::super::args::review::Patch;
use super::super::client::Client;
use super::super::context::Context;
use super::super::error::{Failure, exit};
use super::super::output::pipe::{Stdout, say};
use super::super::output::render::{Listed, Listing, list};
use super::super::output::sanitise::safe_line;
use super::super::run::list::whole;
use super::diff::ask;
use manager_plan::config::format::OutputFormat;
use manager_plan::runfile::slug::slug;

pub fn run(context: &Context, args: &Patch) -> Result<u8, Failure> {
    let mut client = context.client()?;
    let folder = args.out.clone().unwrap_or_else(|| PathBuf::from("."));
    let mut writer = Writer { force: args.force, open: None, rows: Vec::new(), has_returns: false };
    match writer.task(&mut client, &args.target, args.attempt, &folder) {
        Err(failure) if failure.exit_code() == exit::MISSING && args.attempt.is_none() => {
            // No task is called so: a run may be.
            let (run, tasks) = whole(&mut client, &args.target).map_err(|other| {
                if other.exit_code() == exit::MISSING && !args.target.contains('/') {
                    let message = format!("no task of the latest run and no run {:?}", args.target);
                    Failure::new(ErrorCode::NotFound, message).hint("phalanx tasks; phalanx runs")
                } else {
                    failure
                }
            })?;
            for task in tasks.iter().filter(|task| is_work(task, args.all)) {
                let name = slug(task.spec.name.as_str(), 40);
                let place = folder.join(format!("{name}-{}", task.id.tail()));
                writer.task(&mut client, &task.id.to_string(), None, &place)?;
            }
            if writer.rows.is_empty() {
                let which = if args.all {
                    "no task has recorded work"
                } else {
                    "no work was accepted (--all: also other)"
                };
                say(&safe_line(&format!("run {}: {which}", run.spec.name)));
            }
        }
        other => other?,
    }
    let (rows, has_returns) = (writer.rows, writer.has_returns);
    let mut out = Stdout::default();
    match &context.format {
        OutputFormat::Table => rows.iter().try_for_each(|row| out.line(&safe_line(&row.name())))?,
        format => list(&mut out, format, &Listing { items: &rows, as_of: None, note: None, empty: "" })?,
    }
    out.done()?;
    if let Some(row) = rows.first().filter(|_| !context.quiet && !context.format.is_json()) {
        let keep = if has_returns { " --keep-cr" } else { "" };
        let at = row.path.parent().unwrap_or(Path::new("."));
        say(&safe_line(&format!("apply with: git am{keep} {}/*.patch", at.display())));
    }
    Ok(exit::OK)
}

/// Work that was taken; with `all`, whatever was recorded.
fn is_work(task: &TaskView, all: bool) -> bool {
    let taken = matches!(task.state, TaskState::Accepted | TaskState::Merged);
    let collected = task.attempts.last().and_then(|attempt| attempt.collected.as_ref());
    (taken || all) && collected.is_some_and(|collected| collected.commit.is_some())
}

pub struct PatchRow {
    task: String,
    path: PathBuf,
    bytes: u64,
}

#[derive(Serialize, JsonSchema)]
pub struct PatchDocument<'a> {
    name: String,
    task: &'a str,
    path: String,
    bytes: u64,
}

impl Listed for PatchRow {
    const KIND: &'static str = "PatchList";
    const HEADER: &'static [&'static str] = &["FILE", "TASK", "BYTES"];
    const WIDE: &'static [&'static str] = &[];

    type Document<'a>
        = PatchDocument<'a>
    where
        Self: 'a;

    fn document(&self) -> PatchDocument<'_> {
        PatchDocument { name: self.name(), task: &self.task, path: self.name(), bytes: self.bytes }
    }

    fn name(&self) -> String {
        self.path.display().to_string()
    }

    fn cells(&self, _wide: bool) -> Vec<String> {
        vec![self.name(), self.task.clone(), self.bytes.to_string()]
    }
}

/// A file on its way, under a name of its own until it is whole.
struct Open {
    name: String,
    partial: PathBuf,
    path: PathBuf,
    file: File,
    bytes: u64,
}

impl Drop for Open {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.partial);
    }
}

struct Writer {
    force: bool,
    open: Option<Open>,
    rows: Vec<PatchRow>,
    /// Some line ends in CR LF, which `git am` drops unless it is told not to.
    has_returns: bool,
}

impl Writer {
    fn task(
        &mut self,
        client: &mut Client,
        target: &str,
        attempt: Option<u32>,
        folder: &Path,
    ) -> Result<(), Failure> {
        let request = Query::Compare { target: target.to_owned(), attempt, form: CompareForm::Mail };
        let first = self.rows.len();
        let about = ask(client, &request, |item| match item {
            Item::File { name, bytes } => self.take(folder, &name, &bytes),
            _ => Ok(()),
        });
        if about.is_err() {
            self.open = None;
        }
        let about = about?;
        self.close()?;
        let name = about.name;
        for row in self.rows.iter_mut().skip(first) {
            row.task.clone_from(&name);
        }
        if self.rows.len() == first {
            say(&safe_line(&format!("{name}: nothing was changed; no file was written")));
        }
        for note in &about.sides.notes {
            say(&safe_line(&format!("note: {name}: {note}")));
        }
        Ok(())
    }

    fn take(&mut self, folder: &Path, name: &str, bytes: &[u8]) -> Result<(), Failure> {
        if self.open.as_ref().is_none_or(|open| open.name != name) {
            self.close()?;
            self.open = Some(begin(folder, name, self.force)?);
        }
        self.has_returns |= bytes.windows(2).any(|pair| pair == b"\r\n");
        let Some(open) = &mut self.open else { return Ok(()) };
        open.file.write_all(bytes).map_err(|error| cannot(&open.path, &error))?;
        open.bytes = open.bytes.saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        Ok(())
    }

    fn close(&mut self) -> Result<(), Failure> {
        let Some(open) = self.open.take() else { return Ok(()) };
        let placed = if self.force {
            std::fs::rename(&open.partial, &open.path)
        } else {
            // A link refuses to write over what came there meanwhile; a rename would not.
            std::fs::hard_link(&open.partial, &open.path)
        };
        placed.map_err(|error| cannot(&open.path, &error))?;
        self.rows.push(PatchRow { task: String::new(), path: open.path.clone(), bytes: open.bytes });
        Ok(())
    }
}

fn begin(folder: &Path, name: &str, force: bool) -> Result<Open, Failure> {
    // The name is git's, made by a host from what an agent wrote.
    let mut parts = Path::new(name).components();
    let plain = matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None));
    if !plain || name.starts_with('.') {
        return Err(Failure::new(ErrorCode::Failed, format!("the host named a file {name:?}")));
    }
    let path = folder.join(name);
    if !force && path.symlink_metadata().is_ok() {
        return Err(cannot(&path, &std::io::ErrorKind::AlreadyExists.into()));
    }
    std::fs::create_dir_all(folder).map_err(|error| cannot(folder, &error))?;
    let partial = folder.join(format!(".{name}.{}.part", std::process::id()));
    let file = File::create(&partial).map_err(|error| cannot(&partial, &error))?;
    Ok(Open { name: name.to_owned(), partial, path, file, bytes: 0 })
}

fn cannot(path: &Path, error: &std::io::Error) -> Failure {
    match error.kind() {
        std::io::ErrorKind::AlreadyExists => {
            let message = format!("{} is there already and was not written over", path.display());
            Failure::new(ErrorCode::Conflict, message)
                .hint("add --force, or choose another folder with --out DIR")
        }
        std::io::ErrorKind::PermissionDenied => {
            let message = format!("{} may not be written", path.display());
            Failure::new(ErrorCode::Denied, message).hint("choose another folder with --out DIR")
        }
        _ => Failure::new(ErrorCode::Failed, format!("cannot write {}: {error}", path.display())),
    }
}
