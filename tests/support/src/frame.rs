//! Reads RESP2 and RESP3 frames from bytes. It shares no code with the library or its client.

mod parse;
mod reply;

use std::io;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

use self::parse::parse;
pub use self::reply::Reply;

/// One frame: its value and its bytes.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) value: Reply,
    pub(crate) bytes: Bytes,
}

impl Frame {
    /// Returns true for messages and other pushes, and for confirmations of subscriptions. RESP2 sends both as arrays.
    pub(crate) fn is_push(&self) -> bool {
        const KINDS: [&[u8]; 2] = [b"message", b"subscribe"];
        let Some(Reply::Bulk(kind)) = self.value.first() else {
            return self.bytes[0] == b'>';
        };
        self.bytes[0] == b'>' || KINDS.iter().any(|suffix| kind.ends_with(suffix))
    }
}

/// Reads frames from a stream of bytes.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    unread: BytesMut,
}

impl Frames {
    /// The next frame; `None` at the end of the stream. Cancel safe.
    ///
    /// # Errors
    ///
    /// The errors of the stream.
    ///
    /// # Panics
    ///
    /// When the bytes are not RESP.
    pub(crate) async fn next(
        &mut self,
        from: &mut (impl AsyncRead + Unpin),
    ) -> io::Result<Option<Frame>> {
        loop {
            if let Some(frame) = self.take() {
                return Ok(Some(frame));
            }
            if from.read_buf(&mut self.unread).await? == 0 {
                return Ok(None);
            }
        }
    }

    fn take(&mut self) -> Option<Frame> {
        let mut rest = &self.unread[..];
        let value = parse(&mut rest)?;
        let length = self.unread.len() - rest.len();
        let bytes = self.unread.split_to(length).freeze();
        Some(Frame { value, bytes })
    }
}

/// The bytes of a command.
pub(crate) fn command<A: AsRef<[u8]>>(args: &[A]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", args.len()).into_bytes();
    for arg in args.iter().map(AsRef::as_ref) {
        bytes.extend(format!("${}\r\n", arg.len()).into_bytes());
        bytes.extend_from_slice(arg);
        bytes.extend(b"\r\n");
    }
    bytes
}
