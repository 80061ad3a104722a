//! CONFIG: settings by the names Redis gives them.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::{CommandError, Context, Flags, Keys, Spec};
use crate::engine::Engine;
use crate::glob;
use crate::store::{Codec, Policy};

/// The family's rows.
pub(super) const COMMANDS: &[Spec] = &[Spec {
    name: "config",
    arity: -2,
    flags: Flags::ADMIN,
    keys: Keys::None,
    group: "server",
    summary: "Tells settings and changes them.",
    run: config,
}];

type Result = std::result::Result<(), CommandError>;

/// A setting: its name, how it is told, how it is set (`None`: it cannot be while running).
struct Setting {
    name: &'static str,
    get: fn(&Engine) -> String,
    set: Option<fn(&Engine, &str) -> Option<()>>,
}

const fn fixed(name: &'static str, get: fn(&Engine) -> String) -> Setting {
    Setting { name, get, set: None }
}

const fn free(
    name: &'static str,
    get: fn(&Engine) -> String,
    set: fn(&Engine, &str) -> Option<()>,
) -> Setting {
    Setting { name, get, set: Some(set) }
}

const SETTINGS: &[Setting] = &[
    free(
        "maxmemory",
        |engine| engine.keyspace().rules().max_memory().to_string(),
        |engine, text| {
            engine.keyspace().rules().set_max_memory(bytes(text)?);
            Some(())
        },
    ),
    free(
        "maxmemory-policy",
        |engine| engine.keyspace().rules().policy().as_str().to_owned(),
        |engine, text| {
            engine.keyspace().rules().set_policy(Policy::parse(&text.to_ascii_lowercase())?);
            Some(())
        },
    ),
    free(
        "compression",
        |engine| engine.keyspace().rules().codec().as_str().to_owned(),
        |engine, text| {
            engine.keyspace().rules().set_codec(Codec::parse(&text.to_ascii_lowercase())?);
            Some(())
        },
    ),
    free(
        "maxclients",
        |engine| told(&engine.config().clients_max),
        |engine, text| {
            let clients = text.parse().ok().filter(|&clients| clients > 0)?;
            engine.config().clients_max.store(clients, Ordering::Relaxed);
            Some(())
        },
    ),
    free(
        "timeout",
        |engine| engine.config().idle_seconds.load(Ordering::Relaxed).to_string(),
        |engine, text| {
            engine.config().idle_seconds.store(text.parse().ok()?, Ordering::Relaxed);
            Some(())
        },
    ),
    free(
        "proto-max-bulk-len",
        |engine| told(&engine.config().word_max),
        |engine, text| {
            let size = bytes(text).filter(|&size| size >= 1 << 20)?;
            engine.config().word_max.store(size, Ordering::Relaxed);
            Some(())
        },
    ),
    free(
        "client-query-buffer-limit",
        |engine| told(&engine.config().request_max),
        |engine, text| {
            let size = bytes(text).filter(|&size| size >= 1 << 20)?;
            engine.config().request_max.store(size, Ordering::Relaxed);
            Some(())
        },
    ),
    free(
        "client-output-limit",
        |engine| told(&engine.config().output_max),
        |engine, text| {
            engine.config().output_max.store(bytes(text)?, Ordering::Relaxed);
            Some(())
        },
    ),
    free(
        "slowlog-log-slower-than",
        |engine| match engine.config().slow_us.load(Ordering::Relaxed) {
            u64::MAX => "-1".to_owned(),
            us => us.to_string(),
        },
        |engine, text| {
            let us: i64 = text.parse().ok()?;
            let us = u64::try_from(us).unwrap_or(u64::MAX);
            engine.config().slow_us.store(us, Ordering::Relaxed);
            Some(())
        },
    ),
    free(
        "slowlog-max-len",
        |engine| told(&engine.config().slow_len),
        |engine, text| {
            engine.config().slow_len.store(text.parse().ok()?, Ordering::Relaxed);
            Some(())
        },
    ),
    free(
        "requirepass",
        // A password is never told, not even that of whoever asks.
        |engine| if engine.config().needs_password() { "(set)".into() } else { String::new() },
        |engine, text| {
            engine.config().set_password(Some(text.as_bytes()));
            Some(())
        },
    ),
    fixed("databases", |_| crate::store::DATABASES.to_string()),
    fixed("appendonly", |engine| if engine.journal().is_some() { "yes" } else { "no" }.to_owned()),
    fixed("save", |_| String::new()),
    fixed("appendfsync", |engine| {
        match engine.journal().map(|journal| journal.log().durability()) {
            Some(forebay_base::durability::Durability::Sync) => "always",
            Some(forebay_base::durability::Durability::Os) => "no",
            _ => "everysec",
        }
        .to_owned()
    }),
];

fn told(setting: &AtomicUsize) -> String {
    setting.load(Ordering::Relaxed).to_string()
}

/// A number of bytes as Redis' configuration writes it: `100mb`, `1gb`, `1k`, `1024`.
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

fn config(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    match (args[1].to_ascii_lowercase().as_slice(), &args[2..]) {
        (b"get", patterns) if !patterns.is_empty() => get(cx, patterns),
        (b"set", words) if !words.is_empty() => set(cx, words),
        (b"resetstat", []) => {
            cx.engine.statistics().reset();
            cx.out.ok();
        }
        (b"rewrite", []) => {
            return Err(CommandError::new("ERR The server is running without a config file"));
        }
        (b"help", []) => {
            let lines = ["CONFIG GET pattern [pattern ...]", "CONFIG SET name value [...]"];
            cx.out.array(lines.len());
            lines.iter().for_each(|line| cx.out.simple(line));
        }
        _ => return Err(super::unknown_subcommand("config", args[1])),
    }
    Ok(())
}

fn get(cx: &mut Context<'_, '_>, patterns: &[&[u8]]) {
    let wanted = |setting: &&Setting| {
        let name = setting.name.as_bytes();
        patterns.iter().any(|pattern| glob::matches_ignoring_case(pattern, name))
    };
    let found: Vec<&Setting> = SETTINGS.iter().filter(wanted).collect();
    cx.out.map(found.len());
    for setting in found {
        cx.out.bulk(setting.name.as_bytes());
        cx.out.bulk((setting.get)(cx.engine).as_bytes());
    }
}

fn set(cx: &mut Context<'_, '_>, words: &[&[u8]]) {
    if let Err(error) = try_set(cx.engine, words) {
        cx.out.error(&error.0);
    } else {
        cx.out.ok();
    }
}

fn try_set(engine: &Engine, words: &[&[u8]]) -> Result {
    let (pairs, left) = words.as_chunks::<2>();
    if !left.is_empty() {
        return Err(CommandError::new("ERR wrong number of arguments for 'config|set' command"));
    }
    let mut setters = Vec::new();
    for [name, value] in pairs {
        let shown = String::from_utf8_lossy(name).into_owned();
        let setting = SETTINGS
            .iter()
            .find(|setting| name.eq_ignore_ascii_case(setting.name.as_bytes()))
            .ok_or_else(|| {
                CommandError::new(format!(
                    "ERR Unknown option or number of arguments for CONFIG SET - '{shown}'"
                ))
            })?;
        let failed = |why: &str| {
            CommandError::new(format!(
                "ERR CONFIG SET failed (possibly related to argument '{shown}') - {why}"
            ))
        };
        let set = setting.set.ok_or_else(|| failed("can't set immutable config"))?;
        let value = std::str::from_utf8(value).map_err(|_| failed("not text"))?;
        setters.push((set, value, setting.name));
    }
    for (set, value, name) in setters {
        set(engine, value).ok_or_else(|| {
            CommandError::new(format!(
                "ERR CONFIG SET failed (possibly related to argument '{name}') - argument couldn't be parsed into a valid value"
            ))
        })?;
    }
    Ok(())
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
