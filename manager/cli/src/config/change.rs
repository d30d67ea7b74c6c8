//! `config set`, `unset` and `edit`: a file is replaced whole, and only by one that is right.

use std::ffi::OsString;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use protocol::error::ErrorCode;

use super::super::context::{Context, files};
use super::super::error::{Failure, exit};
use super::super::output::pipe::say;
use super::super::output::sanitise::safe_line;
use manager_plan::config::edit::{self, EditError};
use manager_plan::config::key::{Key, LABEL_CAPS};
use manager_plan::config::layer::Layer;

/// Others may read what holds no secrets.
const MODE: u32 = 0o644;

pub fn set(context: &Context, key: &Key, value: &str, layer: Layer) -> Result<u8, Failure> {
    if let Err(message) = key.kind.check(value) {
        return Err(Failure::usage(format!("{}: {message}", key.name)));
    }
    if !key.may_be_set_by(layer) {
        let layers: Vec<&str> = key.layers.iter().map(|layer| layer.as_str()).collect();
        let message =
            format!("{} cannot be set by the {layer} file; it can be in: {}", key.name, layers.join(", "));
        return Err(Failure::new(ErrorCode::Denied, message));
    }
    let file = file(layer)?;
    let text = read(&file)?;
    let changed = edit::set(&text, &file.display().to_string(), layer, key, value).map_err(refused)?;
    if changed != text {
        write(&file, &changed)?;
    }
    tell(context, &format!("{} is {value} in {}", key.name, file.display()));
    if key.name == LABEL_CAPS.name && changed != text {
        tell(context, "the manager reads it when it starts: phalanx down, then phalanx up");
    }
    Ok(exit::OK)
}

pub fn unset(context: &Context, key: &Key, layer: Layer) -> Result<u8, Failure> {
    let file = file(layer)?;
    let text = read(&file)?;
    match edit::unset(&text, &file.display().to_string(), layer, key).map_err(refused)? {
        Some(changed) => {
            write(&file, &changed)?;
            tell(context, &format!("{} is no longer set in {}", key.name, file.display()));
        }
        None => tell(context, &format!("{} was not set in {}", key.name, file.display())),
    }
    Ok(exit::OK)
}

/// The person works on a copy, so that no command ever sees a file that is half right.
pub fn edit(context: &Context, layer: Layer) -> Result<u8, Failure> {
    let file = file(layer)?;
    let text = read(&file)?;
    let copy = file.with_extension("editing.toml");
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder).map_err(|error| failed("make", folder, &error))?;
    }
    // A copy that was left is what the person wrote last.
    if !copy.exists() {
        std::fs::write(&copy, &text).map_err(|error| failed("write", &copy, &error))?;
    }
    open_editor(&copy)?;
    let changed = std::fs::read_to_string(&copy).map_err(|error| failed("read", &copy, &error))?;
    if let Err(problems) = edit::check(&changed, &copy.display().to_string(), layer) {
        return Err(Failure::usage(format!("it is wrong and was not taken\n{problems}"))
            .hint(format!("phalanx config edit --layer {layer} (goes on with what you wrote)")));
    }
    if changed != text {
        write(&file, &changed)?;
    }
    std::fs::remove_file(&copy).map_err(|error| failed("remove", &copy, &error))?;
    tell(
        context,
        &format!("{} {}", file.display(), if changed == text { "is unchanged" } else { "is changed" }),
    );
    Ok(exit::OK)
}

/// In the foreground, and waited for.
fn open_editor(copy: &Path) -> Result<(), Failure> {
    let named = |name: &str| std::env::var_os(name).filter(|editor| !editor.is_empty());
    let editor = named("VISUAL").or_else(|| named("EDITOR")).unwrap_or_else(|| OsString::from("vi"));
    let mut script = editor.clone();
    script.push(" \"$1\"");
    let ended = std::process::Command::new("sh").arg("-c").arg(script).arg("sh").arg(copy).status();
    match ended {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Failure::new(
            ErrorCode::Failed,
            format!("{} ended with {status}; nothing was changed", editor.to_string_lossy()),
        )
        .hint("set EDITOR to a program that edits a file")),
        Err(error) => Err(Failure::new(ErrorCode::Failed, format!("cannot start sh: {error}"))),
    }
}

fn file(layer: Layer) -> Result<PathBuf, Failure> {
    let here = std::env::current_dir().unwrap_or_default();
    let file = files().of(layer, &here);
    // What a link leads to is changed, not the link: settings often lie in a repository of their own.
    let file = file.map(|path| std::fs::canonicalize(&path).unwrap_or(path));
    file.ok_or_else(|| {
        Failure::usage(format!("there is no {layer} file: neither XDG_CONFIG_HOME nor HOME is set"))
    })
}

fn read(file: &Path) -> Result<String, Failure> {
    match std::fs::read_to_string(file) {
        Ok(text) => Ok(text),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(failed("read", file, &error)),
    }
}

fn write(file: &Path, text: &str) -> Result<(), Failure> {
    let folder = file.parent().unwrap_or(Path::new("/"));
    std::fs::create_dir_all(folder).map_err(|error| failed("make", folder, &error))?;
    let mode = std::fs::metadata(file).map_or(MODE, |facts| facts.permissions().mode());
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let new = file.with_file_name(name);
    let written = (|| {
        let mut opened = std::fs::File::create(&new)?;
        opened.write_all(text.as_bytes())?;
        opened.set_permissions(std::fs::Permissions::from_mode(mode))?;
        opened.sync_all()?;
        std::fs::rename(&new, file)
    })();
    written.map_err(|error| {
        let _ = std::fs::remove_file(&new);
        failed("write", file, &error)
    })
}

fn refused(error: EditError) -> Failure {
    Failure::usage(format!("nothing was changed: {}", protocol::chain(&error))).hint("phalanx config edit")
}

fn failed(what: &str, path: &Path, error: &std::io::Error) -> Failure {
    let code =
        if error.kind() == ErrorKind::PermissionDenied { ErrorCode::Denied } else { ErrorCode::Failed };
    Failure::new(code, format!("cannot {what} {}: {error}", path.display()))
}

fn tell(context: &Context, line: &str) {
    if !context.quiet {
        say(&safe_line(line));
    }
}
