//! `show RUN`: what a run was asked for, and how far it is.

use protocol::task::RunView;

use super::super::context::Context;
use super::super::error::{Failure, exit};
use super::super::output::pipe::Stdout;
use super::super::output::render::{Listing, list};
use super::super::output::table::details;
use super::super::output::when::{age, date, now};
use super::view::{RunRow, counts};
use manager_plan::config::format::OutputFormat;
use manager_plan::notify::asked::written;

pub fn show(context: &Context, view: RunView) -> Result<u8, Failure> {
    let mut out = Stdout::default();
    if context.quiet {
        out.line(&view.id.to_string())?;
    } else if matches!(context.format, OutputFormat::Table | OutputFormat::Wide) {
        out.text(&describe(&view))?;
    } else {
        let now = now();
        let rows = [RunRow { view, now }];
        list(&mut out, &context.format, &Listing { items: &rows, as_of: Some(now), note: None, empty: "" })?;
    }
    out.done()?;
    Ok(exit::OK)
}

/// Empty lines are left out.
fn describe(view: &RunView) -> String {
    let (spec, now) = (&view.spec, now());
    let at = |at| format!("{} ({} ago)", date(at), age(now, at));
    let pairs = |pairs: Vec<String>| pairs.join(", ");
    details(&[
        ("name", spec.name.to_string()),
        ("id", view.id.to_string()),
        ("tasks", format!("{} ({})", view.total, counts(view))),
        ("submitted", at(view.submitted_at)),
        ("ended", view.ended_at.map(at).unwrap_or_default()),
        ("open", if spec.open { format!("phalanx run --resume {}", view.id) } else { String::new() }),
        ("live at most", spec.max_parallel.map(|most| most.to_string()).unwrap_or_default()),
        ("labels", pairs(spec.labels.iter().map(|(key, value)| format!("{key}={value}")).collect())),
        ("caps", pairs(spec.caps.iter().map(|(label, most)| format!("{label}: {most}")).collect())),
        ("notify", spec.notify.iter().map(written).collect::<Vec<_>>().join(" ")),
        ("look", format!("phalanx tasks {0}; phalanx why {0}", view.id)),
    ])
}
