//! Brings commits of a workspace into the person's repository: packed from a git folder of ours,
//! unpacked by the owner of the repository, who checks every object. No transport is involved, so
//! no configuration of either side has a say. Leaves to others: the refs that then keep them.

use std::path::Path;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::super::error::{Error, Result};
use super::super::git::Git;
use super::super::repository::Repository;

/// From here on one pack file is better than loose objects; git's own limit for fetches.
const KEEP_PACKED: u32 = 100;
/// `PACK`, version, number of objects (gitformat-pack(5)).
const HEADER: usize = 12;

/// Faults that old histories have and that git works with: of a commit's or tag's header, or of a mode (git-fsck(1)).
/// What may harm a checkout is not among them.
const TOLERATED: [&str; 12] = [
    "badDate",
    "badDateOverflow",
    "badEmail",
    "badName",
    "badTimezone",
    "missingEmail",
    "missingNameBeforeEmail",
    "missingSpaceBeforeDate",
    "missingSpaceBeforeEmail",
    "multipleAuthors",
    "zeroPaddedDate",
    "zeroPaddedFilemode",
];

/// Refused for what the objects are: the same objects are refused again.
fn refused(from: &Path, error: Error) -> Error {
    match error {
        Error::Git { stderr, .. } if stderr.contains("fsck error") || stderr.contains("error: object ") => {
            Error::BadContent { path: from.to_path_buf(), detail: stderr }
        }
        other => other,
    }
}

/// Everything that `tips` reach and what is `there` does not.
pub(crate) async fn bring(
    git: &Git,
    from: &Path,
    to: &Repository,
    tips: &[String],
    there: &[&str],
) -> Result<()> {
    let mut wanted = tips.join("\n");
    wanted.push('\n');
    for known in there {
        wanted.push_str(&format!("^{known}\n"));
    }
    const READ: &str = "pack the agent's commits";
    let packing = git.call(READ).git_dir(from);
    let _slot = packing.slot().await?;
    let limit = git.limit();
    let work = async {
        let mut packing = packing
            .args(["pack-objects", "--revs", "--thin", "--delta-base-offset", "--stdout", "-q"])
            .start()?;
        let failed = |source| Error::GitStart { operation: READ, source };
        let (Some(mut ask), Some(mut pack)) = (packing.child.stdin.take(), packing.child.stdout.take())
        else {
            return Err(Error::Interrupted { operation: READ });
        };
        // Less than a pipe holds, so this cannot wait for ever; a git that died says why below.
        let _ = ask.write_all(wanted.as_bytes()).await;
        drop(ask);
        let mut header = [0u8; HEADER];
        if pack.read_exact(&mut header).await.is_err() {
            packing.finish().await?;
            return Err(Error::GitAnswer { operation: READ, detail: "no pack came".to_owned() });
        }
        let [.., a, b, c, d] = header;
        let objects = u32::from_be_bytes([a, b, c, d]);
        if objects == 0 {
            drop(pack);
            // Nobody reads the trailing checksum: an end by SIGPIPE is no fault.
            let _ = packing.finish().await;
            return Ok(());
        }
        let strict = format!("--strict={}", TOLERATED.map(|fault| format!("{fault}=ignore")).join(","));
        let verb: &[&str] = match objects {
            ..KEEP_PACKED => &["unpack-objects", "-q", &strict],
            _ => &["index-pack", "--stdin", "--fix-thin", &strict],
        };
        const WRITE: &str = "store the agent's commits in the repository";
        let mut storing =
            git.call(WRITE).git_dir(&to.common_dir).act_as(to.act_as).durable().args(verb).start()?;
        let Some(mut store) = storing.child.stdin.take() else {
            return Err(Error::Interrupted { operation: WRITE });
        };
        let quiet = storing.child.stdout.take();
        let copy = async {
            store.write_all(&header).await?;
            tokio::io::copy(&mut pack, &mut store).await?;
            store.shutdown().await?;
            drop(store);
            std::io::Result::Ok(())
        };
        let drain = async {
            if let Some(mut quiet) = quiet {
                let _ = tokio::io::copy(&mut quiet, &mut tokio::io::sink()).await;
            }
        };
        let (copied, (), stored) = tokio::join!(copy, drain, storing.finish());
        // A cut stream shows at the end that broke it, with git's own words.
        stored.map_err(|error| refused(from, error))?;
        packing.finish().await?;
        copied.map_err(failed)
    };
    tokio::time::timeout(limit, work).await.map_err(|_| Error::TimedOut { operation: READ, limit })?
}
