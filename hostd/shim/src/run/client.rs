//! One connection to the control socket: its frames in, and out what it has room for. What the frames mean is the
//! loop's. A viewer that reads slowly loses output, never an answer, and is told to draw anew.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;

use protocol::codec::{Frame, socket_bytes};

use crate::frames::FrameReader;

/// Output waiting for one viewer; over this it is skipped.
const OUTBOX_LIMIT: usize = 256 * 1024;
const READ_BYTES: usize = 8 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum View {
    None,
    ReadOnly,
    Full,
}

pub(crate) struct Client {
    pub(crate) id: u64,
    pub(crate) stream: UnixStream,
    pub(crate) greeted: bool,
    pub(crate) view: View,
    pub(crate) watching: bool,
    /// It must have said hello by then (boot time, ms).
    pub(crate) hello_by: u64,
    reader: FrameReader,
    outbox: Outbox,
    closed: bool,
}

impl Client {
    pub(crate) fn new(id: u64, stream: UnixStream, hello_by: u64) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self {
            id,
            stream,
            greeted: false,
            view: View::None,
            watching: false,
            hello_by,
            reader: FrameReader::default(),
            outbox: Outbox::default(),
            closed: false,
        })
    }

    pub(crate) fn close(&mut self) {
        self.closed = true;
    }

    pub(crate) const fn is_closed(&self) -> bool {
        self.closed
    }

    /// An asker that does not read its answers is not read either.
    pub(crate) const fn wants_read(&self) -> bool {
        self.outbox.bytes < OUTBOX_LIMIT
    }

    /// One that lags waits for room as well, to be drawn anew.
    pub(crate) fn wants_write(&self) -> bool {
        self.outbox.lagging || self.has_unsent()
    }

    pub(crate) fn has_unsent(&self) -> bool {
        !self.outbox.frames.is_empty()
    }

    /// Frames that have come in whole. A connection that ends or talks nonsense is closed.
    pub(crate) fn receive(&mut self) -> Vec<Frame> {
        let mut buffer = [0; READ_BYTES];
        match self.stream.read(&mut buffer) {
            Ok(0) => self.close(),
            Ok(count) => self.reader.push(buffer.get(..count).unwrap_or_default()),
            Err(error) if retry_later(&error) => {}
            Err(_) => self.close(),
        }
        let mut frames = Vec::new();
        loop {
            match self.reader.next() {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(error) => {
                    crate::log(&format!("a client sent no frame: {error}"));
                    self.close();
                    break;
                }
            }
        }
        frames
    }

    /// Queued whatever the queue holds.
    pub(crate) fn send(&mut self, frame: Frame) {
        for piece in frame.split() {
            match socket_bytes(&piece) {
                Ok(bytes) => self.outbox.push(bytes, false),
                Err(error) => {
                    crate::log(&format!("cannot encode a frame: {error}"));
                    self.close();
                }
            }
        }
    }

    pub(crate) fn wants_output(&self) -> bool {
        self.view != View::None && !self.outbox.lagging
    }

    /// Output for a viewer, or nothing while it lags.
    pub(crate) fn show(&mut self, frame: &[u8]) {
        if !self.wants_output() {
            return;
        }
        if self.outbox.bytes + frame.len() > OUTBOX_LIMIT {
            self.outbox.drop_output();
        } else {
            self.outbox.push(frame.to_vec(), true);
        }
    }

    /// Output of before an attach or a redraw is not for this view.
    pub(crate) fn forget_output(&mut self) {
        self.outbox.drop_output();
        self.outbox.lagging = false;
    }

    /// Writes what the socket takes. True when the viewer has lagged and is ready to be drawn anew.
    pub(crate) fn flush(&mut self) -> bool {
        match self.outbox.write(&mut self.stream) {
            Ok(()) => self.outbox.lagging && self.outbox.frames.is_empty(),
            Err(_) => {
                self.close();
                false
            }
        }
    }
}

#[derive(Default)]
struct Outbox {
    /// With whether it is output, which may be dropped.
    frames: VecDeque<(Vec<u8>, bool)>,
    /// Bytes of the first frame that have been written.
    written: usize,
    bytes: usize,
    lagging: bool,
}

impl Outbox {
    fn push(&mut self, bytes: Vec<u8>, is_output: bool) {
        self.bytes += bytes.len();
        self.frames.push_back((bytes, is_output));
    }

    /// All output but a frame that is partly written: the stream would be torn.
    fn drop_output(&mut self) {
        self.lagging = true;
        let begun = self.written > 0;
        let mut index = 0;
        self.frames.retain(|(_, is_output)| {
            index += 1;
            !is_output || (index == 1 && begun)
        });
        self.bytes = self.frames.iter().map(|(bytes, _)| bytes.len()).sum();
    }

    fn write(&mut self, stream: &mut impl Write) -> io::Result<()> {
        while let Some((bytes, _)) = self.frames.front() {
            match stream.write(bytes.get(self.written..).unwrap_or_default()) {
                Ok(count) => self.written += count,
                Err(error) if retry_later(&error) => return Ok(()),
                Err(error) => return Err(error),
            }
            if self.written >= bytes.len() {
                self.bytes = self.bytes.saturating_sub(bytes.len());
                self.written = 0;
                self.frames.pop_front();
            }
        }
        self.frames = VecDeque::new();
        Ok(())
    }
}

fn retry_later(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::codec::read_frame;
    use protocol::shim::kind;

    fn pair() -> (Client, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut client = Client::new(1, ours, 0).unwrap();
        client.view = View::Full;
        (client, theirs)
    }

    #[test]
    fn a_viewer_that_does_not_read_loses_output_but_no_answer_and_no_frame_is_torn() {
        let (mut client, mut theirs) = pair();
        let chunk = socket_bytes(&Frame::new(kind::OUTPUT, "", vec![b'x'; 10_000])).unwrap();
        let mut answers = 0;
        for turn in 0..500 {
            client.show(&chunk);
            if turn % 100 == 0 {
                client.send(Frame::new(kind::REPLY, &turn.to_string(), vec![]));
                answers += 1;
            }
            client.flush();
            assert!(client.outbox.bytes <= OUTBOX_LIMIT + 1000);
        }
        let reader = std::thread::spawn(move || {
            let (mut outputs, mut replies) = (0, 0);
            while let Some(frame) = read_frame(&mut theirs).unwrap() {
                if frame.kind == kind::REPLY { replies += 1 } else { outputs += 1 }
            }
            (outputs, replies)
        });
        client.stream.set_nonblocking(false).unwrap();
        assert!(client.flush(), "once it has read all it is drawn anew");
        drop(client);
        let (outputs, replies) = reader.join().unwrap();
        assert_eq!(replies, answers);
        assert!(outputs > 0 && outputs < 500);
    }

    #[test]
    fn frames_come_in_whole_whatever_the_pieces() {
        let (mut client, mut theirs) = pair();
        let frames: Vec<Frame> = (0..5).map(|n| Frame::new("k", &n.to_string(), vec![7; 300 * n])).collect();
        let bytes: Vec<u8> = frames.iter().flat_map(|frame| socket_bytes(frame).unwrap()).collect();
        let mut got = Vec::new();
        for piece in bytes.chunks(7) {
            theirs.write_all(piece).unwrap();
            got.extend(client.receive());
        }
        assert_eq!(got, frames);
        drop(theirs);
        client.receive();
        assert!(client.is_closed());
    }

    #[test]
    fn nonsense_closes_the_connection() {
        let (mut client, mut theirs) = pair();
        theirs.write_all(&[0xff; 64]).unwrap();
        assert!(client.receive().is_empty());
        assert!(client.is_closed());
    }
}
