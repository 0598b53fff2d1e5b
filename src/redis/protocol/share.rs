//! What travels in one call.

use super::{
    id::Owner,
    script::{Form, Script, Text},
};
use redis::Cmd;

/// A share of a call, and of its answer: that of one semaphore, or of one claim for several.
pub(super) trait Share {
    /// The names of its semaphores.
    fn names(&self) -> impl Iterator<Item = &str>;

    /// How many arguments the share has.
    fn args(&self) -> usize;

    /// About how many units the script touches for the share.
    fn units(&self) -> usize;

    fn write(&self, owner: &Owner, command: &mut Cmd);

    /// How many items of a detailed answer belong to the share.
    fn items(&self) -> usize;
}

/// A call with its keys, and with room for the rest of its arguments.
pub(super) fn begin<P: Share>(script: &Script, form: Form, shares: &[P]) -> Cmd {
    /// About the length of an id.
    const ARG: usize = 56;
    let keys = script.keys();
    let names = || shares.iter().flat_map(P::names);
    let (mut count, mut bytes) = (0, 0);
    names().for_each(|name| (count, bytes) = (count + keys.len(), bytes + name.len() * keys.len()));
    let args = shares.iter().map(|share| share.args() + 1).sum::<usize>();
    let mut command = script.call(form, count + args + 6, bytes + args * ARG);
    command.arg(count);
    for name in names() {
        for suffix in keys {
            command.arg(Text(format_args!("{name}{suffix}")));
        }
    }
    command
}
