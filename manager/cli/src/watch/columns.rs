//! Columns of a list of agents: their names, their headings, and the order of rows by each.

use std::cmp::Ordering;
use std::str::FromStr;

use super::row::Row;
use manager_plan::runfile::problem::suggestion;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    Name,
    Phase,
    Host,
    Region,
    Age,
    Created,
    Started,
    Exit,
    Quiet,
    Cpu,
    Mem,
    Pids,
    Disk,
    Id,
    Task,
    Profile,
    User,
    Labels,
    Workspace,
    Branch,
    Wanted,
    Degraded,
    Reason,
}

/// Of a table.
pub const COLUMNS: &[Column] = &[
    Column::Name,
    Column::Phase,
    Column::Host,
    Column::Age,
    Column::Exit,
    Column::Quiet,
    Column::Cpu,
    Column::Mem,
];
/// Added to those by `-o wide`.
pub const WIDE: &[Column] = &[
    Column::Id,
    Column::Task,
    Column::Profile,
    Column::User,
    Column::Labels,
    Column::Workspace,
    Column::Reason,
];

const NAMES: &[(&str, Column)] = &[
    ("name", Column::Name),
    ("phase", Column::Phase),
    ("host", Column::Host),
    ("region", Column::Region),
    ("age", Column::Age),
    ("created", Column::Created),
    ("started", Column::Started),
    ("exit", Column::Exit),
    ("quiet", Column::Quiet),
    ("cpu", Column::Cpu),
    ("mem", Column::Mem),
    ("pids", Column::Pids),
    ("disk", Column::Disk),
    ("id", Column::Id),
    ("task", Column::Task),
    ("profile", Column::Profile),
    ("user", Column::User),
    ("labels", Column::Labels),
    ("workspace", Column::Workspace),
    ("branch", Column::Branch),
    ("wanted", Column::Wanted),
    ("degraded", Column::Degraded),
    ("reason", Column::Reason),
];

impl Column {
    pub fn heading(self) -> String {
        let named = NAMES.iter().find(|(_, column)| *column == self);
        named.map_or_else(String::new, |(name, _)| name.to_uppercase())
    }
}

impl FromStr for Column {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = || NAMES.iter().map(|(name, _)| *name);
        let wanted = text.to_lowercase();
        NAMES.iter().find(|(name, _)| *name == wanted).map(|(_, column)| *column).ok_or_else(|| {
            let all = known().collect::<Vec<_>>().join(", ");
            format!("there is no such column{}; it is one of {all}", suggestion(&wanted, known()))
        })
    }
}

/// The order of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sort {
    pub column: Column,
    pub reversed: bool,
}

impl FromStr for Sort {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, reversed) = text.strip_prefix('-').map_or((text, false), |name| (name, true));
        Ok(Self { column: name.parse()?, reversed })
    }
}

/// Puts rows in order; those without a value come last, and equal ones stay as they are.
pub fn sort(rows: &mut [Row], sort: Sort) {
    rows.sort_by(|one, other| {
        let (has, has_too) = (has_value(one, sort.column), has_value(other, sort.column));
        has_too.cmp(&has).then_with(|| {
            let order = compare(one, other, sort.column);
            if sort.reversed { order.reverse() } else { order }
        })
    });
}

fn has_value(row: &Row, column: Column) -> bool {
    !row.cell(column).is_empty()
}

fn compare(one: &Row, other: &Row, column: Column) -> Ordering {
    let by_number = |value: fn(&Row) -> Option<u64>| value(one).cmp(&value(other));
    match column {
        // The youngest first, as its age is the least.
        Column::Age => other.agent.created_at.cmp(&one.agent.created_at),
        Column::Created => one.agent.created_at.cmp(&other.agent.created_at),
        Column::Started => one.agent.started_at.cmp(&other.agent.started_at),
        Column::Quiet => by_number(Row::quiet_ms),
        Column::Cpu => by_number(|row| row.agent.figures.cpu_ms),
        Column::Mem => by_number(|row| row.agent.figures.memory_bytes),
        Column::Pids => by_number(|row| row.agent.figures.pids),
        Column::Disk => by_number(|row| row.agent.figures.disk_bytes),
        Column::Phase => one.agent.phase.cmp(&other.agent.phase),
        Column::Name
        | Column::Host
        | Column::Region
        | Column::Exit
        | Column::Id
        | Column::Task
        | Column::Profile
        | Column::User
        | Column::Labels
        | Column::Workspace
        | Column::Branch
        | Column::Wanted
        | Column::Degraded
        | Column::Reason => one.cell(column).cmp(&other.cell(column)),
    }
}
