//! The address of the connection's peer.

use super::{Key, KeyError, KeyExtractor};
use crate::semaphore::{Claim, Claims};
use http::request::Parts;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The key is the IP address of the connection's peer. For an IPv6 address it is the network of 64 bits, because a
/// client can choose any address within its network.
///
/// No header is read, because a client can forge headers. So behind a proxy all requests have the proxy's address. The
/// [guide](crate) has a recipe for a forwarded address.
///
/// The extractor reads the first of these that the request's extensions have:
///
/// 1. a [`SocketAddr`], which a layer of yours may insert;
/// 2. with the feature `axum` a `ConnectInfo<SocketAddr>`, which `into_make_service_with_connect_info` of an axum
///    `Router` inserts, or a `MockConnectInfo<SocketAddr>`, which tests of such a router insert;
/// 3. with the feature `tonic` a `TcpConnectInfo`, which a server of tonic 0.14 inserts, with TLS and without;
/// 4. an [`IpAddr`].
///
/// A request without any of them is rejected with [`KeyError::MissingExtension`]. For another server, or another
/// version of tonic, insert a `SocketAddr` in a layer outside of the limit. An IPv4 address that is mapped into IPv6
/// counts as the IPv4 address. An address that NAT64 has translated does not, so behind NAT64 set a
/// [prefix](PeerIp::with_prefix) of 128 bits.
///
/// # Examples
///
/// ```
/// use tower_semaphore::{ConcurrencyLimitLayer, MemorySemaphore, key};
///
/// let layer = ConcurrencyLimitLayer::new(5, key::peer_ip(), MemorySemaphore::new());
/// # drop(layer);
/// ```
pub fn peer_ip() -> PeerIp {
    PeerIp { v4: 32, v6: 64 }
}

/// The extractor that [`peer_ip`] returns.
#[derive(Debug, Clone, Copy)]
#[must_use]
pub struct PeerIp {
    /// The number of leading bits of an IPv4 address that count.
    v4: u8,
    v6: u8,
}

impl PeerIp {
    /// Sets how many leading bits of an IPv4 and of an IPv6 address the key has: 32 and 64 by default.
    /// Addresses that have these bits in common share a limit.
    ///
    /// # Panics
    ///
    /// With more bits than such an address has: 32 and 128.
    ///
    /// # Examples
    ///
    /// ```
    /// use tower_semaphore::key;
    ///
    /// let by_site = key::peer_ip().with_prefix(32, 56); // what many providers assign to a customer
    /// # drop(by_site);
    /// ```
    pub const fn with_prefix(self, v4: u8, v6: u8) -> Self {
        assert!(v4 <= 32, "an IPv4 address has 32 bits");
        assert!(v6 <= 128, "an IPv6 address has 128 bits");
        Self { v4, v6 }
    }

    /// The text of the address if all of its bits count, else that of its network: `2001:db8::/64`.
    fn key(self, address: IpAddr) -> Key {
        match address.to_canonical() {
            IpAddr::V4(address) if self.v4 == 32 => address.into(),
            IpAddr::V6(address) if self.v6 == 128 => address.into(),
            IpAddr::V4(address) => {
                let mask = !u32::MAX.checked_shr(self.v4.into()).unwrap_or(0);
                let network = Ipv4Addr::from_bits(address.to_bits() & mask);
                format!("{network}/{}", self.v4).into()
            }
            IpAddr::V6(address) => {
                let mask = !u128::MAX.checked_shr(self.v6.into()).unwrap_or(0);
                let network = Ipv6Addr::from_bits(address.to_bits() & mask);
                format!("{network}/{}", self.v6).into()
            }
        }
    }
}

impl KeyExtractor for PeerIp {
    fn extract(&self, parts: &Parts) -> Result<Option<Claims>, KeyError> {
        let address = peer(parts).ok_or(KeyError::MissingExtension {
            extension: EXPECTED,
        })?;
        Ok(Some(Claim::new(self.key(address)).into()))
    }
}

const EXPECTED: &str = "SocketAddr, IpAddr, axum's ConnectInfo<SocketAddr> (with the feature `axum`) or tonic's \
    TcpConnectInfo (with the feature `tonic`)";

fn peer(parts: &Parts) -> Option<IpAddr> {
    let extensions = &parts.extensions;
    let address = extensions.get::<SocketAddr>().copied();
    #[cfg(feature = "axum")]
    let address = address.or_else(|| axum_peer(extensions));
    #[cfg(feature = "tonic")]
    let address = address.or_else(|| {
        let info = extensions.get::<tonic::transport::server::TcpConnectInfo>();
        info?.remote_addr()
    });
    address
        .map(|address| address.ip())
        .or_else(|| extensions.get::<IpAddr>().copied())
}

/// Looks in the same order as axum's own extractor.
#[cfg(feature = "axum")]
fn axum_peer(extensions: &http::Extensions) -> Option<SocketAddr> {
    use axum::extract::connect_info::{ConnectInfo, MockConnectInfo};
    let real = extensions.get::<ConnectInfo<SocketAddr>>();
    let mock = || extensions.get::<MockConnectInfo<SocketAddr>>();
    real.map(|info| info.0)
        .or_else(|| mock().map(|info| info.0))
}
