//! Large things by the sha256 of their content, in the object store `blobs`. Content is its own name, so
//! putting twice is one put, and what is read is checked against its name.
//!
//! A blob beyond [`PART_BYTES`] lies in parts `<sha256>.<n>`, so that a range is read without reading all
//! before it, and an empty object `<sha256>`, written last, that tells how many. A put that was cut leaves
//! parts without it: no blob. What nothing needs any more is [`super::inventory`]'s.

use std::collections::HashMap;
use std::time::Duration;

use async_nats::jetstream::object_store::{InfoErrorKind, ObjectInfo, ObjectMetadata, ObjectStore};
use bytes::{Bytes, BytesMut};
use sha2::{Digest, Sha256};
use tokio::io::AsyncReadExt;

use super::Store;
use super::error::{Cause, StoreError};
use super::streams::BLOBS;

/// The size of a part but the last.
pub const PART_BYTES: usize = 4 << 20;
const CHUNK_BYTES: usize = 512 << 10;
const SIZE: &str = "size";
const PART_LIMIT: Duration = Duration::from_secs(60);

/// The blobs of a store.
#[derive(Debug, Clone)]
pub struct Blobs {
    pub(super) store: Store,
}

impl Store {
    pub fn blobs(&self) -> Blobs {
        Blobs { store: self.clone() }
    }
}

/// The name of some content: its sha256 in lower-case hex.
pub fn name_of(content: &[u8]) -> String {
    data_encoding::HEXLOWER.encode(&Sha256::digest(content))
}

impl Blobs {
    /// Stores `content` unless it is there, and returns its name.
    pub async fn put(&self, content: Bytes) -> Result<String, StoreError> {
        let name = name_of(&content);
        if self.size(&name).await?.is_some() {
            return Ok(name);
        }
        let objects = self.objects().await?;
        let parted = content.len() > PART_BYTES;
        if parted {
            for (number, part) in content.chunks(PART_BYTES).enumerate() {
                put_object(&objects, part_name(&name, number), part, None).await?;
            }
        }
        let whole: &[u8] = if parted { &[] } else { &content };
        put_object(&objects, name.clone(), whole, Some(content.len())).await?;
        Ok(name)
    }

    /// The whole blob, checked against its name; `None` when it is not there.
    pub async fn get(&self, name: &str) -> Result<Option<Bytes>, StoreError> {
        let Some(size) = self.size(name).await? else { return Ok(None) };
        let content = self.range(name, size, 0, size).await?;
        if name_of(&content) != name {
            let why = "its content has another sha256".to_owned();
            return Err(StoreError::DamagedBlob { name: name.to_owned(), why });
        }
        Ok(Some(content))
    }

    /// Up to `len` bytes from `offset`; fewer at the end. Not checked against the name, which the whole is
    /// needed for.
    pub async fn get_range(&self, name: &str, offset: u64, len: usize) -> Result<Option<Bytes>, StoreError> {
        let Some(size) = self.size(name).await? else { return Ok(None) };
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(size);
        self.range(name, size, from, from.saturating_add(len).min(size)).await.map(Some)
    }

    pub async fn exists(&self, name: &str) -> Result<bool, StoreError> {
        Ok(self.size(name).await?.is_some())
    }

    /// The size in bytes; `None` when there is no such blob.
    pub async fn size(&self, name: &str) -> Result<Option<usize>, StoreError> {
        let objects = self.objects().await?;
        match objects.info(name).await {
            Ok(info) if info.deleted => Ok(None),
            Ok(info) => size_of(&info).map(Some),
            Err(error) if error.kind() == InfoErrorKind::NotFound => Ok(None),
            Err(error) => Err(objects_failed(name, error.into())),
        }
    }

    pub(super) async fn objects(&self) -> Result<ObjectStore, StoreError> {
        let objects = self.store.jetstream.get_object_store(BLOBS).await;
        objects.map_err(|error| objects_failed("store", error.into()))
    }

    async fn range(&self, name: &str, size: usize, from: usize, to: usize) -> Result<Bytes, StoreError> {
        let objects = self.objects().await?;
        if size <= PART_BYTES {
            let whole = get_object(&objects, name, size).await?;
            return slice(name, &whole, from, to);
        }
        let mut content = BytesMut::with_capacity(to.saturating_sub(from));
        let mut at = from;
        while at < to {
            let number = at / PART_BYTES;
            let begin = number * PART_BYTES;
            let part_size = PART_BYTES.min(size - begin);
            let part = get_object(&objects, &part_name(name, number), part_size).await?;
            let end = to.min(begin + part_size);
            content.extend_from_slice(&slice(name, &part, at - begin, end - begin)?);
            at = end;
        }
        Ok(content.freeze())
    }
}

fn part_name(name: &str, number: usize) -> String {
    format!("{name}.{number}")
}

fn size_of(info: &ObjectInfo) -> Result<usize, StoreError> {
    let size = info.metadata.get(SIZE).and_then(|size| size.parse().ok());
    let why = || "it does not say its size".to_owned();
    size.ok_or_else(|| StoreError::DamagedBlob { name: info.name.clone(), why: why() })
}

fn slice(name: &str, bytes: &Bytes, from: usize, to: usize) -> Result<Bytes, StoreError> {
    if from <= to && to <= bytes.len() {
        return Ok(bytes.slice(from..to));
    }
    let why = format!("it has {} bytes, not {to}", bytes.len());
    Err(StoreError::DamagedBlob { name: name.to_owned(), why })
}

pub(super) fn objects_failed(name: &str, source: Cause) -> StoreError {
    StoreError::Read { what: format!("blob {name}"), source }
}

fn too_late(name: &str) -> StoreError {
    StoreError::ReadTimedOut { what: format!("blob {name}"), seconds: PART_LIMIT.as_secs() }
}

async fn put_object(
    objects: &ObjectStore,
    name: String,
    content: &[u8],
    size: Option<usize>,
) -> Result<(), StoreError> {
    let metadata: HashMap<String, String> =
        size.map(|size| (SIZE.to_owned(), size.to_string())).into_iter().collect();
    let meta =
        ObjectMetadata { name: name.clone(), chunk_size: Some(CHUNK_BYTES), metadata, ..Default::default() };
    let mut content = content;
    let put = tokio::time::timeout(PART_LIMIT, objects.put(meta, &mut content)).await;
    match put {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(StoreError::Write { what: format!("blob {name}"), source: error.into() }),
        Err(_) => Err(StoreError::Write { what: format!("blob {name}"), source: "timed out".into() }),
    }
}

async fn get_object(objects: &ObjectStore, name: &str, size: usize) -> Result<Bytes, StoreError> {
    let reading = async {
        let mut object = objects.get(name).await.map_err(|error| objects_failed(name, error.into()))?;
        let mut content = Vec::with_capacity(size);
        object.read_to_end(&mut content).await.map_err(|error| objects_failed(name, error.into()))?;
        Ok(Bytes::from(content))
    };
    tokio::time::timeout(PART_LIMIT, reading).await.unwrap_or_else(|_| Err(too_late(name)))
}
