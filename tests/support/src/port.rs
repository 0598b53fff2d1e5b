//! Ports of servers.
//!
//! A killed server leaves its port free, and clients that know the port keep connecting to it. If a server of another
//! test got the port in the meantime, they would reach that server. So the owner of a port locks it against all test
//! programs as long as the owner lives.

use rustix::fs::{FlockOperation, flock};
use std::{
    env,
    fs::{self, File},
    hash::{BuildHasher, RandomState},
    io,
    net::{Ipv4Addr, TcpListener},
    ops::Range,
};

/// Below the ports that systems give to outgoing connections. Otherwise a client of a dead server could get the
/// server's port and connect to itself. A node of a cluster also uses the port 10,000 above.
const PORTS: Range<u16> = 10_000..20_000;

/// A port that no other test gets.
#[derive(Debug)]
pub struct Port {
    pub number: u16,
    /// Holds the lock until it is dropped.
    _lock: File,
}

impl Port {
    /// # Panics
    ///
    /// If no port is free.
    pub fn reserve() -> Self {
        let count = u64::from(PORTS.end - PORTS.start);
        let first = RandomState::new().hash_one(PORTS.start) % count;
        let numbers = (0..count).map(|step| PORTS.start + ((first + step) % count) as u16);
        let mut free = numbers.filter_map(|number| Self::lock(number).ok());
        free.next().expect("a port is free")
    }

    fn lock(number: u16) -> io::Result<Self> {
        let folder = env::temp_dir().join("tower-semaphore-ports");
        fs::create_dir_all(&folder)?;
        let lock = File::create(folder.join(number.to_string()))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        TcpListener::bind((Ipv4Addr::LOCALHOST, number))?;
        Ok(Self {
            number,
            _lock: lock,
        })
    }
}
