//! COMMAND: describes the table of commands to clients.

use super::{CommandError, Context, Flags, Keys, Spec};

type Result = std::result::Result<(), CommandError>;

const FLAG_NAMES: &[(Flags, &str)] = &[
    (Flags::WRITE, "write"),
    (Flags::READONLY, "readonly"),
    (Flags::DENYOOM, "denyoom"),
    (Flags::ADMIN, "admin"),
    (Flags::PUBSUB, "pubsub"),
    (Flags::BLOCKING, "blocking"),
    (Flags::FAST, "fast"),
    (Flags::NO_AUTH, "no_auth"),
    (Flags::NO_MULTI, "no_multi"),
    (Flags::MOVABLE_KEYS, "movablekeys"),
];

pub(super) fn command(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    let Some(word) = args.get(1) else {
        cx.out.array(super::all().count());
        super::all().for_each(|spec| describe(cx, spec));
        return Ok(());
    };
    let rest = &args[2..];
    match word.to_ascii_lowercase().as_slice() {
        b"count" if rest.is_empty() => cx.out.count(super::all().count()),
        b"info" if rest.is_empty() => {
            cx.out.array(super::all().count());
            super::all().for_each(|spec| describe(cx, spec));
        }
        b"info" => {
            cx.out.array(rest.len());
            for name in rest {
                match super::find(name) {
                    Some(spec) => describe(cx, spec),
                    None => cx.out.null_array(),
                }
            }
        }
        b"docs" => {
            let specs: Vec<&Spec> = match rest {
                [] => super::all().collect(),
                names => names.iter().filter_map(|name| super::find(name)).collect(),
            };
            cx.out.map(specs.len());
            for spec in specs {
                cx.out.bulk(spec.name.as_bytes());
                cx.out.map(2);
                cx.out.bulk(b"summary");
                cx.out.bulk(spec.summary.as_bytes());
                cx.out.bulk(b"group");
                cx.out.bulk(spec.group.as_bytes());
            }
        }
        b"list" => list(cx, rest)?,
        b"getkeys" if !rest.is_empty() => getkeys(cx, rest)?,
        _ => return Err(super::unknown_subcommand("command", word)),
    }
    Ok(())
}

/// `COMMAND LIST [FILTERBY MODULE name | ACLCAT category | PATTERN pattern]`.
fn list(cx: &mut Context<'_, '_>, words: &[&[u8]]) -> Result {
    let is = |word: &[u8], name: &str| word.eq_ignore_ascii_case(name.as_bytes());
    let names: Vec<&str> = match words {
        [] => super::all().map(|spec| spec.name).collect(),
        [by, what, value] if is(by, "filterby") => {
            let fits = |spec: &&Spec| match what.to_ascii_lowercase().as_slice() {
                b"pattern" => crate::glob::matches_ignoring_case(value, spec.name.as_bytes()),
                b"aclcat" => categories(spec).iter().any(|category| is(value, &category[1..])),
                // There are no modules.
                _ => false,
            };
            if !["module", "aclcat", "pattern"].iter().any(|word| is(what, word)) {
                return Err(CommandError::SYNTAX);
            }
            super::all().filter(fits).map(|spec| spec.name).collect()
        }
        _ => return Err(CommandError::SYNTAX),
    };
    cx.out.array(names.len());
    names.iter().for_each(|name| cx.out.bulk(name.as_bytes()));
    Ok(())
}

/// The categories of a command in COMMAND's reply, each with its `@`.
fn categories(spec: &Spec) -> [String; 2] {
    let kind = if spec.flags.has(Flags::WRITE) { "@write" } else { "@read" };
    [format!("@{}", spec.group), kind.to_owned()]
}

fn getkeys(cx: &mut Context<'_, '_>, words: &[&[u8]]) -> Result {
    let spec =
        super::find(words[0]).ok_or_else(|| CommandError::new("ERR Invalid command specified"))?;
    if !spec.takes(words.len()) {
        return Err(CommandError::new("ERR Invalid number of arguments specified for command"));
    }
    let keys = spec.keys_of(words, 0);
    if keys.is_empty() {
        return Err(CommandError::new("ERR The command has no key arguments"));
    }
    cx.out.array(keys.len());
    for (_, at) in keys {
        cx.out.bulk(words.get(at).copied().unwrap_or_default());
    }
    Ok(())
}

/// A command in COMMAND's reply: name, arity, flags, first and last key and step, categories.
fn describe(cx: &mut Context<'_, '_>, spec: &Spec) {
    let (first, last, step) = match spec.keys {
        Keys::Range(first, last, step) => (first, last, step),
        Keys::Counted(_, [first, ..]) => (i32::try_from(*first).unwrap_or(0), 1, 1),
        Keys::Custom(_) | Keys::Wide(..) => (1, 1, 1),
        Keys::None | Keys::All | Keys::Everything | Keys::Counted(_, []) => (0, 0, 0),
    };
    let movable = matches!(spec.keys, Keys::Counted(..));
    let flags: Vec<&str> = FLAG_NAMES
        .iter()
        .filter(|(flag, name)| spec.flags.has(*flag) || movable && *name == "movablekeys")
        .map(|(_, name)| *name)
        .collect();
    cx.out.array(10);
    cx.out.bulk(spec.name.as_bytes());
    cx.out.int(spec.arity.into());
    cx.out.set(flags.len());
    flags.iter().for_each(|flag| cx.out.simple(flag));
    cx.out.int(first.into());
    cx.out.int(last.into());
    cx.out.int(step.into());
    let categories = categories(spec);
    cx.out.set(categories.len());
    categories.iter().for_each(|category| cx.out.simple(category));
    for _ in 0..3 {
        // No tips, key specifications or subcommands are returned.
        cx.out.array(0);
    }
}
