//! `signals:` of a profile, read strictly: every pattern is compiled here, so that a wrong one is told with its place
//! and not found out by a host.

use protocol::signals::{Children, PATTERN_LIMIT, Sign, Signals};
use regex::RegexBuilder;

use super::super::fields::Fields;
use super::super::format::node::{Kind, Node};
use super::super::problem::Collector;

const SIGNALS: &[&str] = &["rows", "ready", "asking", "busy", "idle"];
const SIGN: &[&str] = &["screen", "cursor", "title", "children"];
/// Rows of the largest screen that is drawn.
const ROWS_MAX: u16 = 300;
/// Signs for one question.
const SIGNS_MAX: usize = 32;

/// `None` and problems when something is wrong with it.
pub fn read(node: &Node, problems: &mut Collector) -> Option<Signals> {
    let before = problems.count();
    let mut fields = Fields::open(node, "signals", SIGNALS, None, problems)?;
    let mut signals = Signals::default();
    if let Some(rows) = fields.whole::<u16>("rows") {
        signals.rows = rows;
        if !(1..=ROWS_MAX).contains(&rows) {
            fields.complain(fields.place("rows"), format!("rows must be 1 to {ROWS_MAX}"));
        }
    }
    signals.ready = signs(&mut fields, "ready");
    signals.asking = signs(&mut fields, "asking");
    signals.busy = signs(&mut fields, "busy");
    signals.idle = signs(&mut fields, "idle");
    let all = [&signals.ready, &signals.asking, &signals.busy, &signals.idle];
    if all.iter().all(|signs| signs.is_empty()) && fields.problems.count() == before {
        fields.complain(fields.at, "signals names no sign; known are ready, asking, busy, idle");
    }
    (problems.count() == before).then_some(signals)
}

/// A sign, or a list of signs of which any is enough.
fn signs(fields: &mut Fields<'_>, key: &'static str) -> Vec<Sign> {
    let Some(node) = fields.get(key) else { return Vec::new() };
    let items = match &node.kind {
        Kind::List(items) => items.as_slice(),
        _ => std::slice::from_ref(node),
    };
    if items.len() > SIGNS_MAX {
        fields.complain(node.at, format!("{key} has more than {SIGNS_MAX} signs"));
    }
    items.iter().filter_map(|item| sign(item, key, fields.problems)).collect()
}

/// A text is a pattern for the screen.
fn sign(node: &Node, key: &'static str, problems: &mut Collector) -> Option<Sign> {
    if let Some(text) = node.scalar() {
        return match check(text) {
            Ok(()) => Some(Sign { screen: Some(text.to_owned()), ..Sign::default() }),
            Err(why) => {
                problems.add(node.at, format!("{key}: {why}"));
                None
            }
        };
    }
    let mut fields = Fields::open(node, "a sign", SIGN, None, problems)?;
    let mut pattern = |part: &str| {
        fields.parsed(part, "a regular expression", |text| check(text).map(|()| text.to_owned()))
    };
    let sign = Sign {
        screen: pattern("screen"),
        cursor: pattern("cursor"),
        title: pattern("title"),
        children: fields.word("children", &[("none", Children::None)]),
    };
    if sign == Sign::default() {
        if SIGN.iter().all(|part| fields.get(part).is_none()) {
            fields.complain(node.at, format!("{key}: a sign names screen, cursor, title or children"));
        }
        return None;
    }
    Some(sign)
}

fn check(pattern: &str) -> Result<(), String> {
    if pattern.is_empty() {
        return Err("an empty pattern is found on every screen".to_owned());
    }
    match RegexBuilder::new(pattern).multi_line(true).size_limit(PATTERN_LIMIT).build() {
        Ok(_) => Ok(()),
        Err(error) => {
            let text = error.to_string();
            let why = text.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
            Err(format!("{pattern:?} is not a regular expression: {why}"))
        }
    }
}
