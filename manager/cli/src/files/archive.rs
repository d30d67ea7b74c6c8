//! Headers of a tar stream whose contents come in pieces: the ustar form, with pax records for what does not fit
//! (pax(1)).

use std::io::Write;

use protocol::files::{FileEntry, FileKind};
use tar::{Builder, EntryType, Header};

use super::super::error::Failure;

/// Longest path or link target that a header itself holds.
const FITS: usize = 100;
const BLOCK: u64 = 512;

pub struct Archive<W: Write>(Builder<W>);

impl<W: Write> Archive<W> {
    pub fn new(out: W) -> Self {
        Self(Builder::new(out))
    }

    /// The header of an entry; of a file, `bytes` follow.
    pub fn begin(&mut self, path: &[u8], entry: &FileEntry, bytes: u64) -> Result<(), Failure> {
        let mut header = Header::new_ustar();
        let target = entry.target.as_deref().unwrap_or_default();
        let long = [("path", path), ("linkpath", target)].into_iter().filter(|(_, text)| text.len() > FITS);
        let long: Vec<(&str, &[u8])> = long.collect();
        if !long.is_empty() {
            self.0.append_pax_extensions(long)?;
        }
        header.set_entry_type(match entry.kind {
            FileKind::Folder => EntryType::Directory,
            FileKind::Link => EntryType::Symlink,
            FileKind::File | FileKind::Other | FileKind::Unknown => EntryType::Regular,
        });
        let fields = header.as_ustar_mut();
        if let Some(fields) = fields {
            fill(&mut fields.name, path);
            fill(&mut fields.linkname, target);
        }
        header.set_mode(entry.mode);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(entry.modified.0 / 1000);
        header.set_size(if entry.kind == FileKind::File { bytes } else { 0 });
        header.set_cksum();
        Ok(self.0.get_mut().write_all(header.as_bytes())?)
    }

    pub fn bytes(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        Ok(self.0.get_mut().write_all(bytes)?)
    }

    /// After `bytes` of content.
    pub fn end(&mut self, bytes: u64) -> Result<(), Failure> {
        let missing = usize::try_from((BLOCK - bytes % BLOCK) % BLOCK).unwrap_or(0);
        Ok(self.0.get_mut().write_all(&vec![0; missing])?)
    }

    pub fn finish(self) -> Result<W, Failure> {
        Ok(self.0.into_inner()?)
    }
}

fn fill(field: &mut [u8], text: &[u8]) {
    for (place, byte) in field.iter_mut().zip(text) {
        *place = *byte;
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use protocol::time::Timestamp;

    use super::*;

    #[test]
    fn what_is_written_is_read_back_also_with_long_names() {
        let entry = |kind, target: Option<&[u8]>| FileEntry {
            name: Vec::new(),
            kind,
            bytes: 0,
            mode: 0o750,
            modified: Timestamp(1_700_000_000_000),
            target: target.map(<[u8]>::to_vec),
        };
        let long = "d/".repeat(120) + "f";
        let mut archive = Archive::new(Vec::new());
        archive.begin(b"d", &entry(FileKind::Folder, None), 0).unwrap();
        for (name, content) in [("d/a", &b"hello"[..]), (&long, &[7; 1024]), ("d/empty", b"")] {
            let bytes = content.len().try_into().unwrap();
            archive.begin(name.as_bytes(), &entry(FileKind::File, None), bytes).unwrap();
            archive.bytes(content).unwrap();
            archive.end(bytes).unwrap();
        }
        archive.begin(b"l", &entry(FileKind::Link, Some(long.as_bytes())), 0).unwrap();
        let bytes = archive.finish().unwrap();
        let mut seen = Vec::new();
        for entry in tar::Archive::new(bytes.as_slice()).entries().unwrap() {
            let mut entry = entry.unwrap();
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            let path = String::from_utf8(entry.path_bytes().into_owned()).unwrap();
            let target = entry.link_name_bytes().map(|target| target.len());
            seen.push((path, content.len(), target, entry.header().mode().unwrap()));
        }
        let long_target = Some(long.len());
        assert_eq!(
            seen,
            [
                ("d".to_owned(), 0, None, 0o750),
                ("d/a".to_owned(), 5, None, 0o750),
                (long, 1024, None, 0o750),
                ("d/empty".to_owned(), 0, None, 0o750),
                ("l".to_owned(), 0, long_target, 0o750),
            ]
        );
    }
}
