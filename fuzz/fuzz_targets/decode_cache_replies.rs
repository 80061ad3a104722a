//! Any bytes as replies of a cache, as its client reads them: the same wherever they are cut.
#![no_main]

#[path = "../../crates/console/src/cache_client/reply.rs"]
#[expect(dead_code, reason = "what shows replies is not what is tried here")]
mod reply;

use std::io::{BufRead, BufReader};

use libfuzzer_sys::fuzz_target;

/// Replies at most.
const REPLIES: usize = 64;

fn read(mut reader: impl BufRead) -> Vec<Result<reply::Reply, String>> {
    let mut read = Vec::new();
    for _ in 0..REPLIES {
        match reply::read(&mut reader) {
            Ok(reply) => read.push(Ok(reply)),
            Err(error) => {
                read.push(Err(error.to_string()));
                break;
            }
        }
    }
    read
}

fuzz_target!(|data: &[u8]| {
    let Some((&cut, replies)) = data.split_first() else { return };
    let cut = 1 + usize::from(cut);
    assert_eq!(read(replies), read(BufReader::with_capacity(cut, replies)), "in pieces of {cut}");
});
