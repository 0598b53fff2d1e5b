//! RESP2 and RESP3 frames, read from bytes. Knows nothing of the library or of its client.

/// One value of the protocol. RESP3's extra types are folded into those of RESP2.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reply {
    /// A null bulk string, a null array or `_`.
    Nil,
    /// An integer, or a boolean as 0 or 1.
    Int(i64),
    /// A string of any bytes.
    Bulk(Vec<u8>),
    /// A status line, a double or a big number.
    Simple(String),
    /// An error, with its code.
    Error(String),
    /// An array, a set, a push, or a map as its keys and values in turn.
    Array(Vec<Self>),
}

impl Reply {
    /// The number, also one that was sent as a string.
    ///
    /// # Panics
    ///
    /// When it is no number.
    pub(crate) fn int(&self) -> i64 {
        match self {
            Self::Int(number) => *number,
            other => other.text().parse().expect("the reply is a number"),
        }
    }

    /// The bytes of a string.
    ///
    /// # Panics
    ///
    /// When it is no string.
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Bulk(bytes) => bytes,
            Self::Simple(line) => line.as_bytes(),
            other => panic!("no string: {other:?}"),
        }
    }

    /// A string as text.
    ///
    /// # Panics
    ///
    /// When it is no string, or not UTF-8.
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(self.bytes()).expect("the reply is UTF-8")
    }

    /// The elements of an array; none of a nil.
    ///
    /// # Panics
    ///
    /// When it is neither.
    pub(crate) fn array(&self) -> &[Self] {
        match self {
            Self::Array(elements) => elements,
            Self::Nil => &[],
            other => panic!("no array: {other:?}"),
        }
    }

    /// The message of an error, if it is one.
    pub(crate) fn error(&self) -> Option<&str> {
        match self {
            Self::Error(message) => Some(message),
            _ => None,
        }
    }

    /// True for a nil.
    pub(crate) fn is_nil(&self) -> bool {
        *self == Self::Nil
    }
}

/// The first frame in `bytes` and how many bytes it takes; `None` while it is incomplete.
///
/// # Panics
///
/// When the bytes are not RESP.
pub(crate) fn parse(bytes: &[u8]) -> Option<(Reply, usize)> {
    let mut rest = bytes;
    let reply = take(&mut rest)?;
    Some((reply, bytes.len() - rest.len()))
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

fn take(rest: &mut &[u8]) -> Option<Reply> {
    let line = take_line(rest)?;
    let (kind, value) = line.split_at(1);
    match kind {
        "+" | "," | "(" => Some(Reply::Simple(value.to_owned())),
        "-" => Some(Reply::Error(value.to_owned())),
        ":" => Some(Reply::Int(number(value))),
        "#" => Some(Reply::Int((value == "t").into())),
        "_" => Some(Reply::Nil),
        "$" | "=" => take_bulk(rest, number(value)),
        "!" => take_bulk(rest, number(value)).map(|bulk| Reply::Error(bulk.text().to_owned())),
        "*" | "~" | ">" => take_array(rest, number(value)),
        "%" => take_array(rest, 2 * number(value)),
        _ => panic!("not RESP: {line:?}"),
    }
}

fn take_line(rest: &mut &[u8]) -> Option<String> {
    let end = rest.windows(2).position(|two| two == b"\r\n")?;
    let line = String::from_utf8_lossy(&rest[..end]).into_owned();
    *rest = &rest[end + 2..];
    Some(line)
}

fn take_bulk(rest: &mut &[u8], length: i64) -> Option<Reply> {
    let Ok(length) = usize::try_from(length) else {
        return Some(Reply::Nil);
    };
    let bytes = rest.get(..length)?.to_vec();
    *rest = rest.get(length + 2..)?;
    Some(Reply::Bulk(bytes))
}

fn take_array(rest: &mut &[u8], length: i64) -> Option<Reply> {
    if length < 0 {
        return Some(Reply::Nil);
    }
    let elements: Option<_> = (0..length).map(|_| take(rest)).collect();
    elements.map(Reply::Array)
}

fn number(digits: &str) -> i64 {
    digits.parse().expect("RESP counts in decimal digits")
}
