//! The prompt of a task: text in the file or a file beside it, up to the limit, read once however many tasks use it.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use protocol::agent::Blob;
use protocol::api::PROMPT_LIMIT;
use sha2::{Digest, Sha256};

use super::fields::Fields;

/// Remembers the prompts that were read.
#[derive(Default)]
pub struct PromptReader {
    files: BTreeMap<PathBuf, Result<Arc<[u8]>, String>>,
    texts: BTreeMap<String, Arc<[u8]>>,
}

impl PromptReader {
    /// The bytes of a prompt file, or why there are none.
    pub fn file(&mut self, path: &Path) -> Result<Arc<[u8]>, String> {
        self.files.entry(path.to_owned()).or_insert_with(|| read_file(path)).clone()
    }

    /// `None` where there is none, or where it is wrong.
    pub fn read(&mut self, fields: &mut Fields<'_>, folder: &Path) -> Option<(Blob, Arc<[u8]>)> {
        let file = fields.text("prompt_file");
        if fields.get("prompt").is_some() && file.is_some() {
            fields.complain(fields.place("prompt_file"), "both prompt and prompt_file are given");
            return None;
        }
        let (key, bytes) = if let Some(file) = file {
            match self.file(&folder.join(&file)) {
                Ok(bytes) => ("prompt_file", bytes),
                Err(message) => {
                    fields.complain(fields.place("prompt_file"), message);
                    return None;
                }
            }
        } else {
            let text = fields.text("prompt")?;
            ("prompt", self.texts.entry(text).or_insert_with_key(|text| Arc::from(text.as_bytes())).clone())
        };
        let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        if length == 0 {
            fields.complain(fields.place(key), format!("{key} is empty"));
            return None;
        }
        if length > PROMPT_LIMIT {
            fields.complain(fields.place(key), too_large(key, length));
            return None;
        }
        let blob = Blob { sha256: data_encoding::HEXLOWER.encode(&Sha256::digest(&bytes)), bytes: length };
        Some((blob, bytes))
    }
}

fn too_large(what: &str, bytes: u64) -> String {
    format!(
        "{what} has {bytes} bytes; the limit is {PROMPT_LIMIT} (8 MiB). Put the text into the repository and name its path"
    )
}

fn read_file(path: &Path) -> Result<Arc<[u8]>, String> {
    let failed = |error: std::io::Error| format!("prompt_file: cannot read {}: {error}", path.display());
    let meta = std::fs::metadata(path).map_err(failed)?;
    if !meta.is_file() {
        return Err(format!("prompt_file: {} is not a file", path.display()));
    }
    if meta.len() > PROMPT_LIMIT {
        return Err(too_large(&format!("the prompt_file {}", path.display()), meta.len()));
    }
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(failed)?;
    file.take(PROMPT_LIMIT + 1).read_to_end(&mut bytes).map_err(failed)?;
    Ok(bytes.into())
}
