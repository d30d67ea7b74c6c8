//! Frames over the asynchronous halves of a connection. What they mean is [`super::session`]'s.

use protocol::codec::{CodecError, Frame, Joiner, frame_length, socket_bytes};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Reads whole frames; the parts of large ones are joined.
pub struct FrameReader<R> {
    stream: R,
    joiner: Joiner,
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    pub fn new(stream: R) -> Self {
        Self { stream, joiner: Joiner::default() }
    }

    /// The next whole frame; `None` when the other side has closed between frames. Loses bytes when it is dropped
    /// half-way.
    ///
    /// # Errors
    /// What the codec says of the bytes, or the stream of itself.
    pub async fn next(&mut self) -> Result<Option<Frame>, CodecError> {
        loop {
            let mut prefix = [0_u8; 4];
            match self.stream.read(&mut prefix).await.map_err(CodecError::Io)? {
                0 => return Ok(None),
                read => {
                    let rest = prefix.get_mut(read..).unwrap_or_default();
                    self.fill(rest).await?;
                }
            }
            let mut bytes = vec![0_u8; frame_length(prefix)?];
            self.fill(&mut bytes).await?;
            if let Some(frame) = self.joiner.push(Frame::decode(&bytes)?)? {
                return Ok(Some(frame));
            }
        }
    }

    async fn fill(&mut self, buffer: &mut [u8]) -> Result<(), CodecError> {
        match self.stream.read_exact(buffer).await {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Err(CodecError::Torn),
            Err(error) => Err(CodecError::Io(error)),
        }
    }
}

/// Writes one frame, in parts where it is large; nothing comes between the parts.
///
/// # Errors
/// What the stream says.
pub async fn write_frame(stream: &mut (impl AsyncWrite + Unpin), frame: Frame) -> Result<(), CodecError> {
    for piece in frame.split() {
        stream.write_all(&socket_bytes(&piece)?).await.map_err(CodecError::Io)?;
    }
    stream.flush().await.map_err(CodecError::Io)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_frame_larger_than_a_part_arrives_whole_and_the_end_is_clean() {
        let (mut near, far) = tokio::io::duplex(64);
        let body: Vec<u8> = (0..2_000_003_u32).map(|i| i.to_le_bytes()[0]).collect();
        let sent = Frame::new("request", "7", body);
        let expected = sent.clone();
        let writing = async move {
            write_frame(&mut near, sent).await.unwrap();
            write_frame(&mut near, Frame::new("request", "8", vec![])).await.unwrap();
        };
        let reading = async move {
            let mut reader = FrameReader::new(far);
            assert_eq!(reader.next().await.unwrap(), Some(expected));
            assert_eq!(reader.next().await.unwrap().unwrap().id, "8");
            assert!(reader.next().await.unwrap().is_none());
        };
        tokio::join!(writing, reading);
    }

    #[tokio::test]
    async fn a_stream_that_ends_inside_a_frame_is_torn() {
        let bytes = socket_bytes(&Frame::new("request", "7", vec![1, 2, 3])).unwrap();
        for cut in [1, 3, 4, bytes.len() - 1] {
            let mut reader = FrameReader::new(&bytes[..cut]);
            assert!(matches!(reader.next().await, Err(CodecError::Torn)), "cut at {cut}");
        }
    }
}
