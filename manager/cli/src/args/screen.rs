//! Words of the commands about screens.

use clap::Args;

#[derive(Args, Debug)]
pub struct Capture {
    #[arg(value_name = "AGENT|TASK")]
    pub target: String,
    /// Also print this many lines of scrollback
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub history: u32,
    /// Keep colours
    #[arg(short = 'e', long)]
    pub colours: bool,
}
