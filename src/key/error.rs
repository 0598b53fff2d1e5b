//! Why a request names nobody.

use std::{error::Error, fmt};

/// Why a request names nobody whom it could count for.
///
/// Its text goes to the client, so it never holds the key itself.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyError {
    /// What should name the key is not there.
    Missing(String),
    /// It is there more than once.
    Repeated(String),
    /// The key is empty.
    Empty,
    /// Anything else.
    Other(String),
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(what) => write!(f, "{what} is missing"),
            Self::Repeated(what) => write!(f, "{what} is given more than once"),
            Self::Empty => f.write_str("the key is empty"),
            Self::Other(why) => f.write_str(why),
        }
    }
}

impl Error for KeyError {}

impl From<String> for KeyError {
    fn from(why: String) -> Self {
        Self::Other(why)
    }
}

impl From<&str> for KeyError {
    fn from(why: &str) -> Self {
        Self::Other(why.to_owned())
    }
}
