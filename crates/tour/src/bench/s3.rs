//! Measures uploads of 4 KiB over the S3-compatible API, and the same load on versitygw.
//!
//! Ours are on stable storage before they are acknowledged; versitygw leaves its files to the kernel. Both get
//! the same requests from the same client: signature version 4, the payload not signed, which costs neither
//! side a second hash. Every object is read back and compared.

use std::cell::RefCell;
use std::path::Path;
#[cfg(feature = "peers")]
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, bail, ensure};

use super::client::{Load, Until, drive};
use super::intake::fill;
use super::{Figures, Plan};
use crate::s3::{Port, Served, Signer};
#[cfg(feature = "peers")]
use crate::s3::{REGION, free_port, reachable};

const BUCKET: &str = "bench";

/// Measures both in turns.
pub(super) fn measure(plan: &Plan, scratch: &Path, figures: &mut Figures) -> anyhow::Result<()> {
    let mut ours = Rates::default();
    #[cfg(feature = "peers")]
    let mut theirs = Rates::default();
    for round in 0..plan.rounds {
        let data = scratch.join(format!("s3-{round}"));
        let own = Served::start(&data)?;
        ours.measure(&own.port, plan)?;
        own.server.stop()?;
        std::fs::remove_dir_all(&data).context("cannot remove an emptied store")?;
        #[cfg(feature = "peers")]
        if let Some(program) = &plan.versitygw {
            let data = scratch.join(format!("versitygw-{round}"));
            let peer = Versitygw::start(program, &data)?;
            theirs.measure(&peer.port, plan)?;
            drop(peer);
            std::fs::remove_dir_all(&data).context("cannot remove a peer's data")?;
        }
    }
    ours.report("s3", figures);
    #[cfg(feature = "peers")]
    theirs.report("versitygw", figures);
    Ok(())
}

/// Rates and times, one for each round.
#[derive(Default)]
struct Rates {
    put: Vec<f64>,
    put_p50: Vec<f64>,
    put_p99: Vec<f64>,
    get: Vec<f64>,
}

impl Rates {
    fn measure(&mut self, port: &Port, plan: &Plan) -> anyhow::Result<()> {
        let port = Load4k(port);
        port.create_bucket()?;
        let put = port.put(plan)?;
        let get = port.read_back(plan, put.done)?;
        self.put.push(put.per_second());
        self.put_p50.push(put.percentile_us(0.5));
        self.put_p99.push(put.percentile_us(0.99));
        self.get.push(get.per_second());
        Ok(())
    }

    fn report(self, name: &str, figures: &mut Figures) {
        figures.median(&format!("{name}_put_4k_per_s"), self.put);
        figures.median(&format!("{name}_put_4k_p50_us"), self.put_p50);
        figures.median(&format!("{name}_put_4k_p99_us"), self.put_p99);
        figures.median(&format!("{name}_get_4k_per_s"), self.get);
    }
}

/// versitygw over a directory, with connections that stay open; ended when dropped.
#[cfg(feature = "peers")]
struct Versitygw {
    child: Child,
    port: Port,
}

#[cfg(feature = "peers")]
impl Versitygw {
    fn start(program: &Path, data: &Path) -> anyhow::Result<Self> {
        std::fs::create_dir_all(data)
            .with_context(|| format!("cannot create {}", data.display()))?;
        let address = free_port()?;
        let (id, secret) = ("bench".to_owned(), "bench-secret-of-a-test".to_owned());
        let child = Command::new(program)
            .args(["--port", &address.to_string(), "--access", &id, "--secret", &secret])
            .args(["--region", REGION, "--keep-alive", "-q", "posix"])
            .arg(data)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let peer = Self { child, port: Port { address, id, secret } };
        reachable(address)?;
        Ok(peer)
    }
}

#[cfg(feature = "peers")]
impl Drop for Versitygw {
    fn drop(&mut self) {
        // Its data is removed afterwards.
        if let Err(error) = self.child.kill().and_then(|()| self.child.wait()) {
            tracing::warn!(%error, "cannot stop versitygw");
        }
    }
}

/// The requests of the measurement.
struct Load4k<'p>(&'p Port);

impl Load4k<'_> {
    fn create_bucket(&self) -> anyhow::Result<()> {
        let signer = Signer::of(self.0);
        let request = move |_, out: &mut Vec<u8>| signer.head("PUT", &format!("/{BUCKET}"), 0, out);
        let check = |_, status, body: &[u8]| {
            let text = String::from_utf8_lossy(body);
            ensure!(status == 200, "the bucket was answered {status}: {text}");
            Ok(())
        };
        drive(self.0.address, 1, Until::Requests(1), 0, request, check).map(drop)
    }

    fn put(&self, plan: &Plan) -> anyhow::Result<Load> {
        let signer = Signer::of(self.0);
        let request = move |number: u64, out: &mut Vec<u8>| {
            signer.head("PUT", &format!("/{BUCKET}/{number:016x}"), 4_096, out);
            fill(number, out);
        };
        let check = |number, status, body: &[u8]| {
            let text = String::from_utf8_lossy(body);
            ensure!(status == 200, "object {number} was answered {status}: {text}");
            Ok(())
        };
        let until = Until::Elapsed(plan.lasting);
        drive(self.0.address, plan.connections, until, 0, request, check)
    }

    fn read_back(&self, plan: &Plan, count: u64) -> anyhow::Result<Load> {
        let signer = Signer::of(self.0);
        let request = move |number: u64, out: &mut Vec<u8>| {
            signer.head("GET", &format!("/{BUCKET}/{number:016x}"), 0, out);
        };
        let expected = RefCell::new(Vec::with_capacity(4_096));
        let check = move |number, status, body: &[u8]| {
            let mut expected = expected.borrow_mut();
            expected.clear();
            fill(number, &mut expected);
            if status != 200 || body != expected.as_slice() {
                bail!("object {number} came back altered");
            }
            Ok(())
        };
        let until = Until::Requests(count);
        let load = drive(self.0.address, plan.connections, until, 0, request, check)?;
        ensure!(load.done == count, "{} of {count} objects were read back", load.done);
        Ok(load)
    }
}
