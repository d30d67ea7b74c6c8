//! `why`: what an agent, run or task waits for or failed of, and what to do.

use protocol::api::{Query, Reply};

use super::super::args::run::Why;
use super::super::context::{Context, unexpected};
use super::super::error::{Failure, exit};
use super::super::output::pipe::Stdout;
use super::super::output::render::{Listing, list};
use super::super::output::sanitise::safe_line;
use super::super::output::when::now;
use super::list::named_or_latest;
use super::view::ReasonRow;
use manager_plan::config::format::OutputFormat;

pub fn run(context: &Context, args: &Why) -> Result<u8, Failure> {
    let mut client = context.client()?;
    let target = named_or_latest(&mut client, args.target.as_deref())?;
    let reasons = match client.ask(&Query::Why { target })? {
        Reply::Why(reasons) => reasons,
        other => return Err(unexpected(other)),
    };
    let rows: Vec<ReasonRow> = reasons.into_iter().map(ReasonRow).collect();
    let mut out = Stdout::default();
    if matches!(context.format, OutputFormat::Table) {
        for ReasonRow(reason) in &rows {
            out.line(&safe_line(&format!("{} is {}: {}", reason.subject, reason.state, reason.why)))?;
            if !reason.remedy.is_empty() {
                out.line(&safe_line(&format!("  try: {}", reason.remedy)))?;
            }
        }
        if rows.is_empty() {
            out.line("Nothing waits and nothing failed.")?;
        }
    } else {
        list(
            &mut out,
            &context.format,
            &Listing { items: &rows, as_of: Some(now()), note: None, empty: "" },
        )?;
    }
    out.done()?;
    Ok(exit::OK)
}
