//! The script files of the crate, joined in the order in which the crate sends them.

/// A file of `proto/src/verbs`.
macro_rules! part {
    ($name:literal) => {
        (
            $name,
            include_str!(concat!("../../../proto/src/verbs/", $name, ".lua")),
        )
    };
}

type Part = (&'static str, &'static str);

/// A script.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verb {
    /// Grants permits, or positions in a queue.
    Acquire,
    /// Moves the ends of leases forward.
    Refresh,
    /// Releases units, or leaves the queue.
    Release,
    /// Announces that a process lives, and reads the server's clock.
    Presence,
    /// Takes a permit from its owner.
    Revoke,
    /// Lists held units and waiting claims.
    Usage,
    /// Sets a limit.
    Limits,
    /// Closes a semaphore until a time, or opens it.
    Pause,
    /// `Acquire`, for levels that include budgets.
    AcquireBudgets,
    /// `Refresh`, for such levels.
    RefreshBudgets,
    /// `Release`, for such levels.
    ReleaseBudgets,
}

const FILES: [Part; 13] = [
    part!("common"),
    part!("grant"),
    part!("budget"),
    part!("queue"),
    part!("acquire"),
    part!("refresh"),
    part!("refresh_budgets"),
    part!("release"),
    part!("presence"),
    part!("revoke"),
    part!("usage"),
    part!("limits"),
    part!("pause"),
];
/// The files of each script, in the order of the verbs.
const PARTS: [&[&str]; 11] = [
    &["common", "grant", "queue", "acquire"],
    &["common", "refresh"],
    &["common", "grant", "release"],
    &["common", "presence"],
    &["common", "grant", "budget", "revoke"],
    &["common", "usage"],
    &["common", "limits"],
    &["common", "grant", "budget", "pause"],
    &["common", "grant", "budget", "queue", "acquire"],
    &["common", "grant", "budget", "refresh_budgets"],
    &["common", "grant", "budget", "release"],
];

/// The bound of one call: the units that it grants from queues plus the dead waiters that it removes.
pub const MAX_ADVANCED: usize = 500;

/// The script files, possibly patched.
#[derive(Debug, Clone)]
pub struct Scripts(Vec<(&'static str, String)>);

impl Scripts {
    /// The scripts that ship.
    pub fn shipped() -> Self {
        let owned = FILES
            .iter()
            .map(|(name, source)| (*name, (*source).to_owned()));
        Self(owned.collect())
    }

    /// Replaces one place in one file. Whitespace and comments do not matter for finding the place.
    ///
    /// # Panics
    ///
    /// If the file does not have the place exactly once.
    #[must_use]
    pub fn patched(mut self, file: &str, old: &str, new: &str) -> Self {
        let mut files = self.0.iter_mut();
        let source = files.find(|(name, _)| *name == file);
        let (_, source) = source.unwrap_or_else(|| panic!("there is no {file}.lua"));
        let code = source.lines().filter(|line| !line.trim().starts_with("--"));
        let code: Vec<_> = code.flat_map(str::split_whitespace).collect();
        let code = code.join(" ");
        let count = code.matches(old).count();
        assert_eq!(count, 1, "{file}.lua has this {count} times: {old}");
        *source = code.replacen(old, new, 1) + "\n";
        self
    }

    /// The scripts with a smaller bound on how far one call advances queues.
    #[must_use]
    pub fn advancing(&self, most: usize) -> Self {
        let bound = |most: usize| format!("local MAX_ADVANCED = {most} ");
        self.clone()
            .patched("grant", &bound(MAX_ADVANCED), &bound(most))
    }

    /// The scripts, in the order of the verbs.
    pub fn all(&self) -> impl Iterator<Item = String> {
        PARTS.iter().map(|parts| {
            let sources = parts.iter().map(|part| {
                let file = self.0.iter().find(|(name, _)| name == part);
                file.map_or("", |(_, source)| source)
            });
            sources.collect()
        })
    }
}
