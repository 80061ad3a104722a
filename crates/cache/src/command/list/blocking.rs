//! The commands of lists that wait until there is an element.

use super::{Context, End, PopWords, Result, move_one, mpop, take};
use crate::command::waiting::{give_up_at, wait};

pub(super) fn blpop(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    pop_or_wait(cx, args, End::Left)
}

pub(super) fn brpop(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    pop_or_wait(cx, args, End::Right)
}

fn pop_or_wait(cx: &mut Context<'_, '_>, args: &[&[u8]], end: End) -> Result {
    let deadline = give_up_at(args[args.len() - 1])?;
    let keys = &args[1..args.len() - 1];
    for word in keys {
        if !cx.looks_at(word) {
            continue;
        }
        let key = cx.key(word);
        if let Some(popped) = take(cx, &key, end)? {
            cx.out.array(2);
            cx.out.bulk(word);
            cx.out.bulk(&popped);
            return Ok(());
        }
    }
    wait(cx, keys, deadline, crate::resp::Reply::null_array);
    Ok(())
}

pub(super) fn blmove(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    let (from, to) = (End::parse(args[3])?, End::parse(args[4])?);
    let deadline = give_up_at(args[5])?;
    if !move_one(cx, args, from, to)? {
        wait(cx, &args[1..2], deadline, crate::resp::Reply::null);
    }
    Ok(())
}

pub(super) fn brpoplpush(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    let deadline = give_up_at(args[3])?;
    if !move_one(cx, args, End::Right, End::Left)? {
        wait(cx, &args[1..2], deadline, crate::resp::Reply::null);
    }
    Ok(())
}

pub(super) fn blmpop(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result {
    let deadline = give_up_at(args[1])?;
    let PopWords { keys, end, count } = PopWords::parse(&args[2..], End::parse)?;
    if !mpop(cx, keys, end, count)? {
        wait(cx, keys, deadline, crate::resp::Reply::null_array);
    }
    Ok(())
}
