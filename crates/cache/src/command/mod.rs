//! Commands: one row of a table describes each of them.
//!
//! The dispatcher reads arity, keys and flags from a command's row, `COMMAND` returns them to
//! clients, MULTI checks them when it queues a command, and recovery replays the log through them.
//! A handler never locks anything: the shards of the keys in its row are already locked.
//!
//! A handler logs its changes as operations on one key each. An operation must lead from the same
//! value to the same value whenever it runs ([`Context::log`]): a replay applies an operation to a
//! key only if the snapshot it starts from was taken before the operation.

mod about;
mod apart;
mod bits;
mod client;
mod config;
mod connection;
mod context;
mod deadlines;
mod error;
mod hash;
mod info;
mod keys;
mod list;
mod pick;
mod pop_words;
mod pubsub;
mod reading;
mod server;
mod set;
mod sort;
mod string;
mod subcommands;
mod table;
mod transaction;
mod waiting;
mod zset;

pub(crate) use apart::Apart;
pub use context::{Blocking, Context};
pub use error::CommandError;
pub(crate) use reading::bulk;
pub(crate) use string::STRING_SIZE_MAX;
pub(crate) use subcommands::check as check_subcommand;
pub use table::{all, find};

/// Properties of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flags(pub u32);

impl Flags {
    /// It may change keys.
    pub const WRITE: Self = Self(1);
    /// It reads keys and changes none.
    pub const READONLY: Self = Self(1 << 1);
    /// It may need memory: refused when the limit is reached.
    pub const DENYOOM: Self = Self(1 << 2);
    /// It administers the server.
    pub const ADMIN: Self = Self(1 << 3);
    /// It works with channels.
    pub const PUBSUB: Self = Self(1 << 4);
    /// It may block.
    pub const BLOCKING: Self = Self(1 << 5);
    /// It takes constant or logarithmic time.
    pub const FAST: Self = Self(1 << 6);
    /// It runs before authentication.
    pub const NO_AUTH: Self = Self(1 << 7);
    /// MULTI refuses it.
    pub const NO_MULTI: Self = Self(1 << 8);
    /// It runs immediately, even inside MULTI.
    pub const UNQUEUED: Self = Self(1 << 9);
    /// It runs while a RESP2 connection is subscribed.
    pub const SUBSCRIBED: Self = Self(1 << 10);
    /// Its keys are not at fixed positions.
    pub const MOVABLE_KEYS: Self = Self(1 << 11);

    /// It has subcommands.
    pub const CONTAINER: Self = Self(1 << 12);

    /// Combines two sets of flags.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all flags of `other` are set.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// Where a command's keys are among its words (the name is word 0).
#[derive(Debug, Clone, Copy)]
pub enum Keys {
    /// No keys.
    None,
    /// All keys of its database, one shard at a time.
    All,
    /// All keys of all databases.
    Everything,
    /// Every `step`th word from `first` to `last`; a negative `last` counts from the end (-1: the
    /// last word).
    Range(i32, i32, i32),
    /// The number of keys is at the first position and the keys follow it; further keys are at the
    /// positions given.
    Counted(usize, &'static [usize]),
    /// Computed from the words: a list of (database, position of a key), given the command's
    /// database.
    Custom(KeyPositions),
    /// Computed from the words, unless these name keys that are unknown before it runs: then it
    /// needs all keys of its database.
    Wide(KeyPositions, fn(&[&[u8]]) -> bool),
}

/// Finds the keys among words, for a command in the given database: (database, position).
pub type KeyPositions = fn(&[&[u8]], usize) -> Vec<(usize, usize)>;

/// A handler.
pub type Run = fn(&mut Context<'_, '_>, &[&[u8]]) -> Result<(), CommandError>;

/// A row of the table.
#[derive(Debug)]
pub struct Spec {
    /// Its name in lower case.
    pub name: &'static str,
    /// Number of words, the name included; negative: at least that many.
    pub arity: i32,
    /// Its properties.
    pub flags: Flags,
    /// Where its keys are.
    pub keys: Keys,
    /// The family in its documentation: `string`, `list`, ...
    pub group: &'static str,
    /// One sentence that describes it.
    pub summary: &'static str,
    /// Its handler.
    pub run: Run,
}

/// Whether this many words fit an arity: exactly that many or, if it is negative, at least.
fn takes(arity: i32, words: usize) -> bool {
    let words = i32::try_from(words).unwrap_or(i32::MAX);
    if arity >= 0 { words == arity } else { words >= -arity }
}

/// A row of the table, with its arguments in the order in which the families write them.
const fn row(
    group: &'static str,
    name: &'static str,
    arity: i32,
    flags: Flags,
    keys: Keys,
    run: Run,
    summary: &'static str,
) -> Spec {
    Spec { name, arity, flags, keys, group, summary, run }
}

impl Spec {
    /// Whether a command may have this many words, its name included.
    #[must_use]
    pub fn takes(&self, words: usize) -> bool {
        takes(self.arity, words)
    }

    /// Returns the keys among `args`, with their databases: (database, position).
    #[must_use]
    pub fn keys_of(
        &self,
        args: &[&[u8]],
        database: usize,
    ) -> smallvec::SmallVec<[(usize, usize); 4]> {
        let mut found = smallvec::SmallVec::new();
        match self.keys {
            Keys::None | Keys::All | Keys::Everything => {}
            Keys::Range(first, last, step) => {
                let count = i32::try_from(args.len()).unwrap_or(i32::MAX);
                let last = if last < 0 { count + last } else { last };
                let mut at = first;
                while at <= last && at < count {
                    found.extend(usize::try_from(at).ok().map(|at| (database, at)));
                    at += step;
                }
            }
            Keys::Counted(place, before) => {
                found
                    .extend(before.iter().filter(|&&at| at < args.len()).map(|&at| (database, at)));
                let count = args.get(place).and_then(|word| crate::number::parse_i64(word));
                let count = count.and_then(|count| usize::try_from(count).ok()).unwrap_or(0);
                let keys = place + 1..args.len().min((place + 1).saturating_add(count));
                found.extend(keys.map(|at| (database, at)));
            }
            Keys::Custom(places) | Keys::Wide(places, _) => found.extend(places(args, database)),
        }
        found
    }
}

/// Returns the deadline that a word requests, in milliseconds since 1970.
///
/// * `scale`: milliseconds of the word's unit. `relative`: whether it counts from now.
/// * `name`: the command, for the message.
pub(crate) fn deadline(
    now_ms: u64,
    word: &[u8],
    scale: i64,
    relative: bool,
    name: &str,
) -> Result<u64, CommandError> {
    let value = crate::number::parse_i64(word).ok_or(CommandError::NOT_INTEGER)?;
    let invalid = || CommandError::new(format!("ERR invalid expire time in '{name}' command"));
    if value <= 0 {
        return Err(invalid());
    }
    let base = if relative { i64::try_from(now_ms).unwrap_or(i64::MAX) } else { 0 };
    let deadline = value.checked_mul(scale).and_then(|ms| ms.checked_add(base));
    deadline.and_then(|ms| u64::try_from(ms).ok()).ok_or_else(invalid)
}

/// The options after a scan's cursor.
#[derive(Debug, Clone)]
pub(crate) struct ScanOptions {
    /// Approximate number of elements to visit.
    pub(crate) count: usize,
    pattern: Option<Box<[u8]>>,
    /// `TYPE`.
    pub(crate) kind: Option<String>,
    /// `NOVALUES`.
    pub(crate) no_values: bool,
}

impl ScanOptions {
    /// Parses them; `TYPE` is accepted if `of_keys`, `NOVALUES` otherwise.
    pub(crate) fn parse(words: &[&[u8]], of_keys: bool) -> Result<Self, CommandError> {
        let mut options = Self { count: 10, pattern: None, kind: None, no_values: false };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let is = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
            if is("novalues") && !of_keys {
                options.no_values = true;
                continue;
            }
            let value = words.next().ok_or(CommandError::SYNTAX)?;
            if is("count") {
                let count = crate::number::parse_i64(value).ok_or(CommandError::NOT_INTEGER)?;
                options.count =
                    usize::try_from(count).ok().filter(|&n| n > 0).ok_or(CommandError::SYNTAX)?;
            } else if is("match") {
                options.pattern = (*value != b"*").then(|| (*value).into());
            } else if is("type") && of_keys {
                options.kind = Some(String::from_utf8_lossy(value).into_owned());
            } else {
                return Err(CommandError::SYNTAX);
            }
        }
        Ok(options)
    }

    /// Whether a name matches the requested pattern.
    pub(crate) fn matches(&self, name: &[u8]) -> bool {
        self.pattern.as_ref().is_none_or(|pattern| crate::glob::matches(pattern, name))
    }
}

/// The error for an unknown subcommand.
pub(crate) fn unknown_subcommand(command: &str, word: &[u8]) -> CommandError {
    let word = String::from_utf8_lossy(word.get(..128).unwrap_or(word)).into_owned();
    CommandError::new(format!(
        "ERR unknown subcommand '{word}'. Try {} HELP.",
        command.to_ascii_uppercase()
    ))
}
