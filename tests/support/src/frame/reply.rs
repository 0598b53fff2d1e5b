//! A value of the protocol, and accessors for tests.

/// A value of the protocol. RESP3's extra types are mapped to RESP2's types.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// A null bulk string, a null array or `_`.
    Nil,
    /// An integer, or a boolean as 0 or 1.
    Int(i64),
    /// A string of any bytes.
    Bulk(Vec<u8>),
    /// A simple string, a double or a big number.
    Simple(String),
    /// An error, with its code.
    Error(String),
    /// An array, a set, a push, or a map as alternating keys and values.
    Array(Vec<Self>),
}

impl Reply {
    /// The number, even if it was sent as a string.
    ///
    /// # Panics
    ///
    /// If the reply is not a number.
    pub fn int(&self) -> i64 {
        match self {
            Self::Int(number) => *number,
            other => other.text().parse().expect("the reply is a number"),
        }
    }

    /// The bytes of a string.
    ///
    /// # Panics
    ///
    /// If the reply is not a string.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Bulk(bytes) => bytes,
            Self::Simple(text) => text.as_bytes(),
            other => panic!("no string: {other:?}"),
        }
    }

    /// A string as text.
    ///
    /// # Panics
    ///
    /// If the reply is not a string, or not UTF-8.
    pub fn text(&self) -> &str {
        std::str::from_utf8(self.bytes()).expect("the reply is UTF-8")
    }

    /// The elements of an array. A nil has none.
    ///
    /// # Panics
    ///
    /// If the reply is neither.
    pub fn array(&self) -> &[Self] {
        match self {
            Self::Array(elements) => elements,
            Self::Nil => &[],
            other => panic!("no array: {other:?}"),
        }
    }

    /// The first element, if the reply is an array that has one.
    pub fn first(&self) -> Option<&Self> {
        match self {
            Self::Array(elements) => elements.first(),
            _ => None,
        }
    }

    /// The message, if the reply is an error.
    pub fn error(&self) -> Option<&str> {
        match self {
            Self::Error(message) => Some(message),
            _ => None,
        }
    }

    pub fn is_nil(&self) -> bool {
        *self == Self::Nil
    }
}
