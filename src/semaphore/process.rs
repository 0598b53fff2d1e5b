//! Processes: who holds a permit.

use std::{env, fs, path::Path, process, sync::LazyLock};

/// A process that holds permits of a store, or waits for them.
///
/// What a store does not know is `None`: another process may have said nothing of itself, or too long
/// ago.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Process {
    /// What the store calls the process: unique among all processes that share the store. A process that
    /// has opened a store twice counts as two.
    pub id: String,
    /// The name of the machine.
    pub host: Option<String>,
    /// The number of the process on that machine, or in its container.
    pub pid: Option<u32>,
    /// The name of its program.
    pub name: Option<String>,
    /// The version of this crate that the process uses.
    pub version: Option<String>,
}

static CURRENT: LazyLock<Process> = LazyLock::new(|| Process {
    id: process::id().to_string(),
    host: host(),
    pid: Some(process::id()),
    name: program(),
    version: Some(env!("CARGO_PKG_VERSION").to_owned()),
});

impl Process {
    /// A process of which nothing but its id is known.
    ///
    /// # Examples
    ///
    /// ```
    /// use tower_semaphore::semaphore::Process;
    ///
    /// assert_eq!(Process::new("web-1").pid, None);
    /// ```
    pub fn new(id: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            host: None,
            pid: None,
            name: None,
            version: None,
        }
    }

    /// This process. Its id is its number.
    ///
    /// # Examples
    ///
    /// ```
    /// use tower_semaphore::semaphore::Process;
    ///
    /// assert_eq!(Process::current().pid, Some(std::process::id()));
    /// ```
    pub fn current() -> Self {
        CURRENT.clone()
    }
}

/// The machine's name: as Linux says, else as the environment does.
fn host() -> Option<String> {
    let told = fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let told = told.map(|host| host.trim().to_owned());
    let known = told.filter(|host| !host.is_empty());
    let variables = ["HOSTNAME", "COMPUTERNAME"].into_iter();
    known.or_else(|| variables.filter_map(|name| env::var(name).ok()).next())
}

fn program() -> Option<String> {
    let path = env::args_os().next()?;
    let name = Path::new(&path).file_stem()?;
    Some(name.to_string_lossy().into_owned())
}
