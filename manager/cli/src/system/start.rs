//! `up` and `down`.

use protocol::error::ErrorCode;

use super::super::agent::change::stop_all;
use super::super::context::Context;
use super::super::error::{Failure, exit};
use super::super::output::pipe::{Stdout, say};
use super::super::output::sanitise::safe_line;
use super::boot;
use manager_installation::nats::install::install;
use manager_installation::start::UpOutcome;
use manager_installation::stop;
use protocol::chain;

pub fn up(context: &Context, enable: bool, install_nats: bool) -> Result<u8, Failure> {
    context.refuse_agents()?;
    if install_nats {
        let binary = install(&context.layout)
            .map_err(|error| Failure::new(ErrorCode::Failed, chain(&error)).hint("phalanx doctor"))?;
        say(&safe_line(&format!("nats-server is {}", binary.path.display())));
    }
    let mut out = Stdout::default();
    let enabled = enable.then(|| boot::enable(context)).transpose()?;
    let report = context.up().inspect_err(|_| {
        if let Some(enabled) = &enabled {
            enabled.withdraw(context);
        }
    })?;
    if !context.quiet {
        out.line(&match report.outcome {
            UpOutcome::AlreadyUp => "everything was up already".to_owned(),
            UpOutcome::Started => format!("up after {} ms", report.took.as_millis()),
        })?;
    }
    if let Some(enabled) = &enabled {
        enabled.tell(context, &mut out)?;
    }
    out.done()?;
    Ok(exit::OK)
}

pub fn down(context: &Context, disable: bool, stop_agents: bool) -> Result<u8, Failure> {
    let mut out = Stdout::default();
    if stop_agents {
        // Agents may live although the manager does not run: it is brought up to end them.
        let stopped = if context.layout.run().exists() { stop_all(&mut context.client()?)? } else { 0 };
        let agents = if stopped == 1 { "agent" } else { "agents" };
        out.line(&format!("{stopped} {agents} stopped"))?;
    }
    let report = stop::down(&context.layout)
        .map_err(|error| Failure::new(ErrorCode::Failed, chain(&error)).hint("phalanx status"))?;
    if !context.quiet {
        let names: Vec<&str> = report.ended.iter().map(|ended| ended.component.as_str()).collect();
        let goes_on = if stop_agents { "" } else { "; agents go on" };
        out.line(&safe_line(&match names.is_empty() {
            true => "nothing was running".to_owned(),
            false => format!("stopped {}{goes_on}", names.join(", ")),
        }))?;
    }
    // With agents that go on, their terminals and workspaces do.
    if stop_agents && !report.left.is_empty() {
        for left in &report.left {
            say(&safe_line(&format!("error: left on this machine: {left}")));
        }
        say(
            "  try: phalanx up, then phalanx down --stop-agents; a process that uses a folder keeps its mount",
        );
    }
    let code = if stop_agents && !report.left.is_empty() { exit::FAILED } else { exit::OK };
    if disable {
        boot::disable(context, &mut out)?;
    } else {
        boot::will_start(context, &mut out)?;
    }
    out.done()?;
    if code == exit::OK { Ok(code) } else { Err(Failure::Told(code)) }
}
