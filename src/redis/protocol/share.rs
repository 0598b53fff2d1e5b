//! What travels in one call.

use super::{
    id::Owner,
    script::{Form, Script, Text},
};
use redis::{Cmd, Value};
use std::{borrow::Cow, collections::HashMap};

/// A share of a call, and of its answer: that of one semaphore, or of one claim.
pub(super) trait Share {
    /// Whether shares may have semaphores in common. A call names each once, and its arguments have
    /// its number.
    const OVERLAP: bool = false;

    /// The names of its semaphores.
    fn names(&self) -> impl Iterator<Item = &str>;

    /// A key on the same server as all of its keys: the name of a semaphore has their hash tag.
    fn key(&self) -> Cow<'_, str> {
        Cow::Borrowed(self.names().next().unwrap_or_default())
    }

    /// How many claims or permits travel in it.
    fn size(&self) -> usize {
        1
    }

    /// What the script takes in front of all shares: the [`count`](Self::count) of each if that is the
    /// same, else 0. `None`: each share begins with its count.
    fn head(_: &[Self]) -> Option<usize>
    where
        Self: Sized,
    {
        None
    }

    /// The count that a share begins with.
    fn count(&self) -> usize {
        self.args()
    }

    /// How many arguments the share has.
    fn args(&self) -> usize;

    /// About how many units the script touches for the share.
    fn units(&self) -> usize;

    fn write(&self, owner: &Owner, numbers: &Numbers<'_>, command: &mut Cmd);

    /// How many items of a detailed answer belong to the share, of which this is the first.
    fn items(&self, first: Option<&Value>) -> usize;
}

/// The numbers of a call's semaphores, from 1, if its shares may have some in common.
#[derive(Default)]
pub(super) struct Numbers<'a>(HashMap<&'a str, usize>);

impl<'a> Numbers<'a> {
    /// Gives a semaphore a number. `false`: it has one.
    fn add(&mut self, name: &'a str) -> bool {
        let new = self.0.len() + 1;
        *self.0.entry(name).or_insert(new) == new
    }

    pub(super) fn of(&self, name: &str) -> usize {
        self.0.get(name).copied().unwrap_or_default()
    }
}

/// The command of a call for these shares. `head` has the arguments that are for all of them.
pub(super) fn command<P: Share>(
    script: &Script,
    form: Form,
    head: &[u64],
    owner: &Owner,
    shares: &[P],
) -> Cmd {
    let mut numbers = Numbers::default();
    let names = shares.iter().flat_map(P::names);
    let names: Vec<_> = names
        .filter(|name| !P::OVERLAP || numbers.add(name))
        .collect();
    let args = shares.iter().map(|share| share.args() + 1).sum::<usize>();
    let mut command = begin(script, form, &names, head.len() + args);
    command.arg(head);
    let equal = P::head(shares);
    if let Some(count) = equal {
        command.arg(count);
    }
    for share in shares {
        if equal.is_none_or(|count| count == 0) {
            command.arg(share.count());
        }
        share.write(owner, &numbers, &mut command);
    }
    command
}

/// A command with its keys, and with room for so many arguments.
fn begin(script: &Script, form: Form, names: &[&str], args: usize) -> Cmd {
    /// About the length of an id.
    const ARG: usize = 56;
    let suffixes = script.keys();
    let keys = names.len() * suffixes.len();
    let bytes = names.iter().map(|name| name.len()).sum::<usize>() * suffixes.len();
    let mut command = script.call(form, keys + args + 3, bytes + args * ARG);
    command.arg(keys);
    for name in names {
        for suffix in suffixes {
            command.arg(Text(format_args!("{name}{suffix}")));
        }
    }
    command
}
