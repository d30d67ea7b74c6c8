//! `doctor`: what this machine lacks. Asks no manager and starts nothing.

use super::super::context::Context;
use super::super::error::{Failure, exit};
use super::super::output::pipe::Stdout;
use super::super::output::render::{Listed, Listing, list};
use super::super::output::sanitise::safe_line;
use super::super::output::when::now;
use manager_installation::doctor::{Check, CheckStatus, check};
use manager_plan::config::format::OutputFormat;

pub struct CheckRow(Check);

fn word(status: CheckStatus) -> &'static str {
    match status {
        CheckStatus::Ok => "ok",
        CheckStatus::Warn => "warn",
        CheckStatus::Unknown => "unknown",
        CheckStatus::Fail => "FAIL",
    }
}

impl Listed for CheckRow {
    const KIND: &'static str = "CheckList";
    const HEADER: &'static [&'static str] = &["CHECK", "STATUS", "FOUND"];
    const WIDE: &'static [&'static str] = &["REMEDY"];

    type Document<'a>
        = &'a Check
    where
        Self: 'a;

    fn document(&self) -> &Check {
        &self.0
    }

    fn name(&self) -> String {
        self.0.name.to_owned()
    }

    fn cells(&self, wide: bool) -> Vec<String> {
        let mut cells = vec![self.0.name.to_owned(), word(self.0.status).to_owned(), self.0.found.clone()];
        if wide {
            cells.push(self.0.remedy.clone());
        }
        cells
    }
}

pub fn run(context: &Context) -> Result<u8, Failure> {
    let rows: Vec<CheckRow> = check(&context.layout).into_iter().map(CheckRow).collect();
    let failed = rows.iter().any(|row| row.0.status == CheckStatus::Fail);
    let mut out = Stdout::default();
    list(&mut out, &context.format, &Listing { items: &rows, as_of: Some(now()), note: None, empty: "" })?;
    if context.format == OutputFormat::Table {
        for row in rows.iter().filter(|row| row.0.status != CheckStatus::Ok && !row.0.remedy.is_empty()) {
            out.line(&safe_line(&format!("{}: {}", row.0.name, row.0.remedy)))?;
        }
    }
    out.done()?;
    Ok(if failed { exit::FAILED } else { exit::OK })
}
