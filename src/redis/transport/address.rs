//! The address of a server.

use redis::{ConnectionAddr, ConnectionInfo};
use std::fmt;

/// A host and a port. The other settings of a connection come from a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) host: String,
    pub(super) port: u16,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

impl Address {
    /// Parses `HOST:PORT`. An address without a host is on `host`, which has sent it. Returns `None` if the host is
    /// `?`, because then the sender does not know its name.
    pub(super) fn parse(text: &str, host: &str) -> Option<Self> {
        let (own, port) = text.rsplit_once(':').filter(|(own, _)| *own != "?")?;
        let own = own.trim_start_matches('[').trim_end_matches(']');
        Some(Self {
            host: if own.is_empty() { host } else { own }.to_owned(),
            port: port.parse().ok()?,
        })
    }

    /// The address of connections with these settings. `None` for a Unix socket.
    pub(super) fn from_info(info: &ConnectionInfo) -> Option<Self> {
        match info.addr() {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                let (host, port) = (host.clone(), *port);
                Some(Self { host, port })
            }
            _ => None,
        }
    }

    /// The settings of `template` for the server at this address.
    pub(super) fn info(&self, template: &ConnectionInfo) -> ConnectionInfo {
        let mut address = template.addr().clone();
        match &mut address {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                (*host, *port) = (self.host.clone(), self.port);
            }
            // A Sentinel may be reached over a Unix socket. The primary that it names never is.
            other => *other = ConnectionAddr::Tcp(self.host.clone(), self.port),
        }
        template.clone().set_addr(address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_without_a_host_is_on_the_host_that_sent_it() {
        let read = |text| Address::parse(text, "here").map(|at| (at.host, at.port));
        let on = |host: &str| Some((host.to_owned(), 7_001));
        assert_eq!(read("10.0.0.1:7001"), on("10.0.0.1"));
        assert_eq!(read("::1:7001"), on("::1"));
        assert_eq!(read("[::1]:7001"), on("::1"));
        assert_eq!(read(":7001"), on("here"));
        assert_eq!(read("here"), None);
        assert_eq!(read("?:7001"), None);
    }
}
