//! The words of the command line, read by clap. What a command does with them is in its own file.

pub mod agent;
pub mod config;
pub mod files;
pub mod house;
pub mod message;
pub mod review;
pub mod run;
pub mod screen;
pub mod settings;
pub mod watch;

use std::path::PathBuf;

use clap::builder::styling::Styles;
use clap::{CommandFactory, Parser, Subcommand};

use super::explain::schema;
use manager_plan::config::format::OutputFormat;

/// Start coding agents, look after them, and run batches of tasks with them.
#[derive(Parser, Debug)]
#[command(name = "phalanx", version, styles = Styles::plain(), max_term_width = 100, propagate_version = true)]
#[command(subcommand_required = true, arg_required_else_help = true, disable_help_subcommand = true)]
#[command(before_help = "Examples:
  phalanx create demo -- sh -c 'echo hello; sleep 60'
  phalanx run tasks.yaml --max-parallel 50")]
#[command(
    after_help = "Exit codes: 0 ok, 1 failed, 2 usage (nothing done), 3 not found, 4 not allowed, 5 conflict,
  6 quota or disk share, 7 some tasks accepted, 8 none accepted, 9 unavailable or unknown (try again),
  124 timed out, 130 interrupted. exec gives the program's code, its own faults are 125."
)]
pub struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

/// The whole command line, with the schema of what a command prints named in its help.
pub fn command() -> clap::Command {
    schema::names().fold(Cli::command(), |root, name| {
        let (first, below) = name.split_once(' ').unwrap_or((name, ""));
        if root.find_subcommand(first).is_none() {
            return root;
        }
        root.mut_subcommand(first, |command| match below {
            "" => names_schema(command, name),
            below if command.find_subcommand(below).is_some() => {
                command.mut_subcommand(below, |command| names_schema(command, name))
            }
            _ => command,
        })
    })
}

fn names_schema(command: clap::Command, name: &str) -> clap::Command {
    let before = command.get_after_help().map(|text| format!("{text}\n\n")).unwrap_or_default();
    command.after_help(format!("{before}JSON: phalanx schema {name}"))
}

#[derive(clap::Args, Debug)]
pub struct Global {
    /// Folder of all state [default: $PHALANX_HOME, else $XDG_DATA_HOME/phalanx, else ~/.local/share/phalanx]
    #[arg(long, global = true, value_name = "DIR")]
    pub home: Option<PathBuf>,
    /// Do not start anything when the manager is not running; exit 9 instead
    #[arg(long, global = true)]
    pub no_start: bool,
    /// table, wide, json, jsonl, name or template='{{ name }}' [default: setting defaults.output, else table]
    #[arg(short, long, global = true, value_name = "FORMAT")]
    pub output: Option<OutputFormat>,
    /// Print only ids and errors
    #[arg(short, long, global = true)]
    pub quiet: bool,
}

/// What was typed, as the shell knows it.
#[derive(clap::Args, Debug)]
pub struct Complete {
    pub shell: clap_complete::Shell,
    /// The line up to the cursor, of bash
    #[arg(long, allow_hyphen_values = true)]
    pub line: Option<String>,
    /// Words up to the cursor, the program's first, the last one being completed
    #[arg(last = true)]
    pub words: Vec<String>,
}

#[derive(Subcommand, Debug)]
pub enum Command {
    /// Start everything on this machine, once, in the background
    #[command(before_help = "Examples:\n  phalanx up\n  phalanx up --enable")]
    Up {
        /// Also at every boot of this machine: by a systemd unit where there is systemd (of the system for root, else
        /// yours), else by a line of cron
        #[arg(long)]
        enable: bool,
        /// Fetch the pinned nats-server first when there is none
        #[arg(long)]
        install_nats: bool,
    },
    /// Stop the manager, the bus and hostd; agents go on
    #[command(before_help = "Examples:\n  phalanx down\n  phalanx down --stop-agents --disable")]
    Down {
        /// Also no longer start at boot
        #[arg(long)]
        disable: bool,
        /// Also stop every agent, first
        #[arg(long)]
        stop_agents: bool,
    },
    /// What runs here, and how the fleet is
    #[command(before_help = "Examples:\n  phalanx status\n  phalanx status -o json")]
    Status,
    /// What this machine lacks, and the command that mends it
    #[command(before_help = "Examples:\n  phalanx doctor\n  phalanx doctor -o json")]
    Doctor,
    /// Hosts of the fleet
    #[command(before_help = "Examples:\n  phalanx hosts\n  phalanx hosts -o wide")]
    Hosts,
    /// What happened, with the time it did
    #[command(before_help = "Examples:\n  phalanx events --since 1h\n  phalanx events -f demo")]
    Events(agent::Events),

    Create(Box<agent::Create>),
    /// List agents
    #[command(before_help = "Examples:
  phalanx ls 'fix-*' -l team=core --sort -mem
  phalanx ls -w --phase BLOCKED")]
    #[command(
        after_help = "With --watch -o jsonl every line has a `change`: `listed` rows, `synced` with the cursor of that \
list, then `added`,\n`changed` or `gone` (also when it no longer fits the filter), each with its cursor. `reset` says \
that the manager cannot\nknow what followed the cursor (it was restarted, or too much has changed): all rows follow \
anew. Figures alone are no\nchange. -o name and -q print agents that came or changed."
    )]
    Ls(watch::Ls),
    /// What agents take of their hosts: CPU, memory, processes, disk
    ///
    /// CPU% is of one core, between two measurements by the host's own clock; DISK is what the workspace takes beyond
    /// what it shares, counted now and then. A host that does not answer has `?` instead of figures. On a terminal it
    /// is measured every 2 s; elsewhere once, unless --interval is given.
    #[command(
        before_help = "Examples:\n  phalanx top -l team=core\n  phalanx top --once --sort memory -o json"
    )]
    Top(watch::Top),
    /// Everything that is known of agents, or of a run
    #[command(before_help = "Examples:\n  phalanx show demo@db-01 -o json\n  phalanx show nightly")]
    Show(agent::Show),
    /// What agents printed
    #[command(before_help = "Examples:
  phalanx logs -f demo --since 10m
  phalanx logs -l team=core --tail 100 --grep 'error|warning'")]
    Logs(watch::Logs),
    /// What an agent's terminal shows, or showed at its end, as text
    #[command(before_help = "Examples:\n  phalanx capture demo\n  phalanx capture demo -e --history 100")]
    Capture(screen::Capture),
    /// Look at an agent's terminal and type into it (leave with C-b d)
    #[command(before_help = "Examples:\n  phalanx attach demo\n  phalanx attach -r demo@db-01")]
    Attach(agent::Attach),
    /// Run a program beside an agent, in its workspace and limits
    #[command(
        before_help = "Examples:\n  phalanx exec demo -- git status\n  phalanx exec -i demo -- sh < script.sh"
    )]
    Exec(agent::Exec),
    /// Type a text into an agent's terminal, once, when its program may be typed to
    #[command(visible_alias = "message")]
    #[command(before_help = "Examples:
  phalanx send demo 'go on, and run the tests'
  git diff | phalanx send -l team=core --yes -f -")]
    #[command(
        after_help = "A message is delivered once, or told as not delivered or unknown. It waits while a person \
types in that terminal,\nwhile the program is not ready, asks a person something, or is frozen; it answers no dialog. \
Messages to one agent\nkeep their order.\n\nExit codes: 0 delivered (or queued, with --no-wait), 1 not delivered, \
9 unknown, 124 still queued after --timeout."
    )]
    Send(message::Send),
    /// What became of messages; take one back
    #[command(before_help = "Examples:
  phalanx messages demo
  phalanx messages --cancel 01k8kg5o6se9mbfg6l211odm5o")]
    Messages(message::Messages),
    /// Wait until agents are in a phase, or have ended; or for a run (RUN) or one task of it (RUN/TASK)
    #[command(
        before_help = "Examples:\n  phalanx wait demo --for ended --timeout 30s\n  phalanx wait nightly/fix-parser --for accepted"
    )]
    Wait(agent::Wait),
    /// End programs; their workspaces stay
    #[command(before_help = "Examples:\n  phalanx stop demo\n  phalanx stop -l team=core --grace 30s --yes")]
    Stop(agent::Stop),
    Clone(Box<settings::CloneAgent>),
    /// Snapshots of an agent's workspace, kept in its repository
    #[command(before_help = "Examples:\n  phalanx snapshot create demo\n  phalanx snapshot restore demo 1")]
    Snapshot {
        #[command(subcommand)]
        command: settings::SnapshotCommand,
    },
    /// Run ended agents again, in the same workspace and transcript
    #[command(before_help = "Examples:\n  phalanx start demo\n  phalanx start -l team=core --yes")]
    Start(settings::Start),
    /// Let all processes of agents stand still; time limits and timeouts go on, and so does `QUIET`
    #[command(before_help = "Examples:\n  phalanx pause demo\n  phalanx pause -l team=core --yes")]
    Pause(settings::Pause),
    /// Let paused agents go on
    #[command(before_help = "Examples:\n  phalanx resume demo\n  phalanx resume -l team=core --yes")]
    Resume(settings::Pause),
    /// Give an agent another label; it finds its own in PHALANX_AGENT_NAME from its next start on
    #[command(before_help = "Examples:\n  phalanx rename demo parser\n  phalanx rename demo@db-01 parser")]
    Rename(settings::Rename),
    /// Set labels (k=v) and take them away (k-)
    #[command(
        before_help = "Examples:\n  phalanx label demo team=core old-\n  phalanx label -l team=core --yes tier=1"
    )]
    Label(settings::Label),
    /// Change limits of agents, running ones too; `none` takes a limit away
    #[command(
        before_help = "Examples:\n  phalanx limit demo --memory 2G --cpu 1.5\n  phalanx limit demo --timeout none"
    )]
    Limit(settings::Limit),
    /// Remove agents and their workspaces; what they printed stays
    ///
    /// Work in a repository is kept in refs first, and the answer names them. Work that cannot be kept so is not removed
    /// without --discard: its agent goes on as it was. Files that git ignores go with the workspace: `phalanx snapshot
    /// create --include-ignored` keeps those too.
    #[command(before_help = "Examples:\n  phalanx destroy demo\n  phalanx destroy demo --discard")]
    Destroy(agent::Destroy),

    /// Files of agents: list, get, put
    #[command(
        subcommand,
        before_help = "Examples:
  phalanx file get demo:src/x.rs ./x.rs
  phalanx file put ./x.rs demo:src/x.rs"
    )]
    File(files::File),

    Run(Box<run::Run>),
    /// List runs
    #[command(before_help = "Examples:\n  phalanx runs\n  phalanx runs -o json")]
    Runs,
    /// List the tasks of a run
    #[command(before_help = "Examples:\n  phalanx tasks\n  phalanx tasks nightly --state FAILED -o wide")]
    Tasks(run::Tasks),
    /// Cancel a run, or tasks and what depends on them
    #[command(
        before_help = "Examples:\n  phalanx cancel nightly --wait\n  phalanx cancel nightly/fix-parser --grace 1m"
    )]
    Cancel(run::Cancel),
    /// Try tasks again
    #[command(
        before_help = "Examples:\n  phalanx retry nightly --failed\n  phalanx retry fix-parser\n  phalanx retry nightly fix-parser"
    )]
    Retry(run::Retry),
    /// Change how many tasks of a run may be live at once
    #[command(
        before_help = "Examples:\n  phalanx scale nightly 20\n  phalanx scale nightly --cap gpu=2\n  phalanx scale nightly none"
    )]
    Scale(run::Scale),
    /// Why an agent, run or task is not further
    #[command(before_help = "Examples:\n  phalanx why nightly\n  phalanx why demo")]
    Why(run::Why),
    /// What a task or an agent changed
    #[command(before_help = "Examples:\n  phalanx diff nightly/fix-parser\n  phalanx diff demo --stat")]
    Diff(review::Diff),
    /// Take the work of tasks that wait for a person; it lands on its branch
    #[command(
        before_help = "Examples:\n  phalanx accept nightly/fix-parser\n  phalanx accept -l team=core --yes"
    )]
    Accept(review::Accept),
    /// Refuse finished work: it is tried again with what you say of it
    ///
    /// Accepted work can be taken back too, unless other tasks began with it; a branch that was made of it stays as it is.
    #[command(before_help = "Examples:
  phalanx reject nightly/fix-parser --comment 'the error message is lost'
  phalanx reject nightly/fix-parser --final")]
    Reject(review::Reject),
    /// Bring the accepted work of a run into a branch, one after the other, verified
    ///
    /// Exit 0: all were merged; 7: some, the rest was left out; 8: none; 5: refused, the branch was not moved.
    #[command(before_help = "Examples:
  phalanx merge nightly --into integration
  phalanx merge nightly --into integration --dry-run")]
    Merge(review::Merge),
    /// Write finished work as files that git am takes
    #[command(before_help = "Examples:
  phalanx patch nightly/fix-parser --out patches
  phalanx patch nightly --out patches")]
    Patch(review::Patch),
    /// Write a run's report as JSON and as one HTML page
    #[command(before_help = "Examples:\n  phalanx report\n  phalanx report nightly --out ./report")]
    Report(run::Report),

    /// What takes disk: workspaces, transcripts, outputs, bases, the bus
    #[command(before_help = "Examples:\n  phalanx du\n  phalanx du -l team=core -o json")]
    Du(house::Du),
    Gc(house::Gc),
    /// Settings: what they are, where they were set, and changes of them
    #[command(before_help = "Examples:
  phalanx config view --show-origin
  phalanx config set defaults.memory 2G")]
    Config(config::Config),
    /// Profiles: how agent programs are started
    #[command(before_help = "Examples:\n  phalanx profile ls\n  phalanx profile test claude")]
    Profile(config::Profile),
    /// Notifications: whom the settings notify, how it went, and a test
    #[command(before_help = "Examples:\n  phalanx notify ls\n  phalanx notify test")]
    Notify(config::Notify),

    /// Explain a topic or a command: exit-codes, environment, tasks, phases, files
    #[command(before_help = "Examples:\n  phalanx help exit-codes\n  phalanx help config set")]
    Help {
        #[arg(value_name = "TOPIC|COMMAND")]
        words: Vec<String>,
    },
    /// JSON Schema of what commands print with -o json
    #[command(before_help = "Examples:\n  phalanx schema ls\n  phalanx schema --list")]
    Schema {
        /// A command, or `error` for what one that failed prints on standard error
        #[arg(value_name = "NAME", required_unless_present = "list")]
        words: Vec<String>,
        /// List the schemas
        #[arg(long, conflicts_with_all = ["words", "line"])]
        list: bool,
        /// Of one line of -o jsonl
        #[arg(long)]
        line: bool,
    },
    /// Manual pages
    #[command(before_help = "Examples:
  phalanx man --out ~/.local/share/man/man1
  phalanx man | man -l -")]
    Man {
        /// Folder for a page of every command [default: the main page on standard output]
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
    },
    /// Completions for a shell
    #[command(before_help = "Examples:
  phalanx completion bash > ~/.local/share/bash-completion/completions/phalanx
  phalanx completion zsh > ~/.zfunc/_phalanx")]
    Completion {
        shell: clap_complete::Shell,
    },

    /// What a shell completes at the cursor
    #[command(hide = true)]
    Complete(Complete),
    /// The supervisor process
    #[command(hide = true)]
    Supervise,
    /// The manager process
    #[command(hide = true)]
    Manager,
}
