//! `accept` and `reject`: what a person says of finished work. The comment of a rejection goes whole to the next attempt;
//! its begin is kept with the task.

use std::io::{BufRead, Read};
use std::time::{Duration, Instant};

use protocol::agent::Blob;
use protocol::api::{COMMENT_LIMIT, DecideTasks, Mutation, Outcome, PROMPT_LIMIT, Query, Reply};
use protocol::error::ErrorCode;
use protocol::task::{Landing, TaskState, TaskView, Verdict};
use sha2::{Digest, Sha256};

use super::super::args::review::{Accept, Finished, Reject};
use super::super::client::Client;
use super::super::context::{Context, request_key, unexpected, with_key};
use super::super::error::{Failure, exit};
use super::super::output::pipe::{Stdout, can_ask, say, say_bytes};
use super::super::output::render::{Listing, list};
use super::super::output::sanitise::safe_line;
use super::super::output::when::now;
use super::super::run::list::{named_or_latest, whole};
use super::super::run::submit::upload_blob;
use super::super::run::view::TaskRow;
use super::super::run::wait::follow;

/// An accepted task has its branch at once, unless its host is busy or away.
const BRANCH_LIMIT: Duration = Duration::from_secs(20);

pub fn accept(context: &Context, args: &Accept) -> Result<u8, Failure> {
    decide(context, &args.finished, Verdict::Accepted, "accept")
}

pub fn reject(context: &Context, args: &Reject) -> Result<u8, Failure> {
    let verdict = if args.for_good { Verdict::RejectedForGood } else { Verdict::Rejected };
    decide(context, &args.finished, verdict, "reject")
}

fn decide(context: &Context, args: &Finished, verdict: Verdict, verb: &str) -> Result<u8, Failure> {
    let key = request_key(args.key.as_deref())?;
    let comment = comment(args)?;
    let mut client = context.client()?;
    let targets = targets(&mut client, args)?;
    if targets.is_empty() {
        say("no task in review has these labels; nothing was done");
        return Ok(exit::OK);
    }
    confirm(verb, targets.len(), !args.labels.is_empty(), args.yes)?;
    let feedback = match (verdict, comment.is_empty()) {
        (Verdict::Rejected, false) => Some(upload(&mut client, &comment)?),
        _ => None,
    };
    let request = Mutation::DecideTasks(Box::new(DecideTasks {
        key: key.clone(),
        tasks: targets.clone(),
        verdict,
        by: person(),
        comment: cut(&comment),
        feedback,
    }));
    let command = format!("phalanx {verb}");
    let outcomes = match client.ask(&request).map_err(|failure| with_key(failure, &command, &key))? {
        Reply::Outcomes(outcomes) => outcomes,
        other => return Err(unexpected(other)),
    };
    drop(client);
    let refused = if verdict == Verdict::Accepted { landed(context, &targets, &outcomes)? } else { false };
    show(context, &mut context.client()?, &targets, &outcomes, verdict)?;
    match told(&outcomes) {
        Ok(exit::OK) if refused => Err(Failure::Told(exit::CONFLICT)),
        code => code,
    }
}

/// Waits a little for the branches of what was accepted. True when one cannot be made, which is told.
fn landed(context: &Context, targets: &[String], outcomes: &[Outcome]) -> Result<bool, Failure> {
    let mut refused = false;
    for (target, outcome) in targets.iter().zip(outcomes) {
        if outcome.error.is_some() {
            continue;
        }
        let deadline = Instant::now().checked_add(BRANCH_LIMIT);
        let mut last = None;
        context.over_restarts(deadline, |client| {
            let view = one(client, target)?;
            let (due, run) = (view.landing == Some(Landing::Due), view.run.to_string());
            last = Some(view);
            if !due || deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                return Ok(Some(()));
            }
            follow(context, &run, deadline)?;
            Ok(None)
        })?;
        let Some(view) = last else { continue };
        match view.landing {
            Some(Landing::Refused) => {
                refused = true;
                say(&safe_line(&format!("error: {target}: accepted, but {}", view.reason)));
                say("  try: phalanx merge, or phalanx patch; the work is kept under its ref");
            }
            Some(Landing::Due | Landing::Unknown) => {
                say(&safe_line(&format!("note: {target}: its branch comes when its host answers")));
            }
            Some(Landing::Made) | None => {}
        }
    }
    Ok(refused)
}

/// A change of tasks that were selected, or of several, needs a yes. Off a terminal that is `--yes`.
fn confirm(verb: &str, count: usize, selected: bool, yes: bool) -> Result<(), Failure> {
    if yes || (count == 1 && !selected) {
        return Ok(());
    }
    if !can_ask() {
        let which = if selected { " that a selector finds" } else { "" };
        let message = format!("{verb} of {count} tasks{which} needs a yes");
        return Err(Failure::usage(message).hint("add --yes"));
    }
    say_bytes(format!("{verb} {count} tasks? Type yes to go on: ").as_bytes());
    let mut answer = String::new();
    let read = std::io::stdin().lock().read_line(&mut answer);
    if read.is_ok() && answer.trim() == "yes" {
        return Ok(());
    }
    Err(Failure::new(ErrorCode::Denied, format!("{verb} was not confirmed; nothing was done")))
}

/// Tasks as they were written, or the ids of those in review that a selector finds.
fn targets(client: &mut Client, args: &Finished) -> Result<Vec<String>, Failure> {
    if args.labels.is_empty() {
        if args.tasks.is_empty() {
            return Err(Failure::usage("no task is named").hint("give RUN/TASK, or -l key=value"));
        }
        let mut unique: Vec<String> = Vec::new();
        for task in &args.tasks {
            if !unique.contains(task) {
                unique.push(task.clone());
            }
        }
        return Ok(unique);
    }
    if !args.tasks.is_empty() {
        return Err(Failure::usage("names and -l are given; use one of them"));
    }
    let run = named_or_latest(client, args.run.as_deref())?;
    let (run, tasks) = whole(client, &run)?;
    let labels = |task: &TaskView, key: &String| {
        task.spec.labels.get(key).or_else(|| run.spec.labels.get(key)).cloned()
    };
    let meant = tasks.iter().filter(|task| {
        task.state == TaskState::Review
            && args.labels.iter().all(|(key, value)| labels(task, key).as_ref() == Some(value))
    });
    Ok(meant.map(|task| task.id.to_string()).collect())
}

fn comment(args: &Finished) -> Result<String, Failure> {
    let cannot = |from: &str, error: std::io::Error| {
        let code = match error.kind() {
            std::io::ErrorKind::NotFound => ErrorCode::NotFound,
            std::io::ErrorKind::PermissionDenied => ErrorCode::Denied,
            _ => ErrorCode::Invalid,
        };
        Failure::new(code, format!("cannot read {from}: {error}; nothing was decided"))
    };
    let reader: (Box<dyn Read>, String) = match (&args.comment, &args.comment_file) {
        (Some(text), _) if text == "-" => (Box::new(std::io::stdin().lock()), "standard input".to_owned()),
        (Some(text), _) => return Ok(text.clone()),
        (None, Some(path)) => {
            let name = path.display().to_string();
            (Box::new(std::fs::File::open(path).map_err(|error| cannot(&name, error))?), name)
        }
        (None, None) => return Ok(String::new()),
    };
    let (reader, name) = reader;
    let mut text = String::new();
    reader.take(PROMPT_LIMIT + 1).read_to_string(&mut text).map_err(|error| cannot(&name, error))?;
    if u64::try_from(text.len()).unwrap_or(u64::MAX) > PROMPT_LIMIT {
        return Err(Failure::usage(format!("{name} is longer than 8M; nothing was decided")));
    }
    Ok(text)
}

fn upload(client: &mut Client, comment: &str) -> Result<Blob, Failure> {
    let sha256 = data_encoding::HEXLOWER.encode(&Sha256::digest(comment.as_bytes()));
    upload_blob(client, &sha256, comment.as_bytes())?;
    Ok(Blob { sha256, bytes: u64::try_from(comment.len()).unwrap_or(u64::MAX) })
}

/// The begin of a long comment, at the border of a character.
fn cut(comment: &str) -> String {
    let mut end = comment.len().min(COMMENT_LIMIT);
    while !comment.is_char_boundary(end) {
        end -= 1;
    }
    comment.get(..end).unwrap_or_default().to_owned()
}

/// Who runs this, as the machine calls him.
pub fn person() -> String {
    let uid = nix::unistd::geteuid();
    let known = nix::unistd::User::from_uid(uid).ok().flatten();
    known.map_or_else(|| format!("uid {uid}"), |user| user.name)
}

/// The tasks as they are now.
fn show(
    context: &Context,
    client: &mut Client,
    targets: &[String],
    outcomes: &[Outcome],
    verdict: Verdict,
) -> Result<(), Failure> {
    let now = now();
    let mut rows: Vec<TaskRow> = Vec::new();
    for (target, outcome) in targets.iter().zip(outcomes) {
        if outcome.error.is_some() {
            continue;
        }
        let view = one(client, target)?;
        if verdict != Verdict::Accepted
            && let Some(branch) = &view.branch
        {
            say(&safe_line(&format!("note: the branch {branch} is left as it is")));
        }
        rows.push(TaskRow { view, now });
    }
    let mut out = Stdout::default();
    if context.quiet {
        rows.iter().try_for_each(|row| out.line(&row.view.id.to_string()))?;
    } else if !rows.is_empty() || context.format.is_json() {
        list(&mut out, &context.format, &Listing { items: &rows, as_of: Some(now), note: None, empty: "" })?;
    }
    out.done()
}

fn one(client: &mut Client, target: &str) -> Result<TaskView, Failure> {
    match client.ask(&Query::ShowTask { task: target.to_owned() })? {
        Reply::Task(view) => Ok(*view),
        other => Err(unexpected(other)),
    }
}

fn told(outcomes: &[Outcome]) -> Result<u8, Failure> {
    let mut code = exit::OK;
    let failed = outcomes.iter().filter_map(|outcome| Some((&outcome.target, outcome.error.as_ref()?)));
    for (target, error) in failed {
        let hint = if error.hint.is_empty() { String::new() } else { format!(" (try: {})", error.hint) };
        say(&safe_line(&format!("error: {target}: {}{hint}", error.message)));
        code = if code == exit::OK { error.code.exit_code() } else { code };
    }
    if code == exit::OK { Ok(code) } else { Err(Failure::Told(code)) }
}
