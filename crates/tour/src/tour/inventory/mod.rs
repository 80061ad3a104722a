//! The inventory chapter of a tour: a tree of this machine and the server's own files are indexed
//! and compared with a plain walk and the tour's own records.
//!
//! The tree from which the files were chosen is indexed in place, and totals of prefixes are
//! compared with a walk that shares no code with the index. The server's own files are indexed,
//! some are added, and the difference is compared with what was added. The server is killed while
//! it rebuilds an index: the previous one is used after the restart. A changed byte in a copy of an
//! index is detected.

mod asked;
mod walk;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use forebay_inventory::index::Index;
use serde_json::{Value, json};

use self::asked::Asked;
use super::HANGS_AFTER;
use super::client::escape;
use super::inputs::Files;
use super::oracle::Oracle;
use super::queue;
use super::report::{Report, rate};
use super::stages::Checks;
use crate::child::Server;
use forebay_console::interrupt::Interrupt;
use forebay_console::out::size;

/// Number of prefixes whose totals are compared.
const COMPARED: usize = 2_000;
/// Number of prefixes looked up, repeatedly, in the opened index.
const LOOK_UPS: usize = 200_000;
/// Interval between checks whether a build has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(1);
/// Files added before the second index of the server's own.
const ADDED: [(&str, usize); 3] =
    [("tour-added/a/one", 1_000), ("tour-added/a/two", 20_000), ("tour-added/three", 5)];

/// The setting that lets the server read the tree, if a setting can express its path.
pub(super) fn sources(files: &Files) -> String {
    let tree = files.tree.canonicalize().unwrap_or_default();
    let tree = tree.to_str().filter(|tree| !tree.contains(',')).unwrap_or_default();
    format!("inventory.sources={tree}")
}

/// An inventory chapter in progress.
pub(super) struct Chapter<'a> {
    pub(super) files: &'a Files,
    /// The files that the server holds.
    pub(super) oracle: &'a Oracle,
    pub(super) interrupt: &'a Interrupt,
    pub(super) data: &'a Path,
    pub(super) scratch: &'a Path,
    /// Starts the server again; it may read the tree.
    pub(super) start: &'a dyn Fn() -> anyhow::Result<Server>,
}

/// The measurements.
#[derive(Debug, Default)]
pub(super) struct Measured {
    objects: u64,
    prefixes: u64,
    build_took: Duration,
    look_up_ns: f64,
    asked: u64,
    asked_took: Duration,
    index_bytes: u64,
}

impl Chapter<'_> {
    /// Runs the chapter on a running server; returns the server that is running at the end.
    pub(super) fn run(
        &self,
        report: &mut Report,
        server: Server,
    ) -> anyhow::Result<(Server, Measured)> {
        report.chapter("The inventory index")?;
        let mut measured = Measured::default();
        let mut asked = Asked::new(server.address());
        self.tree(report, &mut asked, &mut measured)?;
        self.own_files(report, &mut asked)?;
        let server = self.kill(report, server)?;
        self.look_up(&mut measured)?;
        self.change_one_byte(report)?;
        Ok((server, measured))
    }

    /// Indexes the tree and compares it with a walk.
    fn tree(
        &self,
        report: &mut Report,
        asked: &mut Asked,
        measured: &mut Measured,
    ) -> anyhow::Result<()> {
        let tree = self.files.tree.canonicalize().context("cannot find the tree of files")?;
        let before = walk::walk(&tree)?;
        let begun = Instant::now();
        let built = self.build(asked, "tree", &format!("fs:{}", tree.display()))?;
        measured.build_took = begun.elapsed();
        measured.objects = built["objects"].as_u64().unwrap_or(0);
        measured.prefixes = built["prefixes"].as_u64().unwrap_or(0);
        measured.index_bytes = built["index_bytes"].as_u64().unwrap_or(0);
        report.line(format_args!(
            "  {} files below {}, {}, in {} directories: indexed in {:.2} s, {}",
            measured.objects,
            tree.display(),
            size(built["bytes"].as_u64().unwrap_or(0)),
            measured.prefixes,
            measured.build_took.as_secs_f64(),
            size(measured.index_bytes)
        ))?;
        let largest = asked.json("/v1/inventories/tree/top?k=4")?;
        for prefix in largest["items"].as_array().into_iter().flatten() {
            let (name, bytes) = (&prefix["prefix"], prefix["bytes"].as_u64().unwrap_or(0));
            report.line(format_args!(
                "    {:>10}  {}",
                size(bytes),
                name.as_str().unwrap_or("?")
            ))?;
        }
        let small = asked.json("/v1/inventories/tree/small-files?under=4KiB&k=1")?;
        let cost = asked.json("/v1/inventories/tree/cost")?;
        report.line(format_args!(
            "  {} of them are smaller than 4 KiB; in S3 Standard they would cost {:.2} {} a month",
            small["total"]["small"]["objects"],
            cost["total"].as_f64().unwrap_or(0.0),
            cost["currency"].as_str().unwrap_or("")
        ))?;
        // Another process may write there meanwhile: then the tree is reported and not compared.
        let after = walk::walk(&tree)?;
        let mut checks = Checks::new(report);
        if before == after {
            let (count, problems) = self.compare(asked, "tree", &before, measured)?;
            checks.add(
                "totals of the tree's directories, compared with a walk",
                count,
                problems,
            )?;
        } else {
            report.line("  the tree changed meanwhile and was not compared")?;
            return Ok(());
        }
        let rows = checks.rows();
        report.section("inventory_tree", rows);
        Ok(())
    }

    /// Requests the totals of many prefixes and compares them.
    fn compare(
        &self,
        asked: &mut Asked,
        name: &str,
        expected: &BTreeMap<Vec<u8>, (u64, u64)>,
        measured: &mut Measured,
    ) -> anyhow::Result<(u64, Vec<String>)> {
        let mut problems = Vec::new();
        let stride = expected.len().div_ceil(COMPARED).max(1);
        let begun = Instant::now();
        let mut count = 0;
        for (prefix, &(objects, bytes)) in expected.iter().step_by(stride) {
            self.interrupt.check()?;
            let prefix =
                percent_encoding::percent_encode(prefix, percent_encoding::NON_ALPHANUMERIC);
            let reply = asked.json(&format!("/v1/inventories/{name}/prefix?prefix={prefix}"))?;
            let found = (reply["objects"].as_u64(), reply["bytes"].as_u64());
            if found != (Some(objects), Some(bytes)) {
                problems.push(format!(
                    "{name}: {prefix} has {objects} objects of {bytes} bytes, the index has {found:?}"
                ));
            }
            count += 1;
        }
        measured.asked += count;
        measured.asked_took += begun.elapsed();
        Ok((count, problems))
    }

    /// Indexes the server's own files twice, and compares the difference with what was added.
    fn own_files(&self, report: &mut Report, asked: &mut Asked) -> anyhow::Result<()> {
        let built = self.build(asked, "own", "forebay:blobs")?;
        let mut expected: BTreeMap<Vec<u8>, (u64, u64)> = BTreeMap::new();
        for ((namespace, name), kept) in &self.oracle.files {
            walk::count(&mut expected, format!("{namespace}/{name}").as_bytes(), kept.size);
        }
        let mut unused = Measured::default();
        let (count, problems) = self.compare(asked, "own", &expected, &mut unused)?;
        for (name, size) in ADDED {
            asked.put(&format!("/v1/files/{name}"), &vec![b'+'; size])?;
        }
        self.build(asked, "own-later", "forebay:blobs")?;
        let reply = asked.json("/v1/inventories/own-later/diff?old=own&top=10")?;
        let added: u64 = ADDED.iter().map(|(_, size)| *size as u64).sum();
        let objects = ADDED.len() as u64;
        let expected = [
            ("", "changed", objects, added),
            ("tour-added/", "added", objects, added),
            ("tour-added/a/", "added", 2, added - 5),
        ];
        let found = reply["items"].as_array().context("a difference has no items")?;
        let mut wrong = Vec::new();
        for (prefix, status, objects, bytes) in expected {
            let is_it = |change: &&Value| {
                change["prefix"] == prefix
                    && change["status"] == status
                    && change["objects_delta"] == objects
                    && change["bytes_delta"] == bytes
            };
            if found.iter().filter(is_it).count() != 1 {
                wrong.push(format!("the difference does not list {prefix:?} as {status}"));
            }
        }
        if found.len() != expected.len() {
            wrong.push(format!("the difference has {} prefixes", found.len()));
        }
        report.line(format_args!(
            "  {} of the server's own files indexed, and again after {objects} more were stored",
            built["objects"]
        ))?;
        for (name, _) in ADDED {
            asked.delete(&format!("/v1/files/{name}"))?;
        }
        let mut checks = Checks::new(report);
        checks.add("totals of the server's own files", count, problems)?;
        checks.add("changed prefixes between two indexes", found.len() as u64, wrong)?;
        let rows = checks.rows();
        report.section("inventory_own", rows);
        Ok(())
    }

    /// Kills the server while it rebuilds an index; returns the server started after it.
    fn kill(&self, report: &mut Report, server: Server) -> anyhow::Result<Server> {
        let tree = self.files.tree.canonicalize().context("cannot find the tree of files")?;
        let mut asked = Asked::new(server.address());
        let before = asked.json("/v1/inventories/tree/prefix")?;
        let built_before = asked.json("/v1/inventories/tree")?["built_at_ms"].clone();
        let body = json!({ "from": format!("fs:{}", tree.display()) });
        let job = asked.post("/v1/inventories/tree", &body)?;
        let job = job.context("the answer to a build names no job")?;
        let reply = asked.json("/v1/inventories/tree/build")?;
        server.kill()?;
        let server = (self.start)()?;
        let mut asked = Asked::new(server.address());
        let after = asked.json("/v1/inventories/tree/prefix")?;
        let built_after = asked.json("/v1/inventories/tree")?["built_at_ms"].clone();
        report.line(format_args!(
            "  SIGKILL while the tree was indexed again ({}, {} rows read)",
            reply["state"].as_str().unwrap_or("?"),
            reply["rows"]
        ))?;
        let mut problems = Vec::new();
        // If the kill was too late, the index is the new one, of a tree that others may have
        // changed meanwhile.
        let is_same = ["objects", "bytes"].iter().all(|field| before[field] == after[field]);
        if !is_same && built_before == built_after {
            problems.push(format!("the index has {after} after the kill, and had {before} before"));
        }
        // The job runs again. The files are counted once no build writes or replaces them.
        let ended = queue::wait(&mut asked.connection, &job, self.interrupt)?;
        if ended["status"] != "completed" {
            problems.push(format!("the build did not complete after the kill: {ended}"));
        }
        let files = std::fs::read_dir(self.dir("tree"))?.count();
        if files > 6 {
            problems.push(format!("the kill left files behind: {files}"));
        }
        let mut checks = Checks::new(report);
        checks.add(
            "an index after a kill in its build, and the build that ran again",
            1,
            problems,
        )?;
        let rows = checks.rows();
        report.section("inventory_kill", rows);
        Ok(server)
    }

    /// Looks prefixes up in the opened index, without the server.
    fn look_up(&self, measured: &mut Measured) -> anyhow::Result<()> {
        let index = Index::open(&self.dir("tree"))?;
        let below = index.root()?.below(b"", None, 0, 0);
        let mut prefixes: Vec<Vec<u8>> =
            below.take(LOOK_UPS).map(|found| Ok(found?.prefix)).collect::<anyhow::Result<_>>()?;
        // Not in index order.
        prefixes.sort_by_key(|prefix| forebay_base::checksum::crc32c(prefix));
        let mut objects = 0_u64;
        let begun = Instant::now();
        for prefix in prefixes.iter().cycle().take(LOOK_UPS) {
            let node = index.get(prefix)?.context("a prefix of the index is missing")?;
            objects = objects.wrapping_add(node.stats()?.total.objects);
        }
        measured.look_up_ns = begun.elapsed().as_nanos() as f64 / LOOK_UPS as f64;
        ensure!(objects > 0, "the index has no files");
        Ok(())
    }

    /// Changes a byte in a copy of an index.
    fn change_one_byte(&self, report: &mut Report) -> anyhow::Result<()> {
        let copy = self.scratch.join("inventory-changed");
        std::fs::create_dir_all(&copy)?;
        let mut nodes = None;
        for entry in std::fs::read_dir(self.dir("own"))? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default();
            let to = copy.join(name);
            std::fs::copy(&path, &to)?;
            if name.as_encoded_bytes().starts_with(b"nodes") {
                nodes = Some(to);
            }
        }
        let sound = Index::open(&copy)?.verify()?.prefixes;
        let nodes = nodes.context("an index has no records")?;
        let mut bytes = std::fs::read(&nodes)?;
        let middle = bytes.len() / 2;
        *bytes.get_mut(middle).context("an index has no records")? ^= 0x10;
        std::fs::write(&nodes, bytes)?;
        let problems = match Index::open(&copy).and_then(|index| index.verify()) {
            Err(_) => Vec::new(),
            Ok(_) => vec!["a changed byte in a copy of an index was not detected".to_owned()],
        };
        std::fs::remove_dir_all(&copy).context("cannot remove the changed copy")?;
        let mut checks = Checks::new(report);
        checks.add("prefixes of an index verified on disk", sound, Vec::new())?;
        checks.add("changed byte in a copy of it, detected", 1, problems)?;
        let rows = checks.rows();
        report.section("inventory_damage", rows);
        Ok(())
    }

    fn dir(&self, name: &str) -> PathBuf {
        forebay_console::layout::inventories(self.data).join(name)
    }

    /// Builds an index and waits for its end.
    fn build(&self, asked: &mut Asked, name: &str, from: &str) -> anyhow::Result<Value> {
        asked.post(
            &format!("/v1/inventories/{name}"),
            &json!({ "from": from, "on_bad_row": "skip" }),
        )?;
        let begun = Instant::now();
        loop {
            self.interrupt.check()?;
            let reply = asked.json(&format!("/v1/inventories/{}/build", escape(name)))?;
            match reply["state"].as_str() {
                Some("running") => {
                    ensure!(begun.elapsed() < HANGS_AFTER, "the build of {from} does not end");
                    std::thread::park_timeout(POLL_INTERVAL);
                }
                Some("built") => return Ok(reply),
                _ => bail!("an index of {from} was not built: {reply}"),
            }
        }
    }
}

impl Measured {
    /// Returns the number of files indexed.
    pub(super) fn objects(&self) -> u64 {
        self.objects
    }

    /// Adds the figures to the report.
    pub(super) fn add_figures(&self, report: &mut Report) {
        report.count("inventory_objects", "files indexed", self.objects);
        report.count("inventory_prefixes", "prefixes of them", self.prefixes);
        let built = rate(self.objects as f64, self.build_took);
        report.measure("inventory_objects_per_s", "files read and indexed", built, "/s");
        let look_up = self.look_up_ns;
        report.measure("inventory_look_up_ns", "lookup of a prefix in the index", look_up, "ns");
        let asked = self.asked_took.as_secs_f64() * 1e6 / (self.asked as f64).max(1.0);
        report.measure("inventory_question_us", "the same, over HTTP", asked, "us");
        report.bytes("inventory_index_bytes", "size of the index on disk", self.index_bytes);
    }
}
