//! What is wrong with a task file, where, and what would be right. All of it is said at once, up to a limit.

use std::fmt;

/// Most problems that are said; the rest is counted.
pub const PROBLEM_LIMIT: usize = 20;

/// Line and column, from 1; 0 where there is none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Place {
    /// 0: the file itself; else one of those that it includes, as [`Collector::file`] numbers them.
    pub file: u32,
    pub line: u64,
    pub column: u64,
}

impl Place {
    pub fn new(line: u64, column: u64) -> Self {
        Self { file: 0, line, column }
    }

    pub fn line(line: u64) -> Self {
        Self::new(line, 0)
    }
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    pub at: Place,
    /// Name of the task, where it is one task's.
    pub task: Option<String>,
    pub message: String,
}

/// Everything that is wrong with one file. Nothing of it was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problems {
    pub file: String,
    /// Files that it includes.
    pub included: Vec<String>,
    pub first: Vec<Problem>,
    /// How many more there are.
    pub more: usize,
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.first.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            f.write_str(name_of(problem.at, &self.included).unwrap_or(&self.file))?;
            if problem.at.line > 0 {
                write!(f, ":{}", problem.at.line)?;
                if problem.at.column > 0 {
                    write!(f, ":{}", problem.at.column)?;
                }
            }
            f.write_str(": ")?;
            if let Some(task) = &problem.task {
                write!(f, "task {task:?}: ")?;
            }
            f.write_str(&problem.message)?;
        }
        if self.more > 0 {
            write!(f, "\n{}: and {} more problems", self.file, self.more)?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

/// The name of an included file.
fn name_of(at: Place, included: &[String]) -> Option<&str> {
    let index = usize::try_from(at.file.checked_sub(1)?).ok()?;
    included.get(index).map(String::as_str)
}

/// Takes problems as they are found.
#[derive(Debug, Default)]
pub struct Collector {
    found: Vec<Problem>,
    more: usize,
    included: Vec<String>,
}

impl Collector {
    pub fn add(&mut self, at: Place, message: impl Into<String>) {
        self.push(Problem { at, task: None, message: message.into() });
    }

    pub fn add_to_task(&mut self, at: Place, task: &str, message: impl Into<String>) {
        self.push(Problem { at, task: Some(task.to_owned()), message: message.into() });
    }

    fn push(&mut self, problem: Problem) {
        // The same key of `defaults` is met again with every task.
        if self.found.contains(&problem) {
            return;
        }
        if self.found.len() < PROBLEM_LIMIT {
            self.found.push(problem);
        } else {
            self.more += 1;
        }
    }

    /// The number of one more file, for places in it.
    pub fn file(&mut self, name: &str) -> u32 {
        self.included.push(name.to_owned());
        u32::try_from(self.included.len()).unwrap_or(u32::MAX)
    }

    /// `line 3`, or `line 3 of NAME` in a file that is included.
    pub fn shown(&self, at: Place) -> String {
        let of = name_of(at, &self.included).map(|name| format!(" of {name}")).unwrap_or_default();
        format!("line {}{of}", at.line)
    }

    pub fn count(&self) -> usize {
        self.found.len() + self.more
    }

    /// `value`, when nothing was wrong.
    pub fn finish<T>(mut self, file: &str, value: T) -> Result<T, Problems> {
        if self.found.is_empty() {
            return Ok(value);
        }
        self.found.sort_by_key(|problem| (problem.at.file, problem.at.line, problem.at.column));
        Err(Problems { file: file.to_owned(), included: self.included, first: self.found, more: self.more })
    }
}

/// `; did you mean "command"?`, when something known is near enough; else the list of what is known.
pub fn suggestion<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    let nearest = nearest(word, known.iter().copied());
    match nearest {
        Some(near) => format!("; did you mean {near:?}?"),
        None if known.is_empty() => String::new(),
        None if known.len() <= 30 => format!("; known are {}", known.join(", ")),
        None => String::new(),
    }
}

/// The known word that differs least, unless all differ too much.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if word.len() > 100 {
        return None;
    }
    known
        .into_iter()
        .map(|candidate| {
            (strsim::damerau_levenshtein(&word.to_lowercase(), &candidate.to_lowercase()), candidate)
        })
        .filter(|(distance, candidate)| *distance <= (candidate.chars().count().min(word.len()) / 3).max(1))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}
