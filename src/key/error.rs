//! Why a request has no key.

use std::{error::Error, fmt};

/// Why a request has no key.
///
/// The text goes to the client, so it never holds the key itself.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyError {
    /// What should name the key is missing, a header for example.
    Missing(String),
    /// The extension of this type, which should name the key, is missing. The type is for operators;
    /// the text leaves it out.
    MissingExtension(&'static str),
    /// The header that names the key is there more than once.
    Repeated(String),
    /// The key is empty.
    Empty,
    /// Any other reason.
    Other(String),
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(what) => write!(f, "{what} is missing"),
            Self::MissingExtension(_) => f.write_str("the key is missing"),
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
