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

/// Run fleets of coding agents and batches of tasks.
#[derive(Parser, Debug)]
#[command(name = "phalanx", version, styles = Styles::plain(), max_term_width = 100, propagate_version = true)]
#[command(subcommand_required = true, arg_required_else_help = true, disable_help_subcommand = true)]
#[command(before_help = "Examples:
  phalanx create demo -- sh -c 'echo hello; sleep 60'
  phalanx run tasks.yaml --max-parallel 50")]
#[command(
    after_help = "Exit codes: 0 ok, 1 failed, 2 usage (nothing done), 3 not found, 4 not allowed, 5 conflict,
  6 quota or disk share, 7 some tasks accepted, 8 none accepted, 9 unavailable or unknown (try again),
  124 timed out, 130 interrupted. exec exits with the program's code; its own failures are 125."
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
    /// Directory for all state [default: $PHALANX_HOME, else $XDG_DATA_HOME/phalanx, else ~/.local/share/phalanx]
    #[arg(long, global = true, value_name = "DIR")]
    pub home: Option<PathBuf>,
    /// Exit with 9 instead of starting the manager when it is not running
    #[arg(long, global = true)]
    pub no_start: bool,
    /// Output format: table, wide, json, jsonl, name or template='{{ name }}' [default: setting defaults.output, else table]
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
    /// Start Phalanx on this machine, in the background
    #[command(before_help = "Examples:\n  phalanx up\n  phalanx up --enable")]
    Up {
        /// Also start at every boot: with a systemd unit where systemd runs (a system unit for root, else a user
        /// unit), otherwise with a cron entry
        #[arg(long)]
        enable: bool,
        /// Download the pinned nats-server first if none is installed
        #[arg(long)]
        install_nats: bool,
    },
    /// Stop the manager, the bus and hostd; agents keep running
    #[command(before_help = "Examples:\n  phalanx down\n  phalanx down --stop-agents --disable")]
    Down {
        /// Also stop starting at boot
        #[arg(long)]
        disable: bool,
        /// Stop every agent first
        #[arg(long)]
        stop_agents: bool,
    },
    /// Show what is running and the state of the fleet
    #[command(before_help = "Examples:\n  phalanx status\n  phalanx status -o json")]
    Status,
    /// Check this machine and name the command that fixes each problem
    #[command(before_help = "Examples:\n  phalanx doctor\n  phalanx doctor -o json")]
    Doctor,
    /// List the hosts of the fleet
    #[command(before_help = "Examples:\n  phalanx hosts\n  phalanx hosts -o wide")]
    Hosts,
    /// Show what happened, and when
    #[command(before_help = "Examples:\n  phalanx events --since 1h\n  phalanx events -f demo")]
    Events(agent::Events),

    Create(Box<agent::Create>),
    /// List agents
    #[command(before_help = "Examples:
  phalanx ls 'fix-*' -l team=core --sort -mem
  phalanx ls -w --phase BLOCKED")]
    #[command(
        after_help = "With --watch -o jsonl, every line has a `change`: `listed` for each row, `synced` with the cursor of that \
list, then `added`,\n`changed` or `gone` (also when a row no longer matches the filter), each with its cursor. `reset` means \
that the manager\ncannot tell what followed the cursor (it was restarted, or too much has changed), and lists all rows \
again. A change of\nfigures alone is not reported. -o name and -q print agents that were added or changed."
    )]
    Ls(watch::Ls),
    /// Show CPU, memory, processes and disk used by agents
    ///
    /// CPU% is relative to one core, measured between two samples by the host's clock. DISK is what the workspace uses
    /// beyond what it shares, updated now and then. A host that does not answer shows `?`. On a terminal, figures are
    /// updated every 2 s; elsewhere they are printed once, unless --interval is given.
    #[command(
        before_help = "Examples:\n  phalanx top -l team=core\n  phalanx top --once --sort memory -o json"
    )]
    Top(watch::Top),
    /// Show details of agents or of a run
    #[command(before_help = "Examples:\n  phalanx show demo@db-01 -o json\n  phalanx show nightly")]
    Show(agent::Show),
    /// Print the output of agents
    #[command(before_help = "Examples:
  phalanx logs -f demo --since 10m
  phalanx logs -l team=core --tail 100 --grep 'error|warning'")]
    Logs(watch::Logs),
    /// Print what an agent's terminal shows, or showed when the agent ended
    #[command(before_help = "Examples:\n  phalanx capture demo\n  phalanx capture demo -e --history 100")]
    Capture(screen::Capture),
    /// Attach to an agent's terminal (detach with C-b d)
    #[command(before_help = "Examples:\n  phalanx attach demo\n  phalanx attach -r demo@db-01")]
    Attach(agent::Attach),
    /// Run a program in an agent's workspace, within its limits
    #[command(
        before_help = "Examples:\n  phalanx exec demo -- git status\n  phalanx exec -i demo -- sh < script.sh"
    )]
    Exec(agent::Exec),
    /// Type a message into an agent's terminal, once, when its program is ready for input
    #[command(visible_alias = "message")]
    #[command(before_help = "Examples:
  phalanx send demo 'go on, and run the tests'
  git diff | phalanx send -l team=core --yes -f -")]
    #[command(
        after_help = "A message is delivered once, or reported as not delivered or unknown. It waits while a person \
types in that terminal,\nand while the program is not ready, is asking a question, or is frozen. It never answers a dialog. \
Messages to one agent\nkeep their order.\n\nExit codes: 0 delivered (or queued, with --no-wait), 1 not delivered, \
9 unknown, 124 still queued after --timeout."
    )]
    Send(message::Send),
    /// Show what became of messages, or cancel them
    #[command(before_help = "Examples:
  phalanx messages demo
  phalanx messages --cancel 01k8kg5o6se9mbfg6l211odm5o")]
    Messages(message::Messages),
    /// Wait for agents to reach a phase or end, or for a run (RUN) or one of its tasks (RUN/TASK)
    #[command(
        before_help = "Examples:\n  phalanx wait demo --for ended --timeout 30s\n  phalanx wait nightly/fix-parser --for accepted"
    )]
    Wait(agent::Wait),
    /// Stop agents; their workspaces are kept
    #[command(before_help = "Examples:\n  phalanx stop demo\n  phalanx stop -l team=core --grace 30s --yes")]
    Stop(agent::Stop),
    Clone(Box<settings::CloneAgent>),
    /// Manage snapshots of an agent's workspace, kept in its repository
    #[command(before_help = "Examples:\n  phalanx snapshot create demo\n  phalanx snapshot restore demo 1")]
    Snapshot {
        #[command(subcommand)]
        command: settings::SnapshotCommand,
    },
    /// Start ended agents again, with the same workspace and transcript
    #[command(before_help = "Examples:\n  phalanx start demo\n  phalanx start -l team=core --yes")]
    Start(settings::Start),
    /// Freeze all processes of agents; time limits, timeouts and `QUIET` keep counting
    #[command(before_help = "Examples:\n  phalanx pause demo\n  phalanx pause -l team=core --yes")]
    Pause(settings::Pause),
    /// Resume paused agents
    #[command(before_help = "Examples:\n  phalanx resume demo\n  phalanx resume -l team=core --yes")]
    Resume(settings::Pause),
    /// Rename an agent; PHALANX_AGENT_NAME changes at its next start
    #[command(before_help = "Examples:\n  phalanx rename demo parser\n  phalanx rename demo@db-01 parser")]
    Rename(settings::Rename),
    /// Set (k=v) or remove (k-) labels
    #[command(
        before_help = "Examples:\n  phalanx label demo team=core old-\n  phalanx label -l team=core --yes tier=1"
    )]
    Label(settings::Label),
    /// Change the limits of agents, also while they run; `none` removes a limit
    #[command(
        before_help = "Examples:\n  phalanx limit demo --memory 2G --cpu 1.5\n  phalanx limit demo --timeout none"
    )]
    Limit(settings::Limit),
    /// Remove agents and their workspaces; their transcripts are kept
    ///
    /// Work in a repository is first saved to refs, which the answer names. If work cannot be saved, the agent is left as
    /// it was unless --discard is given. Files that git ignores are removed with the workspace; keep them with
    /// `phalanx snapshot create --include-ignored`.
    #[command(before_help = "Examples:\n  phalanx destroy demo\n  phalanx destroy demo --discard")]
    Destroy(agent::Destroy),

    /// List, get and put files of agents
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
    /// Cancel a run, or tasks and everything that depends on them
    #[command(
        before_help = "Examples:\n  phalanx cancel nightly --wait\n  phalanx cancel nightly/fix-parser --grace 1m"
    )]
    Cancel(run::Cancel),
    /// Retry tasks
    #[command(
        before_help = "Examples:\n  phalanx retry nightly --failed\n  phalanx retry fix-parser\n  phalanx retry nightly fix-parser"
    )]
    Retry(run::Retry),
    /// Change how many tasks of a run may run at once
    #[command(
        before_help = "Examples:\n  phalanx scale nightly 20\n  phalanx scale nightly --cap gpu=2\n  phalanx scale nightly none"
    )]
    Scale(run::Scale),
    /// Explain why an agent, run or task is waiting
    #[command(before_help = "Examples:\n  phalanx why nightly\n  phalanx why demo")]
    Why(run::Why),
    /// Show what a task or an agent changed
    #[command(before_help = "Examples:\n  phalanx diff nightly/fix-parser\n  phalanx diff demo --stat")]
    Diff(review::Diff),
    /// Accept tasks that wait for review and create their branches
    #[command(
        before_help = "Examples:\n  phalanx accept nightly/fix-parser\n  phalanx accept -l team=core --yes"
    )]
    Accept(review::Accept),
    /// Reject finished work and retry it with your comment as feedback
    ///
    /// Accepted work can be rejected too, unless other tasks started from it; its branch is left as it is.
    #[command(before_help = "Examples:
  phalanx reject nightly/fix-parser --comment 'the error message is lost'
  phalanx reject nightly/fix-parser --final")]
    Reject(review::Reject),
    /// Merge the accepted work of a run into a branch, verifying each task
    ///
    /// Exit codes: 0 all merged; 7 some merged, the rest left out; 8 none; 5 refused, the branch was not moved.
    #[command(before_help = "Examples:
  phalanx merge nightly --into integration
  phalanx merge nightly --into integration --dry-run")]
    Merge(review::Merge),
    /// Write finished work as patches for git am
    #[command(before_help = "Examples:
  phalanx patch nightly/fix-parser --out patches
  phalanx patch nightly --out patches")]
    Patch(review::Patch),
    /// Write the report of a run as JSON and as an HTML page
    #[command(before_help = "Examples:\n  phalanx report\n  phalanx report nightly --out ./report")]
    Report(run::Report),

    /// Show disk used by workspaces, transcripts, outputs, bases and the bus
    #[command(before_help = "Examples:\n  phalanx du\n  phalanx du -l team=core -o json")]
    Du(house::Du),
    Gc(house::Gc),
    /// View and change settings
    #[command(before_help = "Examples:
  phalanx config view --show-origin
  phalanx config set defaults.memory 2G")]
    Config(config::Config),
    /// List, show and test profiles, which define how agent programs are started
    #[command(before_help = "Examples:\n  phalanx profile ls\n  phalanx profile test claude")]
    Profile(config::Profile),
    /// List and test notification hooks
    #[command(before_help = "Examples:\n  phalanx notify ls\n  phalanx notify test")]
    Notify(config::Notify),

    /// Explain a topic or a command: exit-codes, environment, tasks, phases, files
    #[command(before_help = "Examples:\n  phalanx help exit-codes\n  phalanx help config set")]
    Help {
        #[arg(value_name = "TOPIC|COMMAND")]
        words: Vec<String>,
    },
    /// Print the JSON Schema of what commands print with -o json
    #[command(before_help = "Examples:\n  phalanx schema ls\n  phalanx schema --list")]
    Schema {
        /// A command, or `error` for what a failed command prints on standard error
        #[arg(value_name = "NAME", required_unless_present = "list")]
        words: Vec<String>,
        /// List the schemas
        #[arg(long, conflicts_with_all = ["words", "line"])]
        list: bool,
        /// Print the schema of one line of -o jsonl
        #[arg(long)]
        line: bool,
    },
    /// Write manual pages
    #[command(before_help = "Examples:
  phalanx man --out ~/.local/share/man/man1
  phalanx man | man -l -")]
    Man {
        /// Directory for one page per command [default: print the main page]
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
    },
    /// Print completions for a shell
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
