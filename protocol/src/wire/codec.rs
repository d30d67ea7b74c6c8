//! The one frame everywhere, and the only place that encodes or decodes it.
//!
//! Bodies are MessagePack maps with named fields (`to_vec_named`): an old reader skips fields it does not know and
//! takes defaults for those that miss, which arrays cannot do. On a socket a frame has a big-endian `u32` length
//! before it. A body over [`PART_BYTES`] travels as frames of kind [`PART`] with the same id and a last one with the
//! real kind; the reader joins them.

use std::io::{self, Read, Write};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Version of the frame itself; bodies have their own rules (fields are only added).
pub const FRAME_VERSION: u16 = 1;
/// Largest piece of a body in one frame: stays below the bus server's 1 MB with room for the envelope.
pub const PART_BYTES: usize = 900_000;
/// Largest body a reader joins from parts.
pub const BODY_LIMIT: usize = 64 << 20;
/// Largest frame a reader takes from a socket.
const FRAME_LIMIT: usize = PART_BYTES + 4096;
/// How deep a body may be nested: several times what any of ours is. The reader descends on the stack, and a thread
/// may have as little as 2 MB of it.
const DEPTH_LIMIT: usize = 100;
/// Kind of a frame that holds a piece of a larger body.
pub const PART: &str = "part";

/// `kind` says what `body` is; `id` joins a reply to its request; `sig` is over [`Frame::signed_bytes`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frame {
    pub v: u16,
    pub kind: String,
    #[serde(default)]
    pub id: String,
    #[serde(with = "serde_bytes")]
    pub body: Vec<u8>,
    #[serde(default)]
    pub key_id: String,
    #[serde(default, with = "serde_bytes")]
    pub sig: Vec<u8>,
}

#[derive(Debug, thiserror::Error)]
pub enum CodecError {
    #[error("cannot encode")]
    Encode(#[source] rmp_serde::encode::Error),
    #[error("cannot decode")]
    Decode(#[source] rmp_serde::decode::Error),
    #[error("the frame has version {0}; this build speaks version {FRAME_VERSION}")]
    Version(u16),
    #[error("{bytes} bytes are more than the limit of {limit}")]
    TooLarge { bytes: usize, limit: usize },
    #[error("the stream ended inside a frame")]
    Torn,
    #[error("cannot read or write the stream")]
    Io(#[source] io::Error),
}

impl Frame {
    #[must_use]
    pub fn new(kind: &str, id: &str, body: Vec<u8>) -> Self {
        Self {
            v: FRAME_VERSION,
            kind: kind.to_owned(),
            id: id.to_owned(),
            body,
            key_id: String::new(),
            sig: Vec::new(),
        }
    }

    /// Frame whose body is `value`.
    ///
    /// # Errors
    /// [`CodecError::Encode`] when the value cannot be written.
    pub fn of<T: Serialize>(kind: &str, id: &str, value: &T) -> Result<Self, CodecError> {
        Ok(Self::new(kind, id, to_bytes(value)?))
    }

    /// What a signature covers: the kind is in it, so that an answer never verifies as an order.
    #[must_use]
    pub fn signed_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.kind.len() + 1 + self.body.len());
        bytes.extend_from_slice(self.kind.as_bytes());
        bytes.push(0);
        bytes.extend_from_slice(&self.body);
        bytes
    }

    /// Bytes for a bus message.
    ///
    /// # Errors
    /// [`CodecError::TooLarge`] for a body that must be split first.
    pub fn encode(&self) -> Result<Vec<u8>, CodecError> {
        if self.body.len() > PART_BYTES {
            return Err(CodecError::TooLarge { bytes: self.body.len(), limit: PART_BYTES });
        }
        to_bytes(self)
    }

    /// # Errors
    /// A frame of another version, or bytes that are no frame.
    pub fn decode(bytes: &[u8]) -> Result<Self, CodecError> {
        let frame: Self = from_bytes(bytes)?;
        if frame.v == FRAME_VERSION { Ok(frame) } else { Err(CodecError::Version(frame.v)) }
    }

    /// The body as a `T`.
    ///
    /// # Errors
    /// [`CodecError::Decode`].
    pub fn body<T: DeserializeOwned>(&self) -> Result<T, CodecError> {
        from_bytes(&self.body)
    }

    /// This frame as one or more frames that each fit.
    #[must_use]
    pub fn split(self) -> Vec<Self> {
        if self.body.len() <= PART_BYTES {
            return vec![self];
        }
        let mut pieces: Vec<Self> =
            self.body.chunks(PART_BYTES).map(|piece| Self::new(PART, &self.id, piece.to_vec())).collect();
        if let Some(last) = pieces.last_mut() {
            last.kind = self.kind;
        }
        pieces
    }
}

/// Joins the parts of bodies; one per connection.
#[derive(Debug, Default)]
pub struct Joiner {
    id: String,
    body: Vec<u8>,
    /// What came under this id was too large: its rest must not pass for a whole body.
    is_refused: bool,
}

impl Joiner {
    /// The whole frame once its last part is in.
    ///
    /// # Errors
    /// [`CodecError::TooLarge`] over [`BODY_LIMIT`], up to the last part.
    pub fn push(&mut self, mut frame: Frame) -> Result<Option<Frame>, CodecError> {
        if frame.id != self.id {
            self.id.clone_from(&frame.id);
            self.body.clear();
            self.is_refused = false;
        }
        let before = if self.is_refused { BODY_LIMIT + 1 } else { self.body.len() };
        let bytes = before + frame.body.len();
        if bytes > BODY_LIMIT {
            self.body = Vec::new();
            self.is_refused = frame.kind == PART;
            return Err(CodecError::TooLarge { bytes, limit: BODY_LIMIT });
        }
        if frame.kind == PART {
            self.body.append(&mut frame.body);
            return Ok(None);
        }
        if !self.body.is_empty() {
            self.body.append(&mut frame.body);
            frame.body = std::mem::take(&mut self.body);
        }
        Ok(Some(frame))
    }
}

/// # Errors
/// [`CodecError::Encode`].
pub fn to_bytes<T: Serialize>(value: &T) -> Result<Vec<u8>, CodecError> {
    rmp_serde::to_vec_named(value).map_err(CodecError::Encode)
}

/// # Errors
/// [`CodecError::Decode`].
pub fn from_bytes<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, CodecError> {
    let mut reader = rmp_serde::Deserializer::from_read_ref(bytes);
    reader.set_max_depth(DEPTH_LIMIT);
    T::deserialize(&mut reader).map_err(CodecError::Decode)
}

/// Writes a frame, in parts where it is large.
///
/// # Errors
/// What the stream says.
pub fn write_frame(stream: &mut impl Write, frame: Frame) -> Result<(), CodecError> {
    for piece in frame.split() {
        stream.write_all(&socket_bytes(&piece)?).map_err(CodecError::Io)?;
    }
    stream.flush().map_err(CodecError::Io)
}

/// One frame with its length before it, as it goes over a socket.
///
/// # Errors
/// As [`Frame::encode`].
pub fn socket_bytes(frame: &Frame) -> Result<Vec<u8>, CodecError> {
    let body = frame.encode()?;
    let length = u32::try_from(body.len())
        .map_err(|_| CodecError::TooLarge { bytes: body.len(), limit: FRAME_LIMIT })?;
    let mut bytes = Vec::with_capacity(body.len() + 4);
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes.extend_from_slice(&body);
    Ok(bytes)
}

/// Reads one frame; `None` when the stream ended between frames. Parts are not joined: see [`Joiner`].
///
/// # Errors
/// A torn, too large or undecodable frame, or what the stream says.
pub fn read_frame(stream: &mut impl Read) -> Result<Option<Frame>, CodecError> {
    let mut length = [0_u8; 4];
    if !read_or_end(stream, &mut length)? {
        return Ok(None);
    }
    let length = frame_length(length)?;
    let mut bytes = vec![0_u8; length];
    match stream.read_exact(&mut bytes) {
        Ok(()) => Frame::decode(&bytes).map(Some),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(CodecError::Torn),
        Err(error) => Err(CodecError::Io(error)),
    }
}

/// Length of the frame that follows a length prefix.
///
/// # Errors
/// [`CodecError::TooLarge`].
pub fn frame_length(prefix: [u8; 4]) -> Result<usize, CodecError> {
    let length = usize::try_from(u32::from_be_bytes(prefix)).unwrap_or(usize::MAX);
    if length > FRAME_LIMIT {
        return Err(CodecError::TooLarge { bytes: length, limit: FRAME_LIMIT });
    }
    Ok(length)
}

/// Fills `buffer`; false when the stream ended before its first byte.
fn read_or_end(stream: &mut impl Read, buffer: &mut [u8]) -> Result<bool, CodecError> {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match stream.read(rest) {
            Ok(0) if filled == 0 => return Ok(false),
            Ok(0) => return Err(CodecError::Torn),
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(CodecError::Io(error)),
        }
    }
    Ok(true)
}

/// First frame of both sides on every socket: which versions of the conversation they speak, and their build.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    pub versions: Vec<u16>,
    pub build: String,
}

impl Hello {
    pub const KIND: &str = "hello";
    pub const VERSION: u16 = 1;

    #[must_use]
    pub fn ours(build: &str) -> Self {
        Self { versions: vec![Self::VERSION], build: build.to_owned() }
    }

    /// Whether both sides share a version.
    #[must_use]
    pub fn speaks_with_us(&self) -> bool {
        self.versions.contains(&Self::VERSION)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_large_body_travels_in_parts_and_is_joined() {
        let body: Vec<u8> = (0..2_500_000_u32).map(|i| i.to_le_bytes()[0]).collect();
        let mut stream = Vec::new();
        write_frame(&mut stream, Frame::new("reply", "7", body.clone())).unwrap();
        let mut reader = stream.as_slice();
        let mut joiner = Joiner::default();
        let mut whole = None;
        while let Some(frame) = read_frame(&mut reader).unwrap() {
            whole = joiner.push(frame).unwrap();
        }
        let whole = whole.unwrap();
        assert_eq!((whole.kind.as_str(), whole.body), ("reply", body));
    }

    #[test]
    fn a_torn_stream_is_an_error_and_a_clean_end_is_not() {
        let bytes = socket_bytes(&Frame::new("x", "", vec![1, 2, 3])).unwrap();
        assert!(matches!(read_frame(&mut &bytes[..bytes.len() - 1]), Err(CodecError::Torn)));
        assert!(matches!(read_frame(&mut &bytes[..2]), Err(CodecError::Torn)));
        assert!(matches!(read_frame(&mut &bytes[..0]), Ok(None)));
    }

    #[test]
    fn an_old_reader_skips_new_fields_and_a_new_one_takes_defaults() {
        #[derive(Serialize)]
        struct New {
            a: u8,
            b: String,
        }
        #[derive(Deserialize)]
        struct Old {
            a: u8,
        }
        #[derive(Deserialize)]
        struct Newer {
            a: u8,
            #[serde(default)]
            c: Vec<u8>,
        }
        let bytes = to_bytes(&New { a: 1, b: "x".into() }).unwrap();
        assert_eq!(from_bytes::<Old>(&bytes).unwrap().a, 1);
        let newer: Newer = from_bytes(&bytes).unwrap();
        assert_eq!((newer.a, newer.c.len()), (1, 0));
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_decoder_panic_or_allocate_without_bound(bytes: Vec<u8>) {
            let _ = Frame::decode(&bytes);
            let _ = read_frame(&mut bytes.as_slice());
        }

        #[test]
        fn what_is_signed_depends_on_kind_and_body(a: Vec<u8>, b: Vec<u8>) {
            let one = Frame::new("order", "", a.clone()).signed_bytes();
            prop_assert_ne!(&one, &Frame::new("reply", "", a.clone()).signed_bytes());
            prop_assert_eq!(one == Frame::new("order", "", b.clone()).signed_bytes(), a == b);
        }
    }
}
