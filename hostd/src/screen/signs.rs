//! Signs, compiled, and what one look at a screen makes of them. Pure.

use hostd_core::{Activity, Evidence};
use protocol::signals::{Children, Dialog, PATTERN_LIMIT, Sign, Signals};
use regex::{Regex, RegexBuilder};

use super::terminal::{Style, Terminal};

/// A dialog's text and choices are told up to this length each.
const TEXT_MAX: usize = 300;
const CHOICES_MAX: usize = 12;

/// What is looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct View {
    /// The last rows that are not blank and what stands between them, as lines.
    pub(super) rows: String,
    /// The same rows as the terminal has them: the cursor's up to the cursor, every other that is not full with a blank
    /// at its end. A prompt often ends with one.
    pub(super) padded: String,
    /// The cursor's row up to the cursor.
    pub(super) cursor: String,
    pub(super) title: String,
}

impl View {
    pub(super) fn of(terminal: &Terminal, rows: u16) -> Self {
        let lines = terminal.lines(Style::Plain);
        let end = lines.iter().rposition(|line| !line.is_empty()).map_or(0, |last| last + 1);
        let start = end.saturating_sub(usize::from(rows));
        let (cursor, place) = (terminal.before_cursor(), usize::from(terminal.place().row));
        let cols = usize::from(terminal.size().cols());
        let shown = lines.get(start..end).unwrap_or_default();
        let padded = (start..).zip(shown).map(|(row, line)| {
            if row == place && cursor.len() > line.len() {
                cursor.clone()
            } else if line.is_empty() || line.chars().count() >= cols {
                line.clone()
            } else {
                format!("{line} ")
            }
        });
        Self {
            padded: padded.collect::<Vec<_>>().join("\n"),
            rows: shown.join("\n"),
            cursor,
            title: terminal.title().to_owned(),
        }
    }
}

/// Whether the program has children that live, as far as that can be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HasChildren {
    Yes,
    No,
    Unknown,
}

/// What one look found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) activity: Activity,
    pub(super) evidence: Evidence,
    /// A sign of `ready` is seen.
    pub(super) ready: bool,
    /// It hangs on processes, which come and go without a word on the screen.
    pub(super) by_children: bool,
}

#[derive(Debug)]
struct Compiled {
    screen: Option<Regex>,
    cursor: Option<Regex>,
    title: Option<Regex>,
    children: Option<Children>,
}

impl Compiled {
    fn of(sign: &Sign) -> Result<Self, regex::Error> {
        let compile = |pattern: &Option<String>| pattern.as_deref().map(pattern_of).transpose();
        Ok(Self {
            screen: compile(&sign.screen)?,
            cursor: compile(&sign.cursor)?,
            title: compile(&sign.title)?,
            children: sign.children,
        })
    }

    /// Whether all that it says of the terminal holds. A sign that says nothing at all never does.
    fn is_shown(&self, view: &View) -> bool {
        let holds = |pattern: &Option<Regex>, text: &str| pattern.as_ref().is_none_or(|p| p.is_match(text));
        (self.shows_something() || self.children.is_some())
            && (holds(&self.screen, &view.rows) || holds(&self.screen, &view.padded))
            && holds(&self.cursor, &view.cursor)
            && holds(&self.title, &view.title)
    }

    fn shows_something(&self) -> bool {
        self.screen.is_some() || self.cursor.is_some() || self.title.is_some()
    }
}

fn pattern_of(text: &str) -> Result<Regex, regex::Error> {
    RegexBuilder::new(text).multi_line(true).size_limit(PATTERN_LIMIT).build()
}

/// The signs of one program.
#[derive(Debug)]
pub(super) struct Signs {
    pub(super) rows: u16,
    ready: Vec<Compiled>,
    asking: Vec<Compiled>,
    busy: Vec<Compiled>,
    idle: Vec<Compiled>,
}

impl Signs {
    /// # Errors
    /// A pattern that is none: its client has not checked it.
    pub(super) fn compile(signals: &Signals) -> Result<Self, regex::Error> {
        let all = |signs: &[Sign]| signs.iter().map(Compiled::of).collect::<Result<Vec<_>, _>>();
        Ok(Self {
            rows: signals.rows,
            ready: all(&signals.ready)?,
            asking: all(&signals.asking)?,
            busy: all(&signals.busy)?,
            idle: all(&signals.idle)?,
        })
    }

    /// `children` is asked only where it matters.
    pub(super) fn judge(&self, view: &View, mut children: impl FnMut() -> HasChildren) -> Verdict {
        let mut by_children = false;
        let mut waits_for_children = false;
        let mut evidence = Evidence::Screen;
        let mut seen = |signs: &[Compiled]| {
            signs.iter().any(|sign| {
                if !sign.is_shown(view) {
                    return false;
                }
                let Some(wanted) = sign.children else {
                    evidence = Evidence::Screen;
                    return true;
                };
                by_children = true;
                let has = children();
                waits_for_children |= has == HasChildren::Yes && wanted == Children::None;
                evidence = if sign.shows_something() { Evidence::Screen } else { Evidence::Process };
                has == HasChildren::No && wanted == Children::None
            })
        };
        let activity = if seen(&self.asking) {
            Activity::Asking(dialog(&view.rows))
        } else if seen(&self.busy) {
            Activity::Busy
        } else if seen(&self.idle) {
            Activity::Idle
        } else {
            Activity::Unknown
        };
        let mut has_none = |wanted| wanted == Children::None && children() == HasChildren::No;
        let ready = match self.ready.as_slice() {
            [] => waits_for_children || matches!(activity, Activity::Busy | Activity::Idle),
            signs => {
                by_children |= signs.iter().any(|sign| sign.children.is_some());
                signs.iter().any(|sign| sign.is_shown(view) && sign.children.is_none_or(&mut has_none))
            }
        };
        match activity {
            // At its prompt by the looks of it, but what it started goes on.
            Activity::Unknown if waits_for_children => {
                Verdict { activity: Activity::Busy, evidence: Evidence::Process, ready, by_children }
            }
            activity => Verdict { activity, evidence, ready, by_children },
        }
    }
}

/// The question and the numbered choices of what is looked at: the last row that asks, else the last at all.
fn dialog(rows: &str) -> Dialog {
    let bare =
        |row: &str| row.trim_matches(|c: char| c.is_whitespace() || "│┃|╭╮╰╯─━".contains(c)).to_owned();
    let lines: Vec<String> = rows.lines().map(bare).filter(|line| !line.is_empty()).collect();
    let choices: Vec<String> =
        lines.iter().filter_map(|line| choice(line)).map(|text| cut(&text)).take(CHOICES_MAX).collect();
    let asks = lines.iter().rev().find(|line| line.contains('?') && choice(line).is_none());
    let plain = || lines.iter().rev().find(|line| choice(line).is_none());
    let text = asks.or_else(plain).map(|line| cut(line)).unwrap_or_default();
    Dialog { text, choices }
}

/// `❯ 1. Yes` → `1. Yes`.
fn choice(line: &str) -> Option<String> {
    let line = line.trim_start_matches(|c: char| c.is_whitespace() || "❯›>→*●○•".contains(c));
    let (number, rest) = line.split_once(['.', ')'])?;
    let is_number = (1..=2).contains(&number.len()) && number.bytes().all(|byte| byte.is_ascii_digit());
    let text = rest.strip_prefix(' ')?.trim();
    (is_number && !text.is_empty()).then(|| format!("{number}. {text}"))
}

fn cut(text: &str) -> String {
    text.chars().take(TEXT_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sign(pattern: &str) -> Sign {
        Sign { screen: Some(pattern.into()), ..Sign::default() }
    }

    fn judge(signals: &Signals, rows: &str, children: HasChildren) -> Activity {
        let view = View { rows: rows.into(), ..View::default() };
        Signs::compile(signals).unwrap().judge(&view, || children).activity
    }

    #[test]
    fn the_first_sign_in_order_counts_and_none_is_no_guess() {
        let signals = Signals {
            asking: vec![sign("sure\\?$")],
            busy: vec![sign("work"), sign("^\\*")],
            idle: vec![sign("^> \\z")],
            ..Signals::default()
        };
        for (rows, expected) in [
            ("work\nsure?", Activity::Asking(Dialog { text: "sure?".into(), choices: vec![] })),
            ("* x\n> ", Activity::Busy),
            ("done\n> ", Activity::Idle),
            ("> \nmore", Activity::Unknown),
            ("", Activity::Unknown),
        ] {
            assert_eq!(judge(&signals, rows, HasChildren::Unknown), expected, "{rows:?}");
        }
    }

    #[test]
    fn all_of_a_sign_must_hold_and_an_empty_one_never_does() {
        let both = Sign { title: Some("^idle".into()), cursor: Some("> $".into()), ..sign("ready") };
        let signs =
            Signs::compile(&Signals { idle: vec![both, Sign::default()], ..Signals::default() }).unwrap();
        let view =
            View { rows: "ready".into(), cursor: "> ".into(), title: "idle".into(), ..View::default() };
        let activity = |view: &View| signs.judge(view, || HasChildren::No).activity;
        assert_eq!(activity(&view), Activity::Idle);
        for other in [
            View { rows: String::new(), ..view.clone() },
            View { cursor: "> typed".into(), ..view.clone() },
            View { title: String::new(), ..view.clone() },
        ] {
            assert_eq!(activity(&other), Activity::Unknown, "{other:?}");
        }
    }

    #[test]
    fn at_its_prompt_with_children_it_is_busy_by_its_processes_and_unknown_is_no_answer() {
        let at_prompt = Sign { children: Some(Children::None), ..sign("\\$ \\z") };
        let signs = Signs::compile(&Signals { idle: vec![at_prompt], ..Signals::default() }).unwrap();
        let view = |rows: &str| View { rows: rows.into(), ..View::default() };
        let verdict = signs.judge(&view("$ "), || HasChildren::Yes);
        assert_eq!((verdict.activity, verdict.evidence), (Activity::Busy, Evidence::Process));
        assert!(verdict.by_children && verdict.ready);
        assert_eq!(signs.judge(&view("$ "), || HasChildren::Unknown).activity, Activity::Unknown);
        assert_eq!(signs.judge(&view("$ "), || HasChildren::No).activity, Activity::Idle);
        // Not asked for where the screen says no.
        let verdict = signs.judge(&view("out"), || panic!("asked"));
        assert_eq!((verdict.activity, verdict.by_children), (Activity::Unknown, false));
        let newer = Sign { children: Some(Children::Unknown), ..sign("x") };
        let signs = Signs::compile(&Signals { idle: vec![newer], ..Signals::default() }).unwrap();
        assert_eq!(signs.judge(&view("x"), || HasChildren::No).activity, Activity::Unknown);
    }

    #[test]
    fn processes_alone_can_be_a_sign() {
        let alone = Sign { children: Some(Children::None), ..Sign::default() };
        let signs = Signs::compile(&Signals { idle: vec![alone], ..Signals::default() }).unwrap();
        let verdict = signs.judge(&View::default(), || HasChildren::No);
        assert_eq!((verdict.activity, verdict.evidence), (Activity::Idle, Evidence::Process));
    }

    #[test]
    fn ready_has_signs_of_its_own_or_is_the_first_that_is_known() {
        let signals = Signals { ready: vec![sign("welcome")], idle: vec![sign("> ")], ..Signals::default() };
        let ready = |signals: &Signals, rows: &str| {
            let view = View { rows: rows.into(), ..View::default() };
            Signs::compile(signals).unwrap().judge(&view, || HasChildren::No).ready
        };
        assert!(ready(&signals, "welcome") && !ready(&signals, "> "));
        let signals = Signals { ready: vec![], ..signals };
        assert!(ready(&signals, "> ") && !ready(&signals, "welcome"));
    }

    #[test]
    fn of_a_dialog_the_question_and_its_choices_are_told() {
        let rows = "╭────╮\n│ Bash command │\n│ Do you want to proceed? │\n│ ❯ 1. Yes │\n│   2. Yes, and allow a.b │\n│   3. No (esc) │\n╰────╯\n Esc to cancel";
        let told = dialog(rows);
        assert_eq!(told.text, "Do you want to proceed?");
        assert_eq!(told.choices, ["1. Yes", "2. Yes, and allow a.b", "3. No (esc)"]);
        assert_eq!(dialog("Allow? (y/n)").text, "Allow? (y/n)");
        assert_eq!(dialog("Version 1.2 is here\nPress enter").text, "Press enter");
        assert_eq!(dialog(&"x?".repeat(1000)).text.len(), TEXT_MAX);
    }

    #[test]
    fn a_blank_at_the_end_of_a_prompt_is_part_of_its_row() {
        let shows = |bytes: &str, pattern: &str| {
            let mut terminal = Terminal::new(super::super::Size::new(5, 10), 0).unwrap();
            terminal.feed(bytes.as_bytes());
            let signs = Signs::compile(&Signals { idle: vec![sign(pattern)], ..Signals::default() }).unwrap();
            signs.judge(&View::of(&terminal, 5), || HasChildren::No).activity == Activity::Idle
        };
        assert!(shows("out\r\n> ", "> $") && shows("out\r\n> ", "^> \\z") && shows("> ", ">$"));
        assert!(shows("out\r\n>>  ", ">>  $"), "as many as were printed");
        assert!(!shows("> typed", "> $") && !shows("out\r\n>", ">  $"));
        assert!(shows("\x1b[?25l> \r\nhelp", "^> $"), "also where the cursor is elsewhere");
        assert!(!shows("012345678>", "> $"), "a row that is full has none");
    }

    #[test]
    fn only_the_last_rows_are_looked_at() {
        let mut terminal = Terminal::new(super::super::Size::new(20, 40), 0).unwrap();
        terminal.feed(b"esc to interrupt\r\n1\r\n2\r\n3\r\n> ");
        assert_eq!(View::of(&terminal, 3).rows, "2\n3\n>");
        assert_eq!(View::of(&terminal, 3).cursor, "> ");
        assert!(View::of(&terminal, 5).rows.starts_with("esc to interrupt"));
    }
}
