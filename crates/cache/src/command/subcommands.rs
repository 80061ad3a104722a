//! The subcommands of commands such as CLIENT and OBJECT, and how many words each takes.
//!
//! They are checked before a command runs or is queued, as in Redis: a transaction with a wrong one is
//! refused as a whole.

use super::{CommandError, Flags, Spec};

/// A subcommand and its number of words, that of the command included; negative: at least that many.
type Sub = (&'static str, i32);

const CLIENT: &[Sub] = &[
    ("getname", 2),
    ("getredir", 2),
    ("help", 2),
    ("id", 2),
    ("info", 2),
    ("kill", -3),
    ("list", -2),
    ("no-evict", 3),
    ("no-touch", 3),
    ("reply", 3),
    ("setinfo", 4),
    ("setname", 3),
    ("unblock", -3),
];
const COMMAND: &[Sub] = &[("count", 2), ("docs", -2), ("getkeys", -3), ("info", -2), ("list", -2)];
const CONFIG: &[Sub] = &[("get", -3), ("help", 2), ("resetstat", 2), ("rewrite", 2), ("set", -4)];
const FUNCTION: &[Sub] = &[("flush", -2), ("list", -2)];
const MEMORY: &[Sub] = &[("doctor", 2), ("purge", 2), ("stats", 2), ("usage", -3)];
const OBJECT: &[Sub] =
    &[("encoding", 3), ("freq", 3), ("help", 2), ("idletime", 3), ("refcount", 3)];
const PUBSUB: &[Sub] =
    &[("channels", -2), ("numpat", 2), ("numsub", -2), ("shardchannels", -2), ("shardnumsub", -2)];
const SLOWLOG: &[Sub] = &[("get", -2), ("len", 2), ("reset", 2)];

/// The commands that have subcommands.
const ALL: &[(&str, &[Sub])] = &[
    ("client", CLIENT),
    ("command", COMMAND),
    ("config", CONFIG),
    ("function", FUNCTION),
    ("memory", MEMORY),
    ("object", OBJECT),
    ("pubsub", PUBSUB),
    ("slowlog", SLOWLOG),
];

/// Checks the subcommand of a command that has some.
///
/// # Errors
/// It is unknown, or has the wrong number of words.
pub(crate) fn check(spec: &Spec, args: &[&[u8]]) -> Result<(), CommandError> {
    let Some(word) = args.get(1).filter(|_| spec.flags.has(Flags::CONTAINER)) else {
        return Ok(());
    };
    let subs = ALL.iter().find(|(name, _)| *name == spec.name).map_or(&[][..], |(_, subs)| subs);
    let Some((name, arity)) =
        subs.iter().find(|(name, _)| word.eq_ignore_ascii_case(name.as_bytes()))
    else {
        return Err(super::unknown_subcommand(spec.name, word));
    };
    if super::takes(*arity, args.len()) {
        return Ok(());
    }
    let command = spec.name;
    Err(CommandError::new(format!("ERR wrong number of arguments for '{command}|{name}' command")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_with_subcommands_is_listed() {
        for spec in super::super::all() {
            let listed = ALL.iter().any(|(name, _)| *name == spec.name);
            assert_eq!(listed, spec.flags.has(Flags::CONTAINER), "{}", spec.name);
        }
    }
}
