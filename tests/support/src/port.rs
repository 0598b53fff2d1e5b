//! Ports of servers.
//!
//! A server that was killed leaves its port free, and clients that know it go on connecting: to a
//! server of another test, if that got the port meanwhile. So a port is locked for all test programs
//! as long as its owner lives.

use rustix::fs::{FlockOperation, flock};
use std::{
    env,
    fs::{self, File},
    hash::{BuildHasher, RandomState},
    io,
    net::{Ipv4Addr, TcpListener},
    ops::Range,
};

/// Below those that systems give to clients by themselves, so that no client of a dead server gets
/// its port, and is connected to itself. A node of a cluster uses the port that is 10,000 above too.
const PORTS: Range<u16> = 10_000..20_000;

/// A port that no other test gets.
#[derive(Debug)]
pub struct Port {
    pub number: u16,
    /// Unlocked when it is dropped.
    _lock: File,
}

impl Port {
    /// # Panics
    ///
    /// When no port is free.
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
