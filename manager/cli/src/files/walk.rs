//! Everything below a folder of an agent, a folder before what is in it.

use protocol::api::{Query, Reply};
use protocol::error::ErrorCode;
use protocol::files::{FileEntry, FileKind, FileList, FilePath};

use super::super::client::Client;
use super::super::context::unexpected;
use super::super::error::Failure;
use super::place::Place;

/// One page of a folder, or the one entry of what is no folder.
pub fn page(
    client: &mut Client,
    place: &Place,
    path: &FilePath,
    after: Option<Vec<u8>>,
) -> Result<FileList, Failure> {
    let request =
        Query::ListFiles { target: place.agent.clone(), area: place.area, path: path.clone(), after };
    match client.ask(&request)? {
        Reply::Files(list) => Ok(list),
        other => Err(unexpected(other)),
    }
}

/// Gives every entry of a folder to `take`, page by page.
pub fn folder(
    client: &mut Client,
    place: &Place,
    path: &FilePath,
    take: &mut dyn FnMut(&mut Client, FilePath, FileEntry) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut after = None;
    loop {
        let list = page(client, place, path, after)?;
        after = list.entries.last().map(|entry| entry.name.clone());
        for entry in list.entries {
            let below = below(path, &entry.name)?;
            take(client, below, entry)?;
        }
        if !list.more || after.is_none() {
            return Ok(());
        }
    }
}

/// Gives everything below a folder to `take`. A folder that is gone meanwhile was empty.
pub fn tree(
    client: &mut Client,
    place: &Place,
    take: &mut dyn FnMut(&mut Client, &FilePath, &FileEntry) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut folders = vec![place.path.clone()];
    while let Some(path) = folders.pop() {
        let mut found = Vec::new();
        let listed = folder(client, place, &path, &mut |client, path, entry| {
            take(client, &path, &entry)?;
            if entry.kind == FileKind::Folder {
                found.push(path);
            }
            Ok(())
        });
        match listed {
            Err(failure) if path != place.path && failure.exit_code() == ErrorCode::NotFound.exit_code() => {}
            other => other?,
        }
        folders.extend(found.into_iter().rev());
    }
    Ok(())
}

/// A name is one level: a host that says otherwise would have us write elsewhere.
fn below(folder: &FilePath, name: &[u8]) -> Result<FilePath, Failure> {
    let wrong = || Failure::new(ErrorCode::Failed, "the host lists a name that is none");
    if name.is_empty() || name == b"." || name.contains(&b'/') {
        return Err(wrong());
    }
    folder.join(name).map_err(|_| wrong())
}
