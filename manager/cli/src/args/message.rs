//! Words of the commands about messages.

use std::path::PathBuf;

use clap::Args;

use super::agent::pair;

#[derive(Args, Debug)]
pub struct Send {
    /// The agent (NAME, NAME@HOST, TASK, RUN/TASK or an id; omitted with -l), then the text; put a text that begins with '-' after --
    ///
    /// Words are joined with spaces; '-' alone reads standard input. The final newline of a file or of standard input
    /// counts as Enter. Line ends CR LF are typed as LF.
    #[arg(value_name = "AGENT] [TEXT")]
    pub words: Vec<String>,
    /// Read the text from a file, or '-' for standard input
    #[arg(short, long, value_name = "F")]
    pub file: Option<PathBuf>,
    /// Send to all agents with these labels, k=v
    #[arg(short = 'l', long = "selector", value_name = "K=V", value_parser = pair)]
    pub labels: Vec<(String, String)>,
    /// Leave the text in the program's input line without pressing Enter
    #[arg(long)]
    pub no_enter: bool,
    /// Submit several lines one by one to a program that does not accept pastes; otherwise they are not delivered to it
    #[arg(long)]
    pub lines: bool,
    /// Deliver also while the program is working; never while it asks a question, is frozen, or is not ready
    #[arg(long)]
    pub now: bool,
    /// Time to wait for delivery; then exit with 124 and leave the message queued
    #[arg(long, value_name = "TIME", default_value = "10s", conflicts_with = "no_wait")]
    pub timeout: String,
    /// Then wait for the program to return to its prompt, at most this long [default: 24h]; for profiles with signals
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true, default_missing_value = "24h")]
    #[arg(conflicts_with_all = ["no_wait", "no_enter"])]
    pub wait: Option<String>,
    /// Return once the message is queued
    #[arg(long)]
    pub no_wait: bool,
    /// Idempotency key: repeating a command with the same key sends nothing twice
    #[arg(long, value_name = "K")]
    pub key: Option<String>,
    /// Do not ask for confirmation before sending to several agents
    #[arg(short, long)]
    pub yes: bool,
}

#[derive(Args, Debug)]
pub struct Messages {
    /// Messages by id, or messages of these agents
    #[arg(value_name = "AGENT|ID")]
    pub targets: Vec<String>,
    /// Only messages that are still undecided
    #[arg(long)]
    pub queued: bool,
    /// Cancel these messages; one that was typed already stays
    #[arg(long, value_name = "ID", conflicts_with_all = ["targets", "queued"])]
    pub cancel: Vec<protocol::ids::MessageId>,
    /// Idempotency key: repeating a command with the same key returns the first answer
    #[arg(long, value_name = "K", requires = "cancel")]
    pub key: Option<String>,
}
