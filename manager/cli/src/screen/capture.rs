//! `capture`: what an agent's terminal shows, as text.

use protocol::agent::Phase;
use protocol::api::{AgentScreen, Query, Reply};
use protocol::ids::{AgentId, HostId};
use protocol::screen::ScreenView;
use schemars::JsonSchema;
use serde::Serialize;

use super::super::args::screen::Capture;
use super::super::context::{Context, unexpected};
use super::super::error::{Failure, exit};
use super::super::output::pipe::{Stdout, say};
use super::super::output::render::{Listed, Listing, list};
use super::super::output::sanitise::{safe_coloured, safe_text};
use manager_plan::config::format::OutputFormat;
use manager_plan::runfile::units::human_size;

pub fn run(context: &Context, args: &Capture) -> Result<u8, Failure> {
    let mut client = context.client()?;
    let request =
        Query::Capture { target: args.target.clone(), history: args.history, colours: args.colours };
    let shown = match client.ask(&request)? {
        Reply::Screen(shown) => *shown,
        other => return Err(unexpected(other)),
    };
    let mut out = Stdout::default();
    if context.quiet {
        out.line(&shown.agent.to_string())?;
    } else if matches!(context.format, OutputFormat::Table | OutputFormat::Wide) {
        for line in text(&shown) {
            out.line(&if args.colours { safe_coloured(line) } else { safe_text(line.as_bytes()) })?;
        }
    } else {
        let as_of = Some(shown.screen.as_of);
        list(
            &mut out,
            &context.format,
            &Listing { items: std::slice::from_ref(&shown), as_of, note: None, empty: "" },
        )?;
    }
    out.done()?;
    let screen = &shown.screen;
    if screen.rendered_bytes < screen.transcript_bytes {
        say(&format!(
            "note: drawn from the last {} of {}: a row that was not drawn since may be missing",
            human_size(screen.rendered_bytes),
            human_size(screen.transcript_bytes)
        ));
    }
    Ok(exit::OK)
}

/// History and rows, without the empty rows at the end.
fn text(shown: &AgentScreen) -> impl Iterator<Item = &String> {
    let screen = &shown.screen;
    let end = screen.lines.iter().rposition(|line| !line.is_empty()).map_or(0, |last| last + 1);
    screen.history.iter().chain(screen.lines.iter().take(end))
}

/// A screen, and whose it is.
#[derive(Serialize, JsonSchema)]
pub struct ScreenDocument<'a> {
    #[serde(flatten)]
    screen: &'a ScreenView,
    agent: AgentId,
    name: &'a str,
    host: &'a HostId,
    phase: Phase,
}

impl Listed for AgentScreen {
    const KIND: &'static str = "ScreenList";
    const HEADER: &'static [&'static str] = &["NAME", "PHASE", "HOST", "ROWS", "COLS", "TITLE"];
    const WIDE: &'static [&'static str] = &["ID"];

    type Document<'a>
        = ScreenDocument<'a>
    where
        Self: 'a;

    fn document(&self) -> ScreenDocument<'_> {
        ScreenDocument {
            screen: &self.screen,
            agent: self.agent,
            name: &self.name,
            host: &self.host,
            phase: self.phase,
        }
    }

    fn name(&self) -> String {
        self.name.clone()
    }

    fn cells(&self, wide: bool) -> Vec<String> {
        let screen = &self.screen;
        let mut cells = vec![
            self.name.clone(),
            self.phase.to_string(),
            self.host.to_string(),
            screen.rows.to_string(),
            screen.cols.to_string(),
            screen.title.clone(),
        ];
        if wide {
            cells.push(self.agent.to_string());
        }
        cells
    }
}
