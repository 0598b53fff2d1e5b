//! A user and a password for a server.

use std::fmt;

/// A user and a password.
#[derive(Clone)]
pub(super) struct Credentials {
    pub(super) user: String,
    pub(super) password: String,
}

impl Credentials {
    pub(super) fn new(user: String, password: String) -> Self {
        Self { user, password }
    }
}

/// A password is a secret.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}
