//! The words of `limit`: a quantity, or `none` to take the limit away.

use protocol::api::{Change, LimitChange};

use super::super::agent::create::quantity;
use super::super::args::settings::Limit;
use super::super::error::Failure;
use manager_plan::runfile::units::{UnitError, cpu_millis, duration_ms, size_bytes};

/// Less holds no program.
const MEMORY_MIN: u64 = 1 << 20;

pub(super) fn read(args: &Limit) -> Result<Change, Failure> {
    let limits = LimitChange {
        memory_bytes: wish("--memory", args.memory.as_deref(), size_bytes)?,
        cpu_millis: wish("--cpu", args.cpu.as_deref(), cpu_millis)?,
        pids: match args.pids.as_deref() {
            None => None,
            Some("none") => Some(0),
            Some(text) => match text.parse() {
                Ok(pids) if pids > 0 => Some(pids),
                _ => {
                    return Err(Failure::usage(format!(
                        "--pids: {text:?} is not a number above 0, nor none"
                    )));
                }
            },
        },
        time_ms: wish("--timeout", args.timeout.as_deref(), duration_ms)?,
    };
    if limits == LimitChange::default() {
        return Err(Failure::usage("no limit is given").hint("phalanx limit AGENT --memory 2G --cpu none"));
    }
    if limits.memory_bytes.is_some_and(|bytes| bytes > 0 && bytes < MEMORY_MIN) {
        return Err(Failure::usage("--memory must be at least 1M"));
    }
    Ok(Change::Limit(limits))
}

fn wish(
    field: &str,
    text: Option<&str>,
    read: fn(&str) -> Result<u64, UnitError>,
) -> Result<Option<u64>, Failure> {
    match text {
        None => Ok(None),
        Some("none") => Ok(Some(0)),
        Some(text) => match quantity(field, text, read)? {
            0 => Err(Failure::usage(format!("{field} must be more than 0; none takes the limit away"))),
            value => Ok(Some(value)),
        },
    }
}
