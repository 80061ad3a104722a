//! Connections: protocol version, authentication, the selected database.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{CommandError, Context, Flags, Keys, Spec};
use crate::resp::Proto;

const PLAIN: Flags = Flags::FAST;
const ANY_TIME: Flags = Flags::FAST.and(Flags::NO_AUTH).and(Flags::SUBSCRIBED);

const fn row(
    name: &'static str,
    arity: i32,
    flags: Flags,
    run: super::Run,
    summary: &'static str,
) -> Spec {
    Spec { name, arity, flags, keys: Keys::None, group: "connection", summary, run }
}

/// The family's rows.
pub(super) const COMMANDS: &[Spec] = &[
    row("ping", -1, PLAIN.and(Flags::SUBSCRIBED), ping, "Returns PONG or its argument."),
    row("echo", 2, PLAIN, echo, "Returns its argument."),
    row("select", 2, PLAIN, select, "Selects a database by its number."),
    row(
        "hello",
        -1,
        ANY_TIME.and(Flags::NO_MULTI),
        hello,
        "Selects the protocol version and authenticates.",
    ),
    row(
        "auth",
        -2,
        ANY_TIME.and(Flags::NO_MULTI),
        auth,
        "Authenticates by a password or an API key.",
    ),
    row("reset", 1, ANY_TIME.and(Flags::UNQUEUED), reset, "Resets the connection's state."),
    row("quit", -1, ANY_TIME.and(Flags::UNQUEUED), nothing, "Closes the connection."),
];

type Result = std::result::Result<(), CommandError>;

fn ping(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    let subscribed =
        cx.session.subscriptions() > 0 && cx.session.protocol == crate::resp::Proto::Resp2;
    match args {
        [_] if subscribed => {
            cx.out.array(2);
            cx.out.bulk(b"pong");
            cx.out.bulk(b"");
        }
        [_] => cx.out.simple("PONG"),
        [_, word] if subscribed => {
            cx.out.array(2);
            cx.out.bulk(b"pong");
            cx.out.bulk(word);
        }
        [_, word] => cx.out.bulk(word),
        _ => {
            return Err(CommandError::new("ERR wrong number of arguments for 'ping' command"));
        }
    }
    Ok(())
}

fn echo(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    cx.out.bulk(args[1]);
    Ok(())
}

fn select(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    let database = Context::database(args[1])?;
    cx.session.database = database;
    cx.session.info.database.store(database, std::sync::atomic::Ordering::Relaxed);
    cx.out.ok();
    Ok(())
}

/// QUIT: the dispatcher replies and closes.
#[expect(clippy::unnecessary_wraps, reason = "the signature of a handler")]
fn nothing(cx: &mut Context<'_, '_>, _args: &[&[u8]]) -> Result {
    cx.out.ok();
    Ok(())
}

/// The Redis version that clients may expect; they check it before they use commands.
pub(super) const REDIS_VERSION: &str = "7.2.0";

fn hello(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    let mut words = args[1..].iter();
    let mut protocol = cx.session.protocol;
    if let Some(version) = words.next() {
        protocol = match crate::number::parse_i64(version) {
            Some(2) => Proto::Resp2,
            Some(3) => Proto::Resp3,
            Some(_) => return Err(CommandError::new("NOPROTO unsupported protocol version")),
            None => {
                return Err(CommandError::new(
                    "ERR Protocol version is not an integer or out of range",
                ));
            }
        };
    }
    let mut name = None;
    while let Some(word) = words.next() {
        if word.eq_ignore_ascii_case(b"auth") {
            let (Some(user), Some(password)) = (words.next(), words.next()) else {
                return Err(CommandError::SYNTAX);
            };
            authenticate(cx, Some(user), password)?;
        } else if word.eq_ignore_ascii_case(b"setname") {
            name = Some(*words.next().ok_or(CommandError::SYNTAX)?);
        } else {
            let word = String::from_utf8_lossy(word).into_owned();
            return Err(CommandError::new(format!("ERR Syntax error in HELLO option '{word}'")));
        }
    }
    if !cx.session.authenticated {
        return Err(CommandError::new(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time",
        ));
    }
    if let Some(name) = name {
        super::client::set_name(cx, name)?;
    }
    cx.session.protocol = protocol;
    cx.out.set_proto(protocol);
    let version = if protocol == Proto::Resp3 { 3 } else { 2 };
    cx.session.info.said.lock().protocol = version;
    let id = i64::try_from(cx.session.info.id).unwrap_or(i64::MAX);
    cx.out.map(7);
    for (name, value) in [("server", "redis"), ("version", REDIS_VERSION)] {
        cx.out.bulk(name.as_bytes());
        cx.out.bulk(value.as_bytes());
    }
    cx.out.bulk(b"proto");
    cx.out.int(version.into());
    cx.out.bulk(b"id");
    cx.out.int(id);
    for (name, value) in [("mode", "standalone"), ("role", "master")] {
        cx.out.bulk(name.as_bytes());
        cx.out.bulk(value.as_bytes());
    }
    cx.out.bulk(b"modules");
    cx.out.array(0);
    Ok(())
}

fn auth(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    match args {
        [_, password] => {
            if !cx.engine.needs_secret() && !cx.engine.knows(password) {
                return Err(CommandError::new(
                    "ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?",
                ));
            }
            authenticate(cx, None, password)?;
        }
        [_, user, password] => authenticate(cx, Some(user), password)?,
        _ => return Err(CommandError::SYNTAX),
    }
    cx.out.ok();
    Ok(())
}

/// Number of failed passwords after which a connection has to wait before each further attempt.
const FAILURES_FREE: u32 = 3;

/// Checks a password or key. After several failures a connection is refused for a while without a
/// check, and the rate over all connections is limited, which makes guessing impractical.
fn authenticate(cx: &mut Context<'_, '_>, user: Option<&[u8]>, password: &[u8]) -> Result {
    let wrong =
        || CommandError::new("WRONGPASS invalid username-password pair or user is disabled.");
    if cx.session.failures >= FAILURES_FREE && cx.now_ms < cx.session.auth_after_ms {
        return Err(CommandError::new("ERR too many failed attempts; try again later"));
    }
    if cx.engine.authenticate(cx.session, user, password) {
        cx.session.failures = 0;
        return Ok(());
    }
    cx.session.failures += 1;
    cx.engine.statistics().auth_failures.fetch_add(1, Ordering::Relaxed);
    let delay = Duration::from_secs(1 << cx.session.failures.saturating_sub(FAILURES_FREE).min(6));
    cx.session.auth_after_ms = cx.now_ms + u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
    Err(wrong())
}

fn reset(cx: &mut Context<'_, '_>, _args: &[&[u8]]) -> Result {
    cx.engine.reset(cx.session);
    cx.session.database = 0;
    cx.session.protocol = Proto::Resp2;
    cx.out.set_proto(Proto::Resp2);
    cx.engine.admit(cx.session);
    cx.session.replies = crate::engine::Replies::On;
    let said = &mut *cx.session.info.said.lock();
    *said = crate::engine::ClientSaid { protocol: 2, ..Default::default() };
    cx.out.simple("RESET");
    Ok(())
}
