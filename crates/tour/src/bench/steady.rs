//! Measures durable uploads at a steady rate while a large file is uploaded: how long each takes from the time
//! it was due.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, bail};

use super::client::{Pace, drive_paced};
use super::intake::{put_request, stored};
use super::{Figures, Plan, disk, upload};
use crate::child::Server;

/// The part of the highest rate that is sent.
const SHARE: f64 = 0.7;

/// How long the new server of a round has this load before it is measured.
const WARMING: Duration = Duration::from_millis(500);

/// Measures each round with a new server, beside the flushes of the bare disk.
///
/// * `highest`: durable uploads a second without anything else.
pub(super) fn measure(
    plan: &Plan,
    scratch: &Path,
    highest: f64,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let (mut p50, mut p99, mut flushes) = (Vec::new(), Vec::new(), Vec::new());
    let source = scratch.join("beside");
    upload::make(&source, 0, plan.large_size)?;
    for round in 0..plan.rounds {
        flushes.push(disk::flush_p99_us(scratch, plan.lasting)?);
        let data = scratch.join(format!("steady-{round}"));
        let command = ["serve", "--log", "warn", "--durability", "sync"];
        let server = Server::start(&command, &data, &data.with_extension("log"))?;
        let stop = AtomicBool::new(false);
        let load = std::thread::scope(|scope| {
            let beside = scope.spawn(|| {
                let mut uploads = 0;
                while !stop.load(Ordering::Relaxed) {
                    upload::upload(&server, uploads, &source)?;
                    uploads += 1;
                }
                anyhow::Ok(())
            });
            let (per_second, lasting) = (highest * SHARE, plan.lasting);
            let pace = Pace { per_second, warming: WARMING, lasting };
            let load =
                drive_paced(server.address(), plan.connections, pace, put_request("bench"), stored);
            stop.store(true, Ordering::Relaxed);
            match beside.join() {
                Ok(uploaded) => uploaded.context("the upload beside failed")?,
                Err(_) => bail!("the upload beside panicked"),
            }
            load
        })?;
        p50.push(load.percentile_us(0.5));
        p99.push(load.percentile_us(0.99));
        super::intake::read_back(&server, plan, 0, load.done)?;
        server.stop()?;
        std::fs::remove_dir_all(&data).context("cannot remove an emptied store")?;
    }
    std::fs::remove_file(&source).context("cannot remove the file to upload")?;
    figures.median("fdatasync_p99_us", flushes);
    figures.median("put_4k_beside_1g_p50_us", p50);
    figures.median("put_4k_beside_1g_p99_us", p99);
    Ok(())
}
