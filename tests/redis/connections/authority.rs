//! A certificate authority, and what it signs.

use std::sync::atomic::{AtomicU32, Ordering};
use testing::rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

/// So that no two have the same name: OpenSSL tries one certificate for each name.
static COUNT: AtomicU32 = AtomicU32::new(0);

/// A private CA.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key, in PEM.
#[derive(Clone)]
pub(crate) struct Signed {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let mut params = params(&format!("CA {number}"), []);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let signed = CertifiedIssuer::self_signed(params, key());
        Self(signed.expect("an authority signs itself"))
    }

    /// Its own certificate, in PEM.
    pub(crate) fn certificate(&self) -> String {
        self.0.pem()
    }

    /// A certificate for a host.
    pub(crate) fn sign(&self, host: &str) -> Signed {
        let params = params(host, [host.to_owned()]);
        let key = key();
        let certificate = params.signed_by(&key, &self.0).expect("it is signed").pem();
        Signed {
            certificate,
            key: key.serialize_pem(),
        }
    }
}

/// OpenSSL takes a certificate for self-signed if its issuer has the same name.
fn params<const N: usize>(name: &str, hosts: [String; N]) -> CertificateParams {
    let mut params = CertificateParams::new(hosts).expect("the names are right");
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

fn key() -> KeyPair {
    KeyPair::generate().expect("a key is made")
}
