//! CONFIG: settings under the names Redis uses.

mod settings;

use settings::{SETTINGS, Setting};

use super::{CommandError, Context, Flags, Keys, Spec};
use crate::engine::Engine;
use crate::glob;

/// The family's rows.
pub(super) const COMMANDS: &[Spec] = &[Spec {
    name: "config",
    arity: -2,
    flags: Flags::ADMIN.and(Flags::CONTAINER),
    keys: Keys::None,
    group: "server",
    summary: "Returns and changes settings.",
    run: config,
}];

type Result = std::result::Result<(), CommandError>;

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

/// Sets all or none: every value is parsed before the first is applied.
fn try_set(engine: &Engine, words: &[&[u8]]) -> Result {
    let (pairs, left) = words.as_chunks::<2>();
    if !left.is_empty() {
        return Err(CommandError::new("ERR wrong number of arguments for 'config|set' command"));
    }
    let mut changes = Vec::with_capacity(pairs.len());
    let mut named: Vec<&str> = Vec::with_capacity(pairs.len());
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
        if named.contains(&setting.name) {
            return Err(failed("duplicate parameter"));
        }
        named.push(setting.name);
        let value = std::str::from_utf8(value).map_err(|_| failed("not text"))?;
        changes.push((setting.read)(engine, value).map_err(|why| failed(&why))?);
    }
    changes.into_iter().for_each(|change| change(engine));
    Ok(())
}
