//! A hook as people and programs are shown it.

use manager_installation::ledger::Ledger;
use manager_plan::notify::hook::{Hook, Scope};
use protocol::notify::{HookFailure, HookView};
use protocol::time::Timestamp;

/// A hook as it may be shown, and how its deliveries went.
#[must_use]
pub fn view(hook: &Hook, ledger: Option<Ledger>) -> HookView {
    let ledger = ledger.unwrap_or_default();
    let failure = ledger.failure.map(|failed| HookFailure { at: Timestamp(failed.at_ms), why: failed.why });
    HookView {
        name: hook.name.clone(),
        shown: hook.to_string(),
        on: hook.on.clone(),
        only_asked: hook.scope == Scope::Asked,
        timeout_ms: hook.timeout_ms,
        delivered: ledger.delivered,
        lost: ledger.lost,
        failure,
        layer: hook.origin.layer.to_string(),
        place: hook.origin.place.clone(),
    }
}
