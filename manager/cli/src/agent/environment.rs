//! `--env` and `--env-file`: where the values of an agent's environment come from. Values are never shown.

use std::path::Path;

use protocol::agent::Environment;
use protocol::error::ErrorCode;

use super::super::error::Failure;
use manager_plan::runfile::task::check_variable;

/// Files first, so that `--env` wins.
pub fn read(pairs: &[String], files: &[impl AsRef<Path>]) -> Result<Environment, Failure> {
    let mut environment = Environment::default();
    for file in files {
        read_file(file.as_ref(), &mut environment)?;
    }
    for pair in pairs {
        let (name, value) = match pair.split_once('=') {
            Some((name, value)) => (name, value.to_owned()),
            None => (pair.as_str(), caller_value(pair)?),
        };
        check_variable(name).map_err(|why| Failure::usage(format!("--env: {why}")))?;
        environment.0.insert(name.to_owned(), value);
    }
    Ok(environment)
}

fn caller_value(name: &str) -> Result<String, Failure> {
    std::env::var(name).map_err(|error| {
        let why = match error {
            std::env::VarError::NotPresent => "is not set here",
            std::env::VarError::NotUnicode(_) => "is not UTF-8 here",
        };
        Failure::usage(format!("--env {name}: the variable {why}")).hint(format!("--env {name}=VALUE"))
    })
}

fn read_file(path: &Path, environment: &mut Environment) -> Result<(), Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        let code = match error.kind() {
            std::io::ErrorKind::NotFound => ErrorCode::NotFound,
            std::io::ErrorKind::PermissionDenied => ErrorCode::Denied,
            _ => ErrorCode::Invalid,
        };
        Failure::new(code, format!("--env-file: cannot read {}: {error}", path.display()))
    })?;
    for (line, number) in text.lines().zip(1..) {
        let line = line.trim_start();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let line = line.strip_prefix("export ").unwrap_or(line);
        let wrong = |why: &str| Failure::usage(format!("--env-file: {}:{number}: {why}", path.display()));
        let (name, value) = line.split_once('=').ok_or_else(|| wrong("a line must be NAME=VALUE"))?;
        check_variable(name).map_err(|why| wrong(&why))?;
        environment.0.insert(name.to_owned(), unquoted(value).to_owned());
    }
    Ok(())
}

/// Without the quotes around the whole value.
fn unquoted(value: &str) -> &str {
    let value = value.trim_end();
    for quote in ['"', '\''] {
        if let Some(inner) = value.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote)) {
            return inner;
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_and_the_option_wins() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("env");
        std::fs::write(&file, "# c\n\nA=1\nexport B=\"two words\"\nC='x=y'\n").unwrap();
        let read = read(&["A=9".to_owned()], &[&file]).unwrap();
        assert_eq!(read.0.get("A").unwrap(), "9");
        assert_eq!(read.0.get("B").unwrap(), "two words");
        assert_eq!(read.0.get("C").unwrap(), "x=y");
    }

    #[test]
    fn a_wrong_line_is_named_and_its_value_is_not_shown() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("env");
        std::fs::write(&file, "A=1\ns3cr3t\n").unwrap();
        let said = read(&[], &[&file]).unwrap_err().rendered(false).unwrap();
        assert!(said.contains("env:2: a line must be NAME=VALUE") && !said.contains("s3cr3t"), "{said}");
        let none: &[&str] = &[];
        let said =
            read(&["PHALANX_TEST_NOT_SET_ANYWHERE".to_owned()], none).unwrap_err().rendered(false).unwrap();
        assert!(said.contains("is not set here"), "{said}");
    }
}
