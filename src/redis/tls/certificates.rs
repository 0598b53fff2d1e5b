//! The certificates that a user sets.

use std::fmt;

/// A certificate chain and its private key, both in PEM.
pub(super) type Identity = (Vec<u8>, Vec<u8>);

/// The certificates that were set, in PEM.
#[derive(Clone, Default)]
pub(in crate::redis) struct Certificates {
    pub(in crate::redis) root: Option<Vec<u8>>,
    pub(in crate::redis) client: Option<Identity>,
}

impl Certificates {
    /// The name of a setting that is set, if one is.
    pub(in crate::redis) fn setting(&self) -> Option<&'static str> {
        let root = self.root.as_ref().map(|_| "root_certificate");
        root.or(self.client.as_ref().map(|_| "client_certificate"))
    }
}

/// A private key is a secret, and certificates are long.
impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificates")
            .field("root", &self.root.is_some())
            .field("client", &self.client.is_some())
            .finish()
    }
}
