//! Why a request has no key.

use std::{error::Error, fmt};

/// Why a request has no key.
///
/// The response shows this error's text, so the text should contain neither a key nor a secret. Its status
/// is 400, or 500 for [`MissingExtension`](Self::MissingExtension). A `&str` or a `String` converts into
/// [`Other`](Self::Other).
///
/// # Examples
///
/// ```
/// use http::request::Parts;
/// use tower_semaphore::KeyError;
///
/// fn account(parts: &Parts) -> Result<String, KeyError> {
///     let value = parts.headers.get("x-account-id");
///     let value = value.ok_or_else(|| KeyError::Missing("the header x-account-id".into()))?;
///     let text = value.to_str().map_err(|_| "the account is not ASCII")?;
///     Ok(text.to_owned())
/// }
/// # drop(account);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyError {
    /// The client has left out the part of the request that should contain the key. The text names that
    /// part: `the header x-account-id`, for example.
    Missing(String),
    /// The service has not provided the extension of this type, which should contain the key: the layer
    /// that inserts it is missing, or is inside of the limit. The response has status 500, and with the
    /// feature `tracing` an error is logged, once a minute at most.
    MissingExtension(&'static str),
    /// The part of the request that contains the key occurs more than once. The text names that
    /// part.
    Repeated(String),
    /// The key is empty.
    Empty,
    /// Any other reason, as a sentence for the client.
    Other(String),
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(what) => write!(f, "{what} is missing"),
            Self::MissingExtension(of) => write!(
                f,
                "the service has put no extension of the type {of} into the request before this limit"
            ),
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
