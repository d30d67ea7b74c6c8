//! Words of the commands about messages.

use std::path::PathBuf;

use clap::Args;

use super::agent::pair;

#[derive(Args, Debug)]
pub struct Send {
    /// The agent (NAME, NAME@HOST, TASK, RUN/TASK or an id; none with -l), then the text; a text that begins with '-' after --
    ///
    /// Words are joined by spaces; '-' alone reads standard input. The last line end of a file or of standard input is
    /// taken for the Enter. Line ends CR LF are typed as LF.
    #[arg(value_name = "AGENT] [TEXT")]
    pub words: Vec<String>,
    /// Read the text from a file, '-' for standard input
    #[arg(short, long, value_name = "F")]
    pub file: Option<PathBuf>,
    /// Send to all agents with these labels, k=v
    #[arg(short = 'l', long = "selector", value_name = "K=V", value_parser = pair)]
    pub labels: Vec<(String, String)>,
    /// Leave the text in the program's input line: press no Enter
    #[arg(long)]
    pub no_enter: bool,
    /// Submit several lines one by one where the program takes no pastes; without this they are not delivered to it
    #[arg(long)]
    pub lines: bool,
    /// Also while the program works; never while it asks a person, is frozen, or is not ready
    #[arg(long)]
    pub now: bool,
    /// Wait so long for the delivery; what is still queued then stays queued, and the exit code is 124
    #[arg(long, value_name = "TIME", default_value = "10s", conflicts_with = "no_wait")]
    pub timeout: String,
    /// Then wait until the program is at its prompt again, at most so long [default: 24h]; for profiles with signals
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true, default_missing_value = "24h")]
    #[arg(conflicts_with_all = ["no_wait", "no_enter"])]
    pub wait: Option<String>,
    /// Return once it is queued
    #[arg(long)]
    pub no_wait: bool,
    /// The same key gives the same answer again, and nothing is sent twice
    #[arg(long, value_name = "K")]
    pub key: Option<String>,
    /// Do not ask before it goes to several agents
    #[arg(short, long)]
    pub yes: bool,
}

#[derive(Args, Debug)]
pub struct Messages {
    /// Only these messages, by their ids, or those of these agents
    #[arg(value_name = "AGENT|ID")]
    pub targets: Vec<String>,
    /// Only those that are not decided yet
    #[arg(long)]
    pub queued: bool,
    /// Take these messages back; one that was typed already stays
    #[arg(long, value_name = "ID", conflicts_with_all = ["targets", "queued"])]
    pub cancel: Vec<protocol::ids::MessageId>,
    /// The same key gives the same answer again
    #[arg(long, value_name = "K", requires = "cancel")]
    pub key: Option<String>,
}
