//! The words of `limit`: a quantity, or `none` to take the limit away.

use protocol::agent::ResourceLimits;
use protocol::api::{AgentView, Change, LimitChange};

use super::super::agent::create::quantity;
use super::super::args::settings::Limit;
use super::super::error::Failure;
use crate::runfile::units::{UnitError, cpu_millis, duration_ms, size_bytes};

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

/// The change that asks for the limits that are in force.
pub(super) fn restore(view: &AgentView) -> Option<Change> {
    let is = &view.report.as_ref()?.spec.limits;
    let wanted = &view.spec.limits;
    let back = |wanted: Option<u64>, is: Option<u64>| (wanted != is).then_some(is.unwrap_or(0));
    let limits = LimitChange {
        memory_bytes: back(wanted.memory_bytes, is.memory_bytes),
        cpu_millis: back(wanted.cpu_millis, is.cpu_millis),
        pids: back(wanted.pids, is.pids),
        time_ms: back(wanted.time_ms, is.time_ms),
    };
    (limits != LimitChange::default()).then_some(Change::Limit(limits))
}

/// The command that asks for the limits that are in force.
pub(super) fn take_back(view: &AgentView) -> Option<String> {
    let in_force = &view.report.as_ref()?.spec.limits;
    let wanted = &view.spec.limits;
    let words = words(wanted, in_force);
    (!words.is_empty()).then(|| format!("phalanx limit {}{words}", view.id))
}

fn words(wanted: &ResourceLimits, in_force: &ResourceLimits) -> String {
    let mut words = String::new();
    let mut say = |option: &str, wanted: Option<u64>, is: Option<u64>, show: fn(u64) -> String| {
        if wanted != is {
            words.push_str(&format!(" {option} {}", is.map_or_else(|| "none".to_owned(), show)));
        }
    };
    say("--memory", wanted.memory_bytes, in_force.memory_bytes, |bytes| bytes.to_string());
    say("--cpu", wanted.cpu_millis, in_force.cpu_millis, |millis| {
        format!("{}.{:03}", millis / 1000, millis % 1000)
    });
    say("--pids", wanted.pids, in_force.pids, |pids| pids.to_string());
    say("--timeout", wanted.time_ms, in_force.time_ms, |ms| format!("{ms}ms"));
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_that_are_in_force_are_said_as_words_that_are_read_back() {
        let wanted =
            ResourceLimits { memory_bytes: Some(1 << 20), pids: Some(3), ..ResourceLimits::default() };
        let is =
            ResourceLimits { memory_bytes: Some(1 << 30), time_ms: Some(1500), ..ResourceLimits::default() };
        assert_eq!(words(&wanted, &is), " --memory 1073741824 --pids none --timeout 1500ms");
        assert_eq!(size_bytes("1073741824").unwrap(), 1 << 30);
        assert_eq!(duration_ms("1500ms").unwrap(), 1500);
        assert_eq!(words(&is, &is), "");
    }
}
