//! `WatchRows`: all rows that fit, then each change of them once, in order. A client that reads slowly makes this wait,
//! and once it is further behind than changes are kept it is told so and begins anew.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use manager_core::{Following, RowCursor, RowNews, Selection};
use protocol::api::{Item, Reply};
use protocol::error::WireError;
use protocol::ids::AgentId;
use protocol::row::{AgentRow, Figures, RowItem, WatchRows};
use protocol::time::Timestamp;
use tokio::time::Instant;

use crate::driver::changes::Interest;
use crate::driver::{Driver, Glance};
use crate::server::session::Items;
use crate::stopping;

/// Changes that are taken with one look, so that no look holds the loop up.
const AT_ONCE: usize = 256;
/// Between two tellings of figures: hosts tell theirs every few seconds.
const FIGURES_EVERY: Duration = Duration::from_secs(1);

/// Tells rows until the client is gone.
///
/// # Errors
/// When the cursor is none, or the filter names a run that is not there.
pub async fn watch(driver: Driver, wish: WatchRows, items: Items) -> Result<Reply, WireError> {
    let asked: Option<RowCursor> = wish.cursor.as_deref().map(str::parse).transpose()?;
    let filter = wish.filter;
    let selection = Arc::new(driver.glance(move |glance| glance.core.selection(&filter)).await??);
    let mut changes = driver.watch(Interest::All).await?;
    let mut at = asked;
    let mut figures = Shown { shown: BTreeMap::new(), next: Instant::now() };
    loop {
        changes.mark_unchanged();
        let (looked, looking) = (at, Arc::clone(&selection));
        let step = driver.glance(move |glance| look(glance, looked, &looking)).await?;
        let more = match step {
            Step::All { rows, cursor, reset } => {
                at = Some(cursor);
                figures.shown = rows.iter().map(|row| (row.id, moving(row))).collect();
                send(&items, RowItem::All { rows, cursor: cursor.to_string(), reset }).await?;
                false
            }
            Step::Changes { news, cursor, more } => {
                at = Some(cursor);
                for RowNews { change, row, cursor } in news {
                    let row = Box::new(row);
                    send(&items, RowItem::One { change, row, cursor: cursor.to_string() }).await?;
                }
                more
            }
        };
        if wish.figures && !more && figures.next <= Instant::now() {
            figures.next = Instant::now() + FIGURES_EVERY;
            let looking = Arc::clone(&selection);
            let rows = driver.glance(move |glance| glance.rows.all(glance.core, &looking).0).await?;
            let moved = figures.moved(rows);
            if !moved.is_empty() {
                send(&items, RowItem::Figures(moved)).await?;
            }
        }
        if !more {
            changes.changed().await.map_err(|_| stopping())?;
        }
    }
}

enum Step {
    All { rows: Vec<AgentRow>, cursor: RowCursor, reset: Option<String> },
    Changes { news: Vec<RowNews>, cursor: RowCursor, more: bool },
}

fn look(glance: &Glance<'_>, at: Option<RowCursor>, selection: &Selection) -> Step {
    let reset = match at.map(|at| glance.rows.after(at, selection, AT_ONCE)) {
        Some(Following::Changes { news, cursor, more }) => return Step::Changes { news, cursor, more },
        Some(Following::Lost { why }) => Some(why.to_owned()),
        None => None,
    };
    let (rows, cursor) = glance.rows.all(glance.core, selection);
    Step::All { rows, cursor, reset }
}

async fn send(items: &Items, item: RowItem) -> Result<(), WireError> {
    Ok(items.send(&Item::Rows(item)).await?)
}

/// What of a row is told as figures.
fn moving(row: &AgentRow) -> (Figures, Option<Timestamp>) {
    (row.figures, row.last_output)
}

/// Figures as they were told last.
struct Shown {
    shown: BTreeMap<AgentId, (Figures, Option<Timestamp>)>,
    next: Instant,
}

impl Shown {
    fn moved(&mut self, rows: Vec<AgentRow>) -> Vec<AgentRow> {
        let mut now = BTreeMap::new();
        let mut moved = Vec::new();
        for row in rows {
            now.insert(row.id, moving(&row));
            if self.shown.get(&row.id) != Some(&moving(&row)) {
                moved.push(row);
            }
        }
        self.shown = now;
        moved
    }
}
