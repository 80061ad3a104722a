//! Measures memory: small values that do not compress, large JSON values that do.

use std::path::Path;

use std::time::Instant;

use anyhow::{Context as _, ensure};
use forebay_cache::engine::Engine;
use forebay_cache::resp::{Proto, Reply as Output};

use super::peer::{Kind, Peer};
use super::resp::{Client, Reply};
use super::{Figures, Plan, load};

/// Number of large values.
const LARGE: u64 = 2_000;
/// Size of one.
const LARGE_SIZE: usize = 85_000;

/// Derives a well-mixed number from another.
pub(super) fn mix(number: u64) -> u64 {
    let mixed = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

/// Returns a key of 16 bytes and a value of 100 random characters.
pub(super) fn pair(number: u64, key: &mut Vec<u8>, value: &mut Vec<u8>) {
    const DIGITS: &[u8; 64] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ+-";
    key.extend_from_slice(format!("key:{number:012}").as_bytes());
    let mut state = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    while value.len() < 100 {
        state = mix(state.wrapping_add(0x9E37_79B9_7F4A_7C15));
        let mut bits = state;
        for _ in 0..10 {
            value.push(DIGITS[usize::from(bits.to_le_bytes()[0] & 63)]);
            bits >>= 6;
        }
    }
}

/// Returns a JSON document of about 85 KB: records with different numbers and words.
fn document(number: u64) -> Vec<u8> {
    const WORDS: [&str; 8] =
        ["basin", "turbine", "spillway", "gauge", "intake", "gate", "penstock", "tailrace"];
    let mut text = String::with_capacity(LARGE_SIZE + 256);
    text.push_str("{\"records\":[");
    let mut at = mix(number);
    while text.len() < LARGE_SIZE - 160 {
        at = mix(at.wrapping_add(1));
        let word = |shift: u32| WORDS[usize::from((at >> shift).to_le_bytes()[0] & 7)];
        text.push_str(&format!(
            "{{\"id\":{},\"name\":\"{} {}\",\"level\":{}.{},\"open\":{},\"note\":\"{} by the {}\"}},",
            at % 1_000_000,
            word(8),
            word(16),
            at >> 40 & 0xFF,
            at >> 52 & 0xF,
            at & 1 == 0,
            word(24),
            word(32),
        ));
    }
    text.pop();
    text.push_str("]}");
    text.into_bytes()
}

#[expect(clippy::cast_precision_loss, reason = "bytes and counts far below 2^52")]
fn each(bytes: u64, count: u64) -> f64 {
    bytes as f64 / count as f64
}

/// Returns the resident bytes per key with 16 + 100 bytes.
pub(super) fn small(plan: &Plan, scratch: &Path, figures: &mut Figures) -> anyhow::Result<()> {
    for kind in Kind::ALL {
        let peer = Peer::start(kind, &scratch.join(format!("small-{}", kind.name())), false)?;
        let before = peer.resident()?;
        let mut client = Client::connect(peer.address)?;
        client.set_all(plan.keys, pair)?;
        let grown = peer.resident()?.saturating_sub(before);
        check(&mut client, plan.keys, pair)?;
        figures.add(&format!("{}_bytes_per_key", kind.name()), each(grown, plan.keys));
        peer.stop()?;
    }
    Ok(())
}

fn check(
    client: &mut Client,
    count: u64,
    make: impl Fn(u64, &mut Vec<u8>, &mut Vec<u8>),
) -> anyhow::Result<()> {
    let size = client.command(&[b"DBSIZE"])?;
    ensure!(size == Reply::Integer(count.cast_signed()), "DBSIZE is {size:?} of {count}");
    for number in (0..count).step_by(usize::try_from(count / 1_000).unwrap_or(1).max(1)) {
        let (mut key, mut value) = (Vec::new(), Vec::new());
        make(number, &mut key, &mut value);
        let found = client.command(&[b"GET", &key])?;
        ensure!(found == Reply::Bytes(value), "key {number} came back altered");
    }
    Ok(())
}

/// Measures the memory of large JSON values, and the rate of reading them.
pub(super) fn large(plan: &Plan, scratch: &Path, figures: &mut Figures) -> anyhow::Result<()> {
    let mut rates = [const { Vec::new() }; Kind::ALL.len()];
    let mut grown = [0; Kind::ALL.len()];
    let large = |number: u64, key: &mut Vec<u8>, value: &mut Vec<u8>| {
        key.extend_from_slice(format!("key:{number:012}").as_bytes());
        value.extend_from_slice(&document(number));
    };
    for round in 0..plan.rounds {
        for (at, kind) in Kind::ALL.into_iter().enumerate() {
            let data = scratch.join(format!("large-{}-{round}", kind.name()));
            let peer = Peer::start(kind, &data, false)?;
            let before = peer.resident()?;
            let mut client = Client::connect(peer.address)?;
            client.set_all(LARGE, large)?;
            grown[at] = peer.resident()?.saturating_sub(before);
            if round == 0 {
                check(&mut client, LARGE, large)?;
            }
            rates[at].push(load::get_large(&peer, plan, LARGE)?);
            peer.stop()?;
        }
    }
    for ((kind, rates), grown) in Kind::ALL.into_iter().zip(rates).zip(grown) {
        figures.median(&format!("{}_json_85k_get_per_s", kind.name()), rates);
        figures.add(&format!("{}_json_85k_bytes_per_value", kind.name()), each(grown, LARGE));
    }
    Ok(())
}

/// Measures the bytes stored for repetitive text, and the time to store them.
pub(super) fn compression(figures: &mut Figures) -> anyhow::Result<()> {
    const TEXT: &str =
        "the water that comes down the valley is gathered in the basin above the dam; ";
    const TURNS: u32 = 200;
    let engine = Engine::in_memory(1);
    let mut session = engine.inner_session();
    for size in [3_700, 85_000] {
        let value: Vec<u8> = TEXT.bytes().cycle().take(size).collect();
        let mut out = Output::new(Proto::Resp2);
        let begun = Instant::now();
        for _ in 0..TURNS {
            engine.execute(&mut session, &[b"SET", b"k", &value], &mut out);
        }
        let took = begun.elapsed() / TURNS;
        let key = engine.keyspace().key(b"k");
        let mut shard = engine.keyspace().lock(0, key.shard(), 1);
        let at = shard.find(&key).context("the value is missing")?;
        let read = shard.string_at(at).ok().context("the value is not a string")?;
        ensure!(read == value, "the value came back altered");
        drop(read);
        let kept = shard.stored_len(at).1 as u64;
        figures.count(&format!("compressed_{size}_bytes"), kept);
        figures.add(&format!("compress_{size}_us"), took.as_secs_f64() * 1e6);
    }
    Ok(())
}
