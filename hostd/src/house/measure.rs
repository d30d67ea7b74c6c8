//! How much disk a folder takes. Follows no link, crosses no mount, counts a file with several names once; what may
//! not be read is not counted.

use std::collections::HashSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What the workspace in an agent's folder takes beyond what it shares with others.
pub(super) fn workspace_bytes(folder: &Path) -> u64 {
    // An overlay shows its base too: what is the agent's own lies beside the mount.
    let upper = folder.join("upper");
    if upper.symlink_metadata().is_ok() {
        disk_bytes(&upper).saturating_add(disk_bytes(&folder.join("ovl")))
    } else {
        disk_bytes(&folder.join("work"))
    }
}

/// Bytes of blocks, as `du` counts them. Nothing there is 0.
pub(super) fn disk_bytes(path: &Path) -> u64 {
    let Ok(top) = path.symlink_metadata() else { return 0 };
    let (device, mut seen) = (top.dev(), HashSet::new());
    let mut bytes = blocks(&top);
    let mut open: Vec<PathBuf> = if top.is_dir() { vec![path.to_path_buf()] } else { Vec::new() };
    while let Some(folder) = open.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        for entry in entries.flatten() {
            let Ok(facts) = entry.path().symlink_metadata() else { continue };
            if facts.dev() != device || (facts.nlink() > 1 && !facts.is_dir() && !seen.insert(facts.ino())) {
                continue;
            }
            bytes = bytes.saturating_add(blocks(&facts));
            if facts.is_dir() {
                open.push(entry.path());
            }
        }
    }
    bytes
}

fn blocks(facts: &std::fs::Metadata) -> u64 {
    facts.blocks().saturating_mul(512)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_count_once_and_nothing_behind_them_counts() {
        let temp = tempfile::tempdir().unwrap();
        let (elsewhere, top) = (temp.path().join("elsewhere"), temp.path().join("top"));
        std::fs::create_dir_all(top.join("deep/er")).unwrap();
        std::fs::create_dir(&elsewhere).unwrap();
        std::fs::write(elsewhere.join("large"), vec![1; 1 << 20]).unwrap();
        std::fs::write(top.join("deep/er/file"), vec![1; 100_000]).unwrap();
        let before = disk_bytes(&top);
        assert!((100_000..200_000).contains(&before), "{before}");
        std::fs::hard_link(top.join("deep/er/file"), top.join("twin")).unwrap();
        std::os::unix::fs::symlink(&elsewhere, top.join("link")).unwrap();
        assert!(disk_bytes(&top) < before + 20_000);
        assert_eq!(disk_bytes(&temp.path().join("nothing")), 0);
    }
}
