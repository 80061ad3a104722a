//! The settings of CONFIG, and how each is shown, parsed and applied.
//!
//! A setting fixed at startup may be set to the value it already has: clients that set a value they
//! rely on get it or a clear refusal.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::engine::{Engine, OutputBound};
use crate::store::{Codec, Policy};
use crate::types::packing;

/// Applies a parsed value.
pub(super) type Change = Box<dyn FnOnce(&Engine)>;

/// Parses a value; returns how to apply it, or why it is refused.
type Read = fn(&Engine, &str) -> Result<Change, String>;

/// A setting.
pub(super) struct Setting {
    /// Its name, that of Redis where Redis has the setting.
    pub(super) name: &'static str,
    /// Returns the current value as text.
    pub(super) get: fn(&Engine) -> String,
    /// Parses a new value.
    pub(super) read: Read,
}

const fn free(name: &'static str, get: fn(&Engine) -> String, read: Read) -> Setting {
    Setting { name, get, read }
}

/// A setting that is fixed at startup.
macro_rules! fixed {
    ($name:literal, $get:expr) => {
        Setting {
            name: $name,
            get: $get,
            read: |engine, text| {
                let get: fn(&Engine) -> String = $get;
                if get(engine).eq_ignore_ascii_case(text) {
                    return Ok(Box::new(|_| {}));
                }
                Err(format!("can't set immutable config: it is '{}' until a restart", get(engine)))
            },
        }
    };
}

/// A limit of [`packing`].
macro_rules! packed {
    ($name:literal, $limit:expr) => {
        Setting {
            name: $name,
            get: |_| $limit.get().to_string(),
            read: |_, text| {
                let value = number(text, 0, $limit.max())?;
                Ok(Box::new(move |_| {
                    $limit.set(value);
                }))
            },
        }
    };
}

/// All settings, in the order in which they are listed.
pub(super) const SETTINGS: &[Setting] = &[
    free(
        "maxmemory",
        |engine| engine.keyspace().rules().max_memory().to_string(),
        |_, text| {
            let size = size(text)?;
            Ok(Box::new(move |engine| engine.keyspace().rules().set_max_memory(size)))
        },
    ),
    free(
        "maxmemory-policy",
        |engine| engine.keyspace().rules().policy().as_str().to_owned(),
        |_, text| {
            let policy = Policy::parse(&text.to_ascii_lowercase()).ok_or_else(|| {
                let words = Policy::ALL.map(Policy::as_str).join(", ");
                format!("argument(s) must be one of the following: {words}")
            })?;
            Ok(Box::new(move |engine| engine.keyspace().rules().set_policy(policy)))
        },
    ),
    free(
        "compression",
        |engine| engine.keyspace().rules().codec().as_str().to_owned(),
        |_, text| {
            let codec = Codec::parse(&text.to_ascii_lowercase()).ok_or_else(unreadable)?;
            Ok(Box::new(move |engine| engine.keyspace().rules().set_codec(codec)))
        },
    ),
    free(
        "maxclients",
        |engine| shown(&engine.config().clients_max),
        |engine, text| {
            let clients = number(text, 1, usize::MAX)?;
            let cap = engine.config().clients_cap.load(Ordering::Relaxed);
            if clients > cap {
                return Err(format!(
                    "The operating system is not able to handle the specified number of clients, \
                     try with {cap}"
                ));
            }
            Ok(Box::new(move |engine| store(&engine.config().clients_max, clients)))
        },
    ),
    free(
        "timeout",
        |engine| engine.config().idle_seconds.load(Ordering::Relaxed).to_string(),
        |_, text| {
            let seconds = text.parse().map_err(|_| unreadable())?;
            Ok(Box::new(move |engine| {
                engine.config().idle_seconds.store(seconds, Ordering::Relaxed);
            }))
        },
    ),
    free(
        "proto-max-bulk-len",
        |engine| shown(&engine.config().word_max),
        |_, text| {
            let size = at_least_mebibyte(text)?;
            Ok(Box::new(move |engine| store(&engine.config().word_max, size)))
        },
    ),
    free(
        "client-query-buffer-limit",
        |engine| shown(&engine.config().request_max),
        |_, text| {
            let size = at_least_mebibyte(text)?;
            Ok(Box::new(move |engine| store(&engine.config().request_max, size)))
        },
    ),
    free(
        "client-output-limit",
        |engine| shown(&engine.config().output_max),
        |_, text| {
            let size = size(text)?;
            Ok(Box::new(move |engine| store(&engine.config().output_max, size)))
        },
    ),
    free("client-output-buffer-limit", output_limits, read_output_limits),
    free(
        "maxmemory-clients",
        |engine| shown(&engine.config().clients_memory_max),
        |_, text| {
            let size = size(text)?;
            Ok(Box::new(move |engine| {
                store(&engine.config().clients_memory_max, size);
                engine.keep_clients_bound();
            }))
        },
    ),
    free(
        "slowlog-log-slower-than",
        |engine| match engine.config().slow_us.load(Ordering::Relaxed) {
            u64::MAX => "-1".to_owned(),
            us => us.to_string(),
        },
        |_, text| {
            let us: i64 = text.parse().map_err(|_| unreadable())?;
            let us = u64::try_from(us).unwrap_or(u64::MAX);
            Ok(Box::new(move |engine| engine.config().slow_us.store(us, Ordering::Relaxed)))
        },
    ),
    free(
        "slowlog-max-len",
        |engine| shown(&engine.config().slow_len),
        |_, text| {
            let len = number(text, 0, usize::MAX)?;
            Ok(Box::new(move |engine| store(&engine.config().slow_len, len)))
        },
    ),
    free(
        "requirepass",
        // The password is never shown, not even to the client that has it.
        |engine| if engine.config().needs_password() { "(set)".into() } else { String::new() },
        |_, text| {
            let password = text.to_owned();
            Ok(Box::new(move |engine| engine.config().set_password(Some(password.as_bytes()))))
        },
    ),
    packed!("hash-max-listpack-entries", packing::HASH.len),
    packed!("hash-max-ziplist-entries", packing::HASH.len),
    packed!("hash-max-listpack-value", packing::HASH.item_size),
    packed!("hash-max-ziplist-value", packing::HASH.item_size),
    packed!("set-max-listpack-entries", packing::SET.len),
    packed!("set-max-listpack-value", packing::SET.item_size),
    packed!("set-max-intset-entries", packing::SET_INTEGERS),
    packed!("zset-max-listpack-entries", packing::ZSET.len),
    packed!("zset-max-ziplist-entries", packing::ZSET.len),
    packed!("zset-max-listpack-value", packing::ZSET.item_size),
    packed!("zset-max-ziplist-value", packing::ZSET.item_size),
    packed!("list-compress-depth", packing::LIST_COMPRESS_DEPTH),
    free("list-max-listpack-size", list_chunk, read_list_chunk),
    free("list-max-ziplist-size", list_chunk, read_list_chunk),
    fixed!("databases", |_| crate::store::DATABASES.to_string()),
    fixed!("appendonly", |engine| {
        if engine.journal().is_some() { "yes" } else { "no" }.to_owned()
    }),
    // Snapshots are taken as the log grows, not at intervals.
    fixed!("save", |_| String::new()),
    fixed!("appendfsync", |engine| {
        match engine.journal().map(|journal| journal.log().durability()) {
            Some(forebay_base::durability::Durability::Sync) => "always",
            Some(forebay_base::durability::Durability::Os) => "no",
            _ => "everysec",
        }
        .to_owned()
    }),
];

fn shown(setting: &AtomicUsize) -> String {
    setting.load(Ordering::Relaxed).to_string()
}

fn store(setting: &AtomicUsize, value: usize) {
    setting.store(value, Ordering::Relaxed);
}

fn unreadable() -> String {
    "argument couldn't be parsed into a valid value".to_owned()
}

fn number(text: &str, min: usize, max: usize) -> Result<usize, String> {
    let value: usize =
        text.parse().map_err(|_| "argument couldn't be parsed into an integer".to_owned())?;
    if (min..=max).contains(&value) {
        Ok(value)
    } else {
        Err(format!("argument must be between {min} and {max} inclusive"))
    }
}

/// A number of bytes as Redis' configuration writes it: `100mb`, `1gb`, `1k`, `1024`.
fn size(text: &str) -> Result<usize, String> {
    bytes(text).ok_or_else(|| "argument must be a memory value".to_owned())
}

fn at_least_mebibyte(text: &str) -> Result<usize, String> {
    let size = size(text)?;
    if size >= 1 << 20 { Ok(size) } else { Err("argument must be at least 1mb".to_owned()) }
}

fn bytes(text: &str) -> Option<usize> {
    let text = text.to_ascii_lowercase();
    let at = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(at);
    let scale: usize = match unit {
        "" | "b" => 1,
        "k" => 1_000,
        "kb" | "kib" => 1 << 10,
        "m" => 1_000_000,
        "mb" | "mib" => 1 << 20,
        "g" => 1_000_000_000,
        "gb" | "gib" => 1 << 30,
        _ => return None,
    };
    digits.parse::<usize>().ok()?.checked_mul(scale)
}

/// The size of a list's chunk in Redis' words: elements, or -1 to -5 for 4 KiB to 64 KiB.
fn list_chunk(_: &Engine) -> String {
    match packing::LIST_CHUNK_LEN.get() {
        0 => format!("-{}", (packing::LIST_CHUNK_SIZE.get() >> 11).trailing_zeros()),
        len => len.to_string(),
    }
}

fn read_list_chunk(_: &Engine, text: &str) -> Result<Change, String> {
    let value: i64 = text.parse().map_err(|_| unreadable())?;
    let size = match value {
        -5..=-1 => Some(2_048 << -value),
        _ => None,
    };
    let len = usize::try_from(value).ok().filter(|len| *len <= packing::LIST_CHUNK_LEN.max());
    match (size, len) {
        (Some(size), _) => Ok(Box::new(move |_| {
            packing::LIST_CHUNK_LEN.set(0);
            packing::LIST_CHUNK_SIZE.set(size);
        })),
        // Redis treats 0 as one element per chunk.
        (None, Some(len)) => Ok(Box::new(move |_| {
            packing::LIST_CHUNK_LEN.set(len.max(1));
        })),
        (None, None) => Err(format!(
            "argument must be between -5 and {} inclusive",
            packing::LIST_CHUNK_LEN.max()
        )),
    }
}

/// `normal 0 0 0 slave 0 0 0 pubsub 33554432 8388608 60`: hard, soft, seconds.
fn output_limits(engine: &Engine) -> String {
    let config = engine.config();
    let shown = |name, bound: OutputBound| {
        format!("{name} {} {} {}", bound.hard, bound.soft, bound.soft_seconds)
    };
    let kinds = [
        ("normal", config.normal_output.get()),
        // There are no replicas, so their limit never applies.
        ("slave", OutputBound::default()),
        ("pubsub", config.pubsub_output.get()),
    ];
    kinds.map(|(name, bound)| shown(name, bound)).join(" ")
}

fn read_output_limits(_: &Engine, text: &str) -> Result<Change, String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let (limits, rest) = words.as_chunks::<4>();
    if limits.is_empty() || !rest.is_empty() {
        return Err("Wrong number of arguments in buffer limit configuration.".to_owned());
    }
    let (mut normal, mut pubsub) = (None, None);
    for [kind, hard, soft, seconds] in limits {
        let wrong = || "Error in hard, soft or soft_seconds setting in buffer limit configuration.";
        let bound = OutputBound {
            hard: bytes(hard).ok_or_else(wrong)?,
            soft: bytes(soft).ok_or_else(wrong)?,
            soft_seconds: seconds.parse().map_err(|_| wrong())?,
        };
        match kind.to_ascii_lowercase().as_str() {
            "normal" => normal = Some(bound),
            "pubsub" => pubsub = Some(bound),
            "slave" | "replica" => {}
            _ => return Err("Invalid client class specified in buffer limit configuration.".into()),
        }
    }
    Ok(Box::new(move |engine| {
        let config = engine.config();
        for (limit, bound) in [(&config.normal_output, normal), (&config.pubsub_output, pubsub)] {
            if let Some(bound) = bound {
                limit.set(bound);
            }
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_redis_reads_them() {
        for (text, size) in [("0", 0), ("100mb", 100 << 20), ("1k", 1_000), ("2GB", 2 << 30)] {
            assert_eq!(bytes(text), Some(size), "{text}");
        }
        for text in ["", "mb", "1tb", "-1", "99999999999999999999", "9999999999999gb"] {
            assert_eq!(bytes(text), None, "{text}");
        }
    }
}
