//! How busy agents are, for the digest: the age of their output and what their cgroup counts.

use protocol::ids::AgentId;
use protocol::report::DigestRow;
use protocol::time::Timestamp;

use crate::machine::{Handle, Machine};

/// Fills in what the machine says of live agents. A fact that cannot be read is left out.
pub async fn measure(machine: Handle, rows: Vec<DigestRow>) -> Vec<DigestRow> {
    let measured = tokio::task::spawn_blocking(move || {
        machine.uploads.sweep();
        machine.sizes.sweep();
        rows.into_iter().map(|row| if row.phase.is_ended() { row } else { one(&machine, row) }).collect()
    });
    measured.await.unwrap_or_default()
}

fn one(machine: &Machine, mut row: DigestRow) -> DigestRow {
    if let Some((last_output, bytes)) = output_of(machine, row.agent) {
        row.last_output = last_output;
        row.transcript_bytes = bytes;
    }
    let group = machine.cgroups.open(&row.agent.to_string());
    if let Ok(stats) = group.and_then(|group| group.stats()) {
        row.cpu_ms = stats.cpu_usec.map_or(0, |usec| usec / 1000);
        row.memory_bytes = stats.memory_bytes.unwrap_or(0);
    }
    row
}

fn output_of(machine: &Machine, agent: AgentId) -> Option<(Option<Timestamp>, u64)> {
    let facts = std::fs::metadata(machine.folders.transcript(agent)).ok()?;
    let modified = facts.modified().ok()?.duration_since(std::time::UNIX_EPOCH).ok()?;
    let at = Timestamp(u64::try_from(modified.as_millis()).ok()?);
    // The file is made with the agent: before the first byte there was no output.
    Some(((facts.len() > 0).then_some(at), facts.len()))
}
