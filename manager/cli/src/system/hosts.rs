//! `hosts`: the machines of the fleet.

use protocol::api::{HostView, Query, Reply};
use protocol::time::Timestamp;

use super::super::context::{Context, unexpected};
use super::super::error::{Failure, exit};
use super::super::output::pipe::Stdout;
use super::super::output::render::{Listed, Listing, list};
use super::super::output::when::{age, now};
use manager_plan::runfile::units::human_size;

pub struct HostRow {
    pub view: HostView,
    pub now: Timestamp,
}

impl Listed for HostRow {
    const KIND: &'static str = "HostList";
    const HEADER: &'static [&'static str] =
        &["HOST", "REGION", "HEARD", "AGENTS", "LOAD", "CPUS", "MEM FREE", "DISK FREE"];
    const WIDE: &'static [&'static str] = &["BUILD", "CGROUPS", "OVERLAY", "CLOCK", "DEGRADED"];

    type Document<'a>
        = &'a HostView
    where
        Self: 'a;

    fn document(&self) -> &HostView {
        &self.view
    }

    fn name(&self) -> String {
        self.view.host.to_string()
    }

    fn cells(&self, wide: bool) -> Vec<String> {
        let (view, facts) = (&self.view, &self.view.facts);
        let of = |free: u64, total: u64| format!("{} of {}", human_size(free), human_size(total));
        let mut cells = vec![
            view.host.to_string(),
            view.region.to_string(),
            format!("{} ({} ago)", view.reachability, age(self.now, view.last_seen)),
            view.live_agents.to_string(),
            format!("{}.{:02}", facts.load_percent / 100, facts.load_percent % 100),
            facts.cpus.to_string(),
            of(facts.memory_available_bytes, facts.memory_total_bytes),
            of(facts.disk_free_bytes, facts.disk_total_bytes),
        ];
        if wide {
            cells.extend([
                view.build.clone(),
                facts.cgroups.clone(),
                if facts.overlay { "yes" } else { "no" }.to_owned(),
                format!("{:+}ms", view.clock_offset_ms),
                facts.degraded.join("; "),
            ]);
        }
        cells
    }
}

pub fn run(context: &Context) -> Result<u8, Failure> {
    let mut client = context.client()?;
    let hosts = match client.ask(&Query::Hosts)? {
        Reply::Hosts(hosts) => hosts,
        other => return Err(unexpected(other)),
    };
    let now = now();
    let rows: Vec<HostRow> = hosts.into_iter().map(|view| HostRow { view, now }).collect();
    let mut out = Stdout::default();
    list(
        &mut out,
        &context.format,
        &Listing { items: &rows, as_of: Some(now), note: None, empty: "No hosts." },
    )?;
    out.done()?;
    Ok(exit::OK)
}
