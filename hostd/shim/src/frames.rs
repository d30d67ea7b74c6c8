//! Frames out of a byte stream that comes in pieces, for readers that must not block.

use protocol::codec::{CodecError, Frame, Joiner, frame_length};

#[derive(Default)]
pub(crate) struct FrameReader {
    bytes: Vec<u8>,
    joiner: Joiner,
}

impl FrameReader {
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next frame that has come in whole, its parts joined.
    pub(crate) fn next(&mut self) -> Result<Option<Frame>, CodecError> {
        loop {
            let Some((prefix, rest)) = self.bytes.split_first_chunk::<4>() else {
                // A large message must not be paid for as long as the connection lasts.
                if self.bytes.is_empty() {
                    self.bytes = Vec::new();
                }
                return Ok(None);
            };
            let length = frame_length(*prefix)?;
            let Some(bytes) = rest.get(..length) else { return Ok(None) };
            let frame = Frame::decode(bytes)?;
            self.bytes.drain(..length + 4);
            if let Some(whole) = self.joiner.push(frame)? {
                return Ok(Some(whole));
            }
        }
    }
}
