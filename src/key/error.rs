//! Why a request has no key.

use std::{any::type_name, error::Error, fmt};

/// Why a request has no key.
///
/// The response has status 400 and shows this error's text, so the text should contain neither a key nor a secret. For
/// [`MissingExtension`](Self::MissingExtension) the response has status 500, and a text that names no type.
///
/// # Examples
///
/// ```
/// use http::request::Parts;
/// use tower_semaphore::KeyError;
///
/// fn account(parts: &Parts) -> Result<String, KeyError> {
///     let value = parts.headers.get("x-account-id");
///     let value = value.ok_or_else(|| KeyError::missing("the header x-account-id"))?;
///     let text = value.to_str().map_err(|_| "the account is not ASCII")?;
///     Ok(text.to_owned())
/// }
/// # drop(account);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyError {
    /// The client has left out the part of the request that should contain the key. See
    /// [`missing`](Self::missing).
    #[non_exhaustive]
    Missing {
        /// That part: `the header x-account-id`, for example.
        part: String,
    },
    /// The service has not provided the extension that should contain the key: the layer that inserts it is
    /// missing, or is inside of the limit. The response has status 500, and with the feature `tracing` an error
    /// is logged, once a minute at most. See [`missing_extension`](Self::missing_extension).
    #[non_exhaustive]
    MissingExtension {
        /// The name of the extension's type.
        extension: &'static str,
    },
    /// The part of the request that contains the key occurs more than once. See [`repeated`](Self::repeated).
    #[non_exhaustive]
    Repeated {
        /// That part.
        part: String,
    },
    /// The key is empty.
    Empty,
    /// Any other reason, which a `&str` or a `String` converts into.
    #[non_exhaustive]
    Other {
        /// A sentence for the client.
        reason: String,
    },
}

impl KeyError {
    /// The client has left out this part of the request. See [`KeyError`] for an example.
    pub fn missing(part: impl Into<String>) -> Self {
        Self::Missing { part: part.into() }
    }

    /// The service has not provided the extension of this type.
    ///
    /// # Examples
    ///
    /// ```
    /// use tower_semaphore::KeyError;
    ///
    /// let error = KeyError::missing_extension::<u64>();
    /// assert!(matches!(error, KeyError::MissingExtension { extension: "u64", .. }));
    /// ```
    pub fn missing_extension<T>() -> Self {
        let extension = type_name::<T>();
        Self::MissingExtension { extension }
    }

    /// This part of the request occurs more than once.
    ///
    /// # Examples
    ///
    /// ```
    /// use tower_semaphore::KeyError;
    ///
    /// let error = KeyError::repeated("the header x-account-id");
    /// assert_eq!(error.to_string(), "the header x-account-id is given more than once");
    /// ```
    pub fn repeated(part: impl Into<String>) -> Self {
        Self::Repeated { part: part.into() }
    }
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { part } => write!(f, "{part} is missing"),
            Self::MissingExtension { extension } => write!(
                f,
                "the service has put no extension of the type {extension} into the request before this limit"
            ),
            Self::Repeated { part } => write!(f, "{part} is given more than once"),
            Self::Empty => f.write_str("the key is empty"),
            Self::Other { reason } => f.write_str(reason),
        }
    }
}

impl Error for KeyError {}

impl From<String> for KeyError {
    fn from(reason: String) -> Self {
        Self::Other { reason }
    }
}

impl From<&str> for KeyError {
    fn from(reason: &str) -> Self {
        reason.to_owned().into()
    }
}
