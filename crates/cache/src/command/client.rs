//! CLIENT: lists, configures and closes connections.

use std::sync::atomic::Ordering;

use super::{CommandError, Context, Flags, Keys, Spec};
use crate::engine::{ClientInfo, ClientSaid, Replies, Via};
use crate::number;

/// The family's rows.
pub(super) const COMMANDS: &[Spec] = &[Spec {
    name: "client",
    arity: -2,
    flags: Flags::NO_AUTH.and(Flags::CONTAINER),
    keys: Keys::None,
    group: "connection",
    summary: "Lists, configures and closes connections.",
    run: client,
}];

type Result = std::result::Result<(), CommandError>;

/// Maximum length of a connection's name.
const NAME_MAX: usize = 1_024;

fn client(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    let word = args[1].to_ascii_lowercase();
    let rest = &args[2..];
    if !cx.session.authenticated && word != b"setinfo" && word != b"setname" {
        return Err(CommandError::new("NOAUTH Authentication required."));
    }
    match (word.as_slice(), rest) {
        (b"id", []) => cx.out.count(usize::try_from(cx.session.info.id).unwrap_or(usize::MAX)),
        (b"getname", []) => {
            let name = cx.session.info.said.lock().name.clone();
            cx.out.bulk_or_null(Some(name.as_bytes()).filter(|name| !name.is_empty()));
        }
        (b"setname", [name]) => {
            set_name(cx, name)?;
            cx.out.ok();
        }
        (b"setinfo", [what, value]) => set_info(cx, what, value)?,
        (b"info", []) => {
            let line = line(cx, &cx.session.info);
            cx.out.verbatim(*b"txt", line.as_bytes());
        }
        (b"list", rest) => list(cx, rest)?,
        (b"kill", rest) => kill(cx, rest)?,
        (b"no-evict", [word]) => {
            let on = on_off(word)?;
            cx.session.info.said.lock().no_evict = on;
            cx.out.ok();
        }
        (b"no-touch", [word]) => {
            on_off(word)?;
            cx.out.ok();
        }
        (b"reply", [word]) => match word.to_ascii_lowercase().as_slice() {
            b"on" => {
                cx.session.replies = Replies::On;
                cx.out.ok();
            }
            b"off" => cx.session.replies = Replies::Off,
            b"skip" if cx.session.replies == Replies::On => {
                cx.session.replies = Replies::SkipNext;
            }
            b"skip" => {}
            _ => return Err(CommandError::SYNTAX),
        },
        (b"unblock", [id] | [id, _]) => unblock(cx, id, rest.get(1).copied())?,
        (b"getredir", []) => cx.out.int(-1),
        (b"help", []) => {
            let lines = [
                "CLIENT ID|GETNAME|SETNAME name|SETINFO lib-name|lib-ver value",
                "CLIENT INFO|LIST [TYPE t] [ID id ...]|KILL ...|UNBLOCK id [TIMEOUT|ERROR]",
                "CLIENT REPLY ON|OFF|SKIP|NO-EVICT ON|OFF|NO-TOUCH ON|OFF",
            ];
            cx.out.array(lines.len());
            lines.iter().for_each(|line| cx.out.simple(line));
        }
        _ => return Err(super::unknown_subcommand("client", args[1])),
    }
    Ok(())
}

fn on_off(word: &[u8]) -> std::result::Result<bool, CommandError> {
    match word.to_ascii_lowercase().as_slice() {
        b"on" => Ok(true),
        b"off" => Ok(false),
        _ => Err(CommandError::SYNTAX),
    }
}

/// A name that is valid in a line of CLIENT LIST.
fn plain(word: &[u8], what: &str) -> std::result::Result<String, CommandError> {
    let fits = word.len() <= NAME_MAX && word.iter().all(|b| (b'!'..=b'~').contains(b));
    let text = fits.then(|| String::from_utf8_lossy(word).into_owned());
    text.ok_or_else(|| {
        CommandError::new(format!(
            "ERR {what} cannot contain spaces, newlines or special characters."
        ))
    })
}

pub(super) fn set_name(cx: &Context<'_, '_>, word: &[u8]) -> Result {
    let name = plain(word, "Client names")?;
    cx.session.info.said.lock().name = name;
    Ok(())
}

fn set_info(cx: &mut Context<'_, '_>, what: &[u8], value: &[u8]) -> Result {
    let what = what.to_ascii_lowercase();
    match what.as_slice() {
        b"lib-name" => {
            let value = plain(value, "lib-name")?;
            cx.session.info.said.lock().library = value;
        }
        b"lib-ver" => {
            let value = plain(value, "lib-ver")?;
            cx.session.info.said.lock().library_version = value;
        }
        _ => {
            let what = String::from_utf8_lossy(&what).into_owned();
            return Err(CommandError::new(format!("ERR Unrecognized option '{what}'")));
        }
    }
    cx.out.ok();
    Ok(())
}

/// The owner of the client's key, or the only user if there are no keys.
fn shown_user(said: &ClientSaid) -> &str {
    if said.user.is_empty() { "default" } else { &said.user }
}

/// A line of CLIENT LIST.
fn line(cx: &Context<'_, '_>, client: &ClientInfo) -> String {
    let said = client.said.lock().clone();
    let seconds_since = |ms: u64| cx.now_ms.saturating_sub(ms) / 1_000;
    let kind = if said.subscriptions == (0, 0) { "N" } else { "P" };
    let via = if client.peer.via == Via::Text { "text" } else { "resp" };
    format!(
        "id={} addr={} laddr={} fd=-1 name={} age={} idle={} flags={kind} db={} sub={} psub={} \
         ssub=0 multi={} watch=0 qbuf=0 qbuf-free=0 argv-mem=0 multi-mem=0 rbs=0 rbp=0 obl=0 \
         oll=0 omem={} tot-mem={} events=r cmd={} user={} redir=-1 resp={} lib-name={} \
         lib-ver={} via={via}\n",
        client.id,
        client.peer.address,
        client.peer.local,
        said.name,
        seconds_since(client.created_ms),
        seconds_since(client.active_ms.load(Ordering::Relaxed)),
        client.database.load(Ordering::Relaxed),
        said.subscriptions.0,
        said.subscriptions.1,
        said.queued.map_or(-1, |queued| i64::try_from(queued).unwrap_or(i64::MAX)),
        client.mailbox.pending_bytes(),
        client.memory(),
        if said.command.is_empty() { "NULL" } else { said.command },
        shown_user(&said),
        said.protocol,
        said.library,
        said.library_version,
    )
}

/// Whether clients of a type are subscribed to channels; `None` if no client here has that type.
fn listens(kind: &[u8]) -> std::result::Result<Option<bool>, CommandError> {
    match kind.to_ascii_lowercase().as_slice() {
        b"normal" => Ok(Some(false)),
        b"pubsub" => Ok(Some(true)),
        b"master" | b"replica" | b"slave" => Ok(None),
        kind => {
            let kind = String::from_utf8_lossy(kind).into_owned();
            Err(CommandError::new(format!("ERR Unknown client type '{kind}'")))
        }
    }
}

fn list(cx: &mut Context<'_, '_>, rest: &[&[u8]]) -> Result {
    let mut ids: Option<Vec<u64>> = None;
    let mut pubsub: Option<bool> = None;
    match rest {
        [] => {}
        [word, kind] if word.eq_ignore_ascii_case(b"type") => {
            pubsub = listens(kind)?;
            if pubsub.is_none() {
                cx.out.verbatim(*b"txt", b"");
                return Ok(());
            }
        }
        [word, listed @ ..] if word.eq_ignore_ascii_case(b"id") && !listed.is_empty() => {
            let parsed: Option<Vec<u64>> = listed.iter().map(|id| number::parse_u64(id)).collect();
            ids = Some(parsed.ok_or_else(|| CommandError::new("ERR Invalid client ID"))?);
        }
        _ => return Err(CommandError::SYNTAX),
    }
    let mut text = String::new();
    for client in cx.engine.clients() {
        let listens = client.said.lock().subscriptions != (0, 0);
        if ids.as_ref().is_none_or(|ids| ids.contains(&client.id))
            && pubsub.is_none_or(|wanted| wanted == listens)
        {
            text.push_str(&line(cx, &client));
        }
    }
    cx.out.verbatim(*b"txt", text.as_bytes());
    Ok(())
}

/// Selects clients.
type Filter = Box<dyn Fn(&ClientInfo) -> bool>;

fn kill(cx: &mut Context<'_, '_>, rest: &[&[u8]]) -> Result {
    if rest.is_empty() {
        return Err(CommandError::new("ERR wrong number of arguments for 'client|kill' command"));
    }
    if let [address] = rest {
        let found = cx
            .engine
            .clients()
            .into_iter()
            .find(|client| client.peer.address.as_bytes() == *address);
        let client = found.ok_or_else(|| CommandError::new("ERR No such client"))?;
        client.mailbox.close();
        cx.out.ok();
        return Ok(());
    }
    let (filters, left) = rest.as_chunks::<2>();
    if filters.is_empty() || !left.is_empty() {
        return Err(CommandError::SYNTAX);
    }
    let mut skip_me = true;
    let mut wanted: Vec<Filter> = Vec::new();
    for [what, value] in filters {
        if what.eq_ignore_ascii_case(b"skipme") {
            skip_me = match value.to_ascii_lowercase().as_slice() {
                b"yes" => true,
                b"no" => false,
                _ => return Err(CommandError::SYNTAX),
            };
        } else {
            wanted.push(filter(cx, what, value)?);
        }
    }
    let mut killed = 0;
    for client in cx.engine.clients() {
        let me = client.id == cx.session.info.id;
        if wanted.iter().all(|wanted| wanted(&client)) && !(me && skip_me) {
            client.mailbox.close();
            killed += 1;
        }
    }
    cx.out.count(killed);
    Ok(())
}

/// The filter for an option of CLIENT KILL and its value.
fn filter(
    cx: &Context<'_, '_>,
    what: &[u8],
    value: &[u8],
) -> std::result::Result<Filter, CommandError> {
    let now_ms = cx.now_ms;
    let value = value.to_vec();
    let clients = cx.engine.clients().into_iter();
    let users = clients.map(|client| shown_user(&client.said.lock()).to_owned());
    let users: Vec<String> = users.chain(["default".to_owned()]).collect();
    Ok(match what.to_ascii_lowercase().as_slice() {
        b"id" => {
            let id = number::parse_u64(&value)
                .filter(|&id| id > 0)
                .ok_or_else(|| CommandError::new("ERR client-id should be greater than 0"))?;
            Box::new(move |client| client.id == id)
        }
        b"addr" => Box::new(move |client| client.peer.address.as_bytes() == value),
        b"laddr" => Box::new(move |client| client.peer.local.as_bytes() == value),
        b"type" => {
            let pubsub = listens(&value)?;
            Box::new(move |client| {
                let listening = client.said.lock().subscriptions != (0, 0);
                pubsub.is_some_and(|pubsub| listening == pubsub)
            })
        }
        b"user" if users.iter().any(|user| user.as_bytes() == value) => {
            Box::new(move |client| shown_user(&client.said.lock()).as_bytes() == value)
        }
        b"user" => {
            let user = String::from_utf8_lossy(&value).into_owned();
            return Err(CommandError::new(format!("ERR No such user '{user}'")));
        }
        b"maxage" => {
            let age = number::parse_u64(&value).ok_or(CommandError::NOT_INTEGER)?;
            Box::new(move |client| now_ms.saturating_sub(client.created_ms) / 1_000 >= age)
        }
        _ => return Err(CommandError::SYNTAX),
    })
}

fn unblock(cx: &mut Context<'_, '_>, id: &[u8], how: Option<&[u8]>) -> Result {
    let id = number::parse_u64(id).ok_or(CommandError::NOT_INTEGER)?;
    let error = match how {
        None => false,
        Some(word) if word.eq_ignore_ascii_case(b"timeout") => false,
        Some(word) if word.eq_ignore_ascii_case(b"error") => true,
        Some(_) => {
            return Err(CommandError::new("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR"));
        }
    };
    if !cx.may_block {
        // The transaction itself may hold the locks of the keys that the client waits for.
        return Err(CommandError::new("ERR CLIENT UNBLOCK is not allowed inside a transaction"));
    }
    let unblocked = cx.engine.unblock(id, error);
    cx.out.int(unblocked.into());
    Ok(())
}
