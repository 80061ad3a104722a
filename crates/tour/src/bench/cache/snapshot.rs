//! Measures a snapshot during writes: the memory it needs, and how long it delays writers.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

use super::peer::{Kind, Peer};
use super::resp::{Client, Reply};
use super::{Figures, Plan, memory};

/// Time limit for a snapshot.
const LIMIT: Duration = Duration::from_secs(120);

pub(super) fn measure(plan: &Plan, scratch: &Path, figures: &mut Figures) -> anyhow::Result<()> {
    let mut taken = [const { Vec::new() }; Kind::ALL.len()];
    for round in 0..plan.rounds {
        for (at, kind) in Kind::ALL.into_iter().enumerate() {
            let data = scratch.join(format!("snapshot-{}-{round}", kind.name()));
            let peer = Peer::start(kind, &data, true)?;
            let mut client = Client::connect(peer.address)?;
            client.set_all(plan.keys, memory::pair)?;
            wait_for_save(&mut client)?;
            let before = peer.resident()?;
            peer.reset_peak()?;
            let (stall_ms, took) = save_under_load(&peer, &mut client, plan.keys)?;
            let grown = peer.peak()?.saturating_sub(before);
            #[expect(clippy::cast_precision_loss, reason = "bytes far below 2^52")]
            let share = grown as f64 * 100.0 / before as f64;
            taken[at].push([share, stall_ms, took.as_secs_f64()]);
            peer.stop()?;
        }
    }
    for (kind, rounds) in Kind::ALL.into_iter().zip(taken) {
        for (at, what) in
            ["extra_memory_percent", "longest_write_ms", "seconds"].into_iter().enumerate()
        {
            let samples = rounds.iter().map(|round: &[f64; 3]| round[at]).collect();
            figures.median(&format!("{}_snapshot_{what}", kind.name()), samples);
        }
    }
    Ok(())
}

/// Writes one value after another while a snapshot is taken; returns the longest delay.
fn save_under_load(peer: &Peer, client: &mut Client, keys: u64) -> anyhow::Result<(f64, Duration)> {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| -> anyhow::Result<Duration> {
            let mut client = Client::connect(peer.address)?;
            let mut longest = Duration::ZERO;
            let (mut key, mut value) = (Vec::new(), Vec::new());
            let mut number = 1u64;
            while !over.load(Ordering::Relaxed) {
                number = memory::mix(number.wrapping_add(1));
                key.clear();
                value.clear();
                memory::pair(number % keys, &mut key, &mut value);
                let begun = Instant::now();
                let reply = client.command(&[b"SET", &key, &value])?;
                longest = longest.max(begun.elapsed());
                ensure!(reply == Reply::Text("OK".into()), "SET was answered {reply:?}");
            }
            Ok(longest)
        });
        let begun = Instant::now();
        let saved = save(client);
        let took = begun.elapsed();
        over.store(true, Ordering::Relaxed);
        let longest = writer.join().map_err(|_| anyhow::anyhow!("the writer failed"))??;
        saved?;
        Ok((longest.as_secs_f64() * 1_000.0, took))
    })
}

fn save(client: &mut Client) -> anyhow::Result<()> {
    begin(client)?;
    wait_for_save(client)
}

/// Requests a snapshot.
pub(super) fn begin(client: &mut Client) -> anyhow::Result<()> {
    let reply = client.command(&[b"BGSAVE"])?;
    let started = matches!(&reply, Reply::Text(text) if text.starts_with("Background saving"));
    ensure!(started, "BGSAVE was answered {reply:?}");
    Ok(())
}

/// Waits until no snapshot is in progress; one may begin by itself as the log grows.
pub(super) fn wait_for_save(client: &mut Client) -> anyhow::Result<()> {
    let deadline = Instant::now() + LIMIT;
    loop {
        let Reply::Bytes(info) = client.command(&[b"INFO", b"persistence"])? else {
            anyhow::bail!("unexpected reply to INFO");
        };
        let info = String::from_utf8(info).context("the reply to INFO is not UTF-8")?;
        if info.contains("rdb_bgsave_in_progress:0") {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "the snapshot takes too long");
        std::thread::park_timeout(Duration::from_millis(10));
    }
}
