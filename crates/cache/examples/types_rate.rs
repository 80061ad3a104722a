//! How long parsing, replying and the collections take: `cargo run --release -p forebay-cache --example types_rate`.
#![expect(clippy::print_stdout, reason = "figures are its output")]

use std::hint::black_box;
use std::time::Instant;

use forebay_cache::resp::{Args, Limits, Parsed, Proto, Reply, parse};
use forebay_cache::types::{Hash, List, Set, ZSet};

/// Runs `act` `count` times and prints nanoseconds for each.
fn time(what: &str, count: u32, mut act: impl FnMut(u32)) {
    let started = Instant::now();
    (0..count).for_each(&mut act);
    let each_ns = started.elapsed().as_secs_f64() * 1e9 / f64::from(count);
    println!("{what:40} {each_ns:8.1} ns");
}

/// A number that looks drawn at random.
fn mixed(number: u32) -> u32 {
    number.wrapping_mul(0x9e37_79b1) >> 3
}

fn parsing() {
    let set =
        [&b"*3\r\n$3\r\nSET\r\n$16\r\nkey:000000000001\r\n$100\r\n"[..], &[b'x'; 100], b"\r\n"];
    let get = b"*2\r\n$3\r\nGET\r\n$16\r\nkey:000000000001\r\n";
    for (what, request) in [("parse SET", set.concat()), ("parse GET", get.to_vec())] {
        let (input, limits, mut args) = (request.repeat(64), Limits::default(), Args::new());
        let mut at = 0;
        time(what, 10_000_000, |_| {
            if let Ok(Parsed::Request { consumed }) = parse(&input[at..], &limits, &mut args) {
                black_box(args.get(&input[at..], 1));
                at += consumed;
            }
            if at == input.len() {
                at = 0;
            }
        });
    }
    let mut reply = Reply::new(Proto::Resp2);
    time("reply of 100 bytes", 10_000_000, |turn| {
        reply.bulk(&[b'x'; 100]);
        if turn % 64 == 0 {
            reply.truncate(0);
        }
    });
}

fn collections() {
    let mut hash = Hash::new();
    (0..5u8).for_each(|field| {
        hash.set(&[b'f', field], b"0123456789");
    });
    time("get of a hash of 5", 10_000_000, |turn| {
        black_box(hash.get(&[b'f', turn.to_le_bytes()[0] % 5]));
    });
    let mut hash = Hash::new();
    time("set of a hash up to 1M", 1_000_000, |turn| {
        hash.set(&mixed(turn).to_le_bytes(), b"0123456789");
    });
    println!("{:40} {:8.1} B", "  a field of 4 and 10 B", hash.bytes() as f64 / hash.len() as f64);
    let mut set = Set::new();
    time("insert of a set up to 1M", 1_000_000, |turn| {
        set.insert(&mixed(turn).to_le_bytes());
    });
    let mut zset = ZSet::new();
    time("insert of a sorted set up to 1M", 1_000_000, |turn| {
        zset.insert(&turn.to_le_bytes(), f64::from(mixed(turn)));
    });
    println!("{:40} {:8.1} B", "  a member of 4 B", zset.bytes() as f64 / zset.len() as f64);
    time("rank in a sorted set of 1M", 1_000_000, |turn| {
        black_box(zset.rank(&mixed(turn).to_le_bytes()));
        black_box(zset.rank(&(mixed(turn) % 1_000_000).to_le_bytes()));
    });
    time("pop_min of a sorted set of 1M", 500_000, |_| {
        black_box(zset.pop_min());
    });
}

fn lists() {
    for front in [false, true] {
        let mut list = List::new();
        time(if front { "push_front" } else { "push_back" }, 1_000_000, |_| {
            if front { list.push_front(b"0123456789") } else { list.push_back(b"0123456789") }
        });
        time("  get of a list of 1M", 100_000, |turn| {
            black_box(list.get(i64::from(mixed(turn) % 1_000_000)));
        });
        time("  pop_front", 1_000_000, |_| {
            black_box(list.pop_front());
        });
    }
}

fn main() {
    parsing();
    // Before a million members are freed, which an allocator may take its time over.
    lists();
    collections();
}
