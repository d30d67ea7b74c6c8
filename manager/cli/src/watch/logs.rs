//! `logs`: transcripts byte for byte, or made safe for a terminal; of one agent or of several beside each other.

use std::sync::mpsc::{SyncSender, sync_channel};

use protocol::api::{AgentView, Item, LogStart, Query, Reply};
use protocol::error::ErrorCode;
use regex::Regex;

use super::super::agent::logs::Transcript;
use super::super::agent::select::{self, Which};
use super::super::args::watch::Logs;
use super::super::client::{Client, Flow, Limits, StreamEnd};
use super::super::context::{Context, unexpected};
use super::super::error::{Failure, exit};
use super::super::output::pipe::{Stdout, say};
use super::super::output::sanitise::{Sanitiser, safe_line};
use super::super::output::when::{now, since};
use super::lines::Lines;

/// Lines of each, where several are looked at and nothing else is said.
const TAIL_OF_SEVERAL: u64 = 10;
/// Transcripts that are followed at once: each is a connection.
const FOLLOWED: usize = 500;
/// Pieces that wait to be shown; more make the manager wait.
const WAITING: usize = 64;

pub fn run(context: &Context, args: &Logs) -> Result<u8, Failure> {
    let pattern = args.grep.as_deref().map(Regex::new).transpose().map_err(|error| {
        let said = error.to_string();
        Failure::usage(format!("--grep: {}", said.lines().last().unwrap_or("it is no regular expression")))
    })?;
    let as_json = context.format.is_json();
    if as_json && args.raw {
        return Err(Failure::usage(
            "--raw is the bytes as they are; with -o json or jsonl each line is an object",
        ));
    }
    let mut client = context.client()?;
    if let ([target], true) = (args.agents.targets.as_slice(), args.agents.labels.is_empty()) {
        let from = start(args, None)?;
        let mut out = Stdout::default();
        let lines = match as_json {
            true => Some(Lines::json(select::one(&mut client, target)?.name, pattern)),
            false => (!args.raw).then(|| Lines::new(String::new(), pattern)),
        };
        read(&mut client, target, from, args.follow, lines, &mut |bytes| {
            out.bytes(bytes)?;
            if args.follow { out.flush() } else { Ok(()) }
        })?;
        out.done()?;
        return Ok(exit::OK);
    }
    if args.raw || args.from.is_some() {
        return Err(Failure::usage("--raw and --from are for one agent"));
    }
    let targets = select::targets(&mut client, &args.agents, Which::Current)?;
    let views = match client.ask(&Query::ShowAgents { targets })? {
        Reply::Agents { agents, .. } => agents,
        other => return Err(unexpected(other)),
    };
    let from = start(args, Some(TAIL_OF_SEVERAL))?;
    let width = views.iter().map(|view| safe_line(&view.name).chars().count()).max().unwrap_or(0);
    let lines = |view: &AgentView| match as_json {
        true => Lines::json(view.name.clone(), pattern.clone()),
        false => Lines::new(format!("{:<width$}  ", safe_line(&view.name)), pattern.clone()),
    };
    let mut out = Stdout::default();
    if args.follow {
        follow(context, &views, from, lines, &mut out)?;
    } else {
        for view in &views {
            let lines = lines(view);
            read(&mut client, &view.id.to_string(), from, false, Some(lines), &mut |text| out.bytes(text))?;
        }
    }
    out.done()?;
    Ok(exit::OK)
}

fn start(args: &Logs, otherwise: Option<u64>) -> Result<LogStart, Failure> {
    if let Some(text) = &args.since {
        return since(text, now()).map(LogStart::Since).map_err(Failure::usage);
    }
    Ok(match (args.tail.or(otherwise.filter(|_| args.from.is_none())), args.from) {
        (Some(lines), _) => LogStart::Tail(lines),
        (None, offset) => LogStart::Offset(offset.unwrap_or(0)),
    })
}

/// All of them at once, each line as it comes; ends when all have ended.
fn follow(
    context: &Context,
    views: &[AgentView],
    from: LogStart,
    lines: impl Fn(&AgentView) -> Lines,
    out: &mut Stdout,
) -> Result<(), Failure> {
    if views.len() > FOLLOWED {
        let message =
            format!("{} transcripts are more than the {FOLLOWED} that are followed at once", views.len());
        return Err(Failure::usage(message).hint("name fewer, or leave -f away"));
    }
    let (sender, pieces) = sync_channel::<Result<String, Failure>>(WAITING);
    // All before the first thread: one that fails to connect must not leave the others to be waited for.
    let clients = views.iter().map(|_| context.client()).collect::<Result<Vec<_>, _>>()?;
    std::thread::scope(|scope| {
        for (view, client) in views.iter().zip(clients) {
            let (sender, lines, target) = (sender.clone(), lines(view), view.id.to_string());
            scope.spawn(move || follow_one(client, &target, from, lines, &sender));
        }
        drop(sender);
        let mut failed = None;
        for piece in pieces {
            match piece {
                Ok(text) => {
                    // A reader that went away ends the command, not only this loop: the threads wait for their agents.
                    if let Err(failure) = out.text(&text).and_then(|()| out.flush()) {
                        std::process::exit(i32::from(failure.exit_code()));
                    }
                }
                Err(failure) => {
                    if let Some(text) = failure.rendered(false) {
                        say(&text);
                    }
                    failed = failed.or(Some(Failure::Told(failure.exit_code())));
                }
            }
        }
        failed.map_or(Ok(()), Err)
    })
}

fn follow_one(
    mut client: Client,
    target: &str,
    from: LogStart,
    lines: Lines,
    sender: &SyncSender<Result<String, Failure>>,
) {
    let read = read(&mut client, target, from, true, Some(lines), &mut |text| {
        let text = String::from_utf8_lossy(text).into_owned();
        sender.send(Ok(text)).map_err(|_| Failure::Closed)
    });
    if let Err(failure) = read {
        let _ = sender.send(Err(failure));
    }
}

/// One transcript to its end: as it is, or as lines that are safe on a terminal.
fn read(
    client: &mut Client,
    target: &str,
    from: LogStart,
    follow: bool,
    mut lines: Option<Lines>,
    show: &mut dyn FnMut(&[u8]) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut transcript = Transcript::starting_at(match from {
        LogStart::Offset(offset) => Some(offset),
        LogStart::Tail(_) | LogStart::Since(_) => None,
    });
    let mut sanitiser = Sanitiser::default();
    let (mut begin, mut line_ends, mut is_open) = (None, 0_u64, false);
    let request = Query::Logs { target: target.to_owned(), from, follow, redact: false };
    let end = client.stream(&request, &Limits::default(), |item| {
        let Item::Log { offset, bytes } = item else { return Ok(Flow::More) };
        let piece = transcript.take(offset, &bytes);
        if piece.missing > 0 {
            say(&format!("[{} bytes from {} on are no longer kept]", piece.missing, offset - piece.missing));
        }
        begin = begin.or(Some(offset));
        let ends = piece.bytes.iter().filter(|byte| **byte == b'\n').count();
        line_ends = line_ends.saturating_add(u64::try_from(ends).unwrap_or(0));
        is_open = piece.bytes.last().map_or(is_open, |byte| *byte != b'\n');
        match &mut lines {
            None => show(piece.bytes)?,
            Some(lines) => {
                let (mut safe, mut shown) = (String::new(), String::new());
                sanitiser.push(piece.bytes, &mut safe);
                lines.push(&safe, &mut shown);
                if !shown.is_empty() {
                    show(shown.as_bytes())?;
                }
            }
        }
        Ok(Flow::More)
    })?;
    if let Some(lines) = &mut lines {
        let (mut rest, mut shown) = (String::new(), String::new());
        sanitiser.finish(&mut rest);
        lines.push(&rest, &mut shown);
        lines.finish(&mut shown);
        show(shown.as_bytes())?;
    }
    // The manager looks back so far for their beginning, and no further.
    if let (LogStart::Tail(wanted), Some(begin @ 1..)) = (from, begin)
        && line_ends.saturating_add(u64::from(is_open)) < wanted
    {
        say(&format!(
            "[the first line is cut: it begins before byte {begin}; phalanx logs --from 0 shows all]"
        ));
    }
    match end {
        StreamEnd::Reply(Reply::Done) => Ok(()),
        StreamEnd::Reply(other) => Err(unexpected(other)),
        StreamEnd::Enough | StreamEnd::TimedOut | StreamEnd::Interrupted(_) => {
            Err(Failure::new(ErrorCode::Unavailable, "the transcript ended early"))
        }
    }
}
