//! Channels: subscribing, publishing, listing subscriptions.

use super::{CommandError, Context, Flags, Keys, Spec};
use crate::engine::{Scope, name_size};

const LISTEN: Flags = Flags::PUBSUB.and(Flags::SUBSCRIBED);
const SPEAK: Flags = Flags::PUBSUB.and(Flags::FAST);

const fn row(
    name: &'static str,
    arity: i32,
    flags: Flags,
    run: super::Run,
    summary: &'static str,
) -> Spec {
    Spec { name, arity, flags, keys: Keys::None, group: "pubsub", summary, run }
}

/// The family's rows.
pub(super) const COMMANDS: &[Spec] = &[
    row("subscribe", -2, LISTEN, subscribe, "Subscribes to channels."),
    row("psubscribe", -2, LISTEN, psubscribe, "Subscribes to channels whose names match patterns."),
    row("ssubscribe", -2, LISTEN, ssubscribe, "Subscribes to shard channels."),
    row("unsubscribe", -1, LISTEN, unsubscribe, "Unsubscribes from channels."),
    row("punsubscribe", -1, LISTEN, punsubscribe, "Unsubscribes from patterns."),
    row("sunsubscribe", -1, LISTEN, sunsubscribe, "Unsubscribes from shard channels."),
    row("publish", 3, SPEAK, publish, "Sends a message to a channel."),
    row("spublish", 3, SPEAK, spublish, "Sends a message to a shard channel."),
    row(
        "pubsub",
        -2,
        Flags::PUBSUB.and(Flags::CONTAINER),
        pubsub,
        "Returns channels and the number of their subscribers.",
    ),
];

type Result = std::result::Result<(), CommandError>;

fn subscribe(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    listen(cx, &args[1..], Scope::Channel, "subscribe");
    Ok(())
}

fn psubscribe(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    listen(cx, &args[1..], Scope::Pattern, "psubscribe");
    Ok(())
}

fn ssubscribe(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    if !cx.may_block {
        return Err(CommandError::new("ERR SSUBSCRIBE isn't allowed for a DENY BLOCKING client"));
    }
    listen(cx, &args[1..], Scope::Shard, "ssubscribe");
    Ok(())
}

fn unsubscribe(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    leave(cx, &args[1..], Scope::Channel, "unsubscribe");
    Ok(())
}

fn punsubscribe(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    leave(cx, &args[1..], Scope::Pattern, "punsubscribe");
    Ok(())
}

fn sunsubscribe(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    leave(cx, &args[1..], Scope::Shard, "sunsubscribe");
    Ok(())
}

fn names<'s>(
    cx: &'s mut Context<'_, '_>,
    scope: Scope,
) -> &'s mut std::collections::HashSet<Box<[u8]>> {
    match scope {
        Scope::Channel => &mut cx.session.channels,
        Scope::Pattern => &mut cx.session.patterns,
        Scope::Shard => &mut cx.session.shard_channels,
    }
}

/// The number of subscriptions in a reply: shard channels count separately.
fn count(cx: &Context<'_, '_>, scope: Scope) -> usize {
    match scope {
        Scope::Shard => cx.session.shard_channels.len(),
        _ => cx.session.channels.len() + cx.session.patterns.len(),
    }
}

fn listen(cx: &mut Context<'_, '_>, words: &[&[u8]], scope: Scope, word: &str) {
    for name in words {
        if names(cx, scope).insert((*name).into()) {
            cx.session.names_bytes += name_size(name);
            let info = &cx.session.info;
            let (id, protocol) = (info.id, cx.session.protocol);
            cx.engine.pubsub().subscribe(scope, name, id, protocol, &info.mailbox);
        }
        reply_subscription(cx, word, Some(name), scope);
    }
    note(cx);
}

fn leave(cx: &mut Context<'_, '_>, words: &[&[u8]], scope: Scope, word: &str) {
    let mut all: Vec<Box<[u8]>> = words.iter().map(|&name| name.into()).collect();
    if all.is_empty() {
        all = names(cx, scope).iter().cloned().collect();
        all.sort();
    }
    if all.is_empty() {
        reply_subscription(cx, word, None, scope);
    }
    for name in all {
        if names(cx, scope).remove(&name) {
            let bytes = &mut cx.session.names_bytes;
            *bytes = bytes.saturating_sub(name_size(&name));
            cx.engine.pubsub().unsubscribe(scope, &name, cx.session.info.id);
        }
        reply_subscription(cx, word, Some(&name), scope);
    }
    note(cx);
}

fn reply_subscription(cx: &mut Context<'_, '_>, word: &str, name: Option<&[u8]>, scope: Scope) {
    let count = count(cx, scope);
    cx.out.push(3);
    cx.out.bulk(word.as_bytes());
    cx.out.bulk_or_null(name);
    cx.out.count(count);
}

fn note(cx: &Context<'_, '_>) {
    let session = &*cx.session;
    let held = (session.channels.len() + session.shard_channels.len(), session.patterns.len());
    session.info.said.lock().subscriptions = held;
}

fn publish(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    let sent = cx.engine.publish(Scope::Channel, args[1], args[2]);
    cx.out.count(sent);
    Ok(())
}

fn spublish(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    let sent = cx.engine.publish(Scope::Shard, args[1], args[2]);
    cx.out.count(sent);
    Ok(())
}

fn pubsub(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    let word = args[1].to_ascii_lowercase();
    let scope = if word.starts_with(b"shard") { Scope::Shard } else { Scope::Channel };
    match (word.as_slice(), &args[2..]) {
        (b"channels" | b"shardchannels", [] | [_]) => {
            let active = cx.engine.pubsub().active(scope, args.get(2).copied());
            cx.out.array(active.len());
            active.iter().for_each(|name| cx.out.bulk(name));
        }
        (b"numsub" | b"shardnumsub", names) => {
            // An array in both versions of the protocol.
            cx.out.array(names.len() * 2);
            for name in names {
                cx.out.bulk(name);
                let listeners = cx.engine.pubsub().listeners(scope, name);
                cx.out.count(listeners);
            }
        }
        (b"numpat", []) => {
            let patterns = cx.engine.pubsub().names(Scope::Pattern);
            cx.out.count(patterns);
        }
        _ => return Err(super::unknown_subcommand("pubsub", args[1])),
    }
    Ok(())
}
