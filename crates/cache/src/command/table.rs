//! The table of commands, and lookup of a row by name.

use std::sync::OnceLock;

use foldhash::{HashMap, HashMapExt as _};

use super::Spec;
use super::{
    bits, client, config, connection, deadlines, hash, info, keys, list, pubsub, server, set, sort,
    string, transaction, zset,
};

/// Maximum length of a command's name.
const NAME_MAX: usize = 32;

/// The families, in the order in which they are listed.
const FAMILIES: &[&[Spec]] = &[
    string::COMMANDS,
    keys::COMMANDS,
    deadlines::COMMANDS,
    sort::COMMANDS,
    list::COMMANDS,
    hash::COMMANDS,
    set::COMMANDS,
    zset::COMMANDS,
    bits::COMMANDS,
    connection::COMMANDS,
    transaction::COMMANDS,
    client::COMMANDS,
    pubsub::COMMANDS,
    server::COMMANDS,
    config::COMMANDS,
    info::COMMANDS,
];

/// Every command.
pub fn all() -> impl Iterator<Item = &'static Spec> {
    FAMILIES.iter().copied().flatten()
}

fn by_name() -> &'static HashMap<&'static [u8], &'static Spec> {
    static BY_NAME: OnceLock<HashMap<&'static [u8], &'static Spec>> = OnceLock::new();
    BY_NAME.get_or_init(|| {
        let mut rows = HashMap::with_capacity(256);
        rows.extend(all().map(|spec| (spec.name.as_bytes(), spec)));
        rows
    })
}

/// Returns the row of a command; upper and lower case are the same.
#[must_use]
#[inline]
pub fn find(name: &[u8]) -> Option<&'static Spec> {
    let mut lower = [0; NAME_MAX];
    let lower = lower.get_mut(..name.len())?;
    for (to, from) in lower.iter_mut().zip(name) {
        *to = from.to_ascii_lowercase();
    }
    by_name().get(&*lower).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_lower_case_short_and_given_once() {
        let mut seen = std::collections::HashSet::new();
        for spec in all() {
            assert!(seen.insert(spec.name), "{} is there twice", spec.name);
            assert!(spec.name.len() <= NAME_MAX && spec.name == spec.name.to_ascii_lowercase());
            assert!(spec.arity != 0 && !spec.summary.is_empty());
            assert!(std::ptr::eq(find(spec.name.to_ascii_uppercase().as_bytes()).unwrap(), spec));
        }
        assert!(find(b"").is_none() && find(&[b'x'; 100]).is_none());
    }
}
