//! A full disk: existing data can be read, writes are refused, and freeing space is enough to
//! continue.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Context as _;

use super::load::soon;
use super::server::{Server, Setup};
use super::stage::{Skipped, Stage};
use super::{Check, claim};

pub(super) const CHECKS: [Check; 1] = [Check::slow(
    "disk-full",
    "on a full disk reads work, writes are refused until there is space, and a restart reads",
    180,
    full,
)];

/// Size of the disk in bytes: enough for the reserved ends of the logs.
const DISK_SIZE_MIB: u32 = 384;
/// Maximum time until the server notices that there is space.
const NOTICE_LIMIT: Duration = Duration::from_secs(60);
/// A file that exists before the disk is full.
const FILE: &str = "/v1/files/attack/kept";

/// A small disk; removed when this is dropped.
struct Disk(PathBuf);

impl Disk {
    fn mount(at: PathBuf) -> anyhow::Result<Self> {
        std::fs::create_dir_all(&at).with_context(|| format!("cannot create {}", at.display()))?;
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={DISK_SIZE_MIB}m"), "tmpfs"]).arg(&at);
        match crate::command::works(&mut mount) {
            true => Ok(Self(at)),
            false => Err(Skipped("only root can mount a disk".into()).into()),
        }
    }

    /// Writes until nothing fits; returns the file to remove to free space.
    fn fill(&self) -> anyhow::Result<PathBuf> {
        let filler = self.0.join("filler");
        let mut file = File::create(&filler).context("cannot create a file that fills the disk")?;
        for size in [1 << 20, 4 << 10, 1] {
            let piece = vec![0x5A; size];
            while file.write_all(&piece).is_ok() {}
        }
        Ok(filler)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Lazily: a server that is being killed may still have files open on it.
        crate::command::works(Command::new("umount").arg("-l").arg(&self.0));
    }
}

fn full(stage: &Stage) -> anyhow::Result<String> {
    let disk = Disk::mount(stage.dir.join("disk"))?;
    let data = disk.0.join("data");
    let server = start(stage, &data)?;
    server.want("PUT", FILE, &vec![7; 200 << 10], &[200, 201])?;
    server.want("POST", "/v1/documents/attack", br#"{"kept":1}"#, &[200, 201])?;
    server.want("POST", "/v1/events?stream=attack", b"{\"kept\":1}\n", &[200])?;
    server.resp()?.want(&["SET", "kept", "1"], "OK")?;
    let filler = disk.fill()?;
    let refused = use_up(&server)?;
    reads(&server)?;
    std::fs::remove_file(&filler).context("cannot free disk space")?;
    let noticed = soon(NOTICE_LIMIT, &mut || writes(&server))?;
    reads(&server)?;
    let filler = disk.fill()?;
    use_up(&server)?;
    server.kill(stage)?;
    let server = start(stage, &data).context("the server does not start on a full disk")?;
    reads(&server).context("after a start on a full disk")?;
    std::fs::remove_file(filler).context("cannot free disk space")?;
    soon(NOTICE_LIMIT, &mut || writes(&server))?;
    Ok(format!("{refused}; writes accepted {:.1} s after space was freed", noticed.as_secs_f64()))
}

fn start(stage: &Stage, data: &Path) -> anyhow::Result<Server> {
    stage.start(&Setup { data: data.to_owned(), ..Setup::default() })
}

/// The body of the request with this number.
type Body<'a> = &'a dyn Fn(u32) -> Vec<u8>;

/// Writes until each engine refuses, and checks how it refuses.
fn use_up(server: &Server) -> anyhow::Result<String> {
    // Duplicate bytes take no space, so each body is different.
    let large = |number: u32| number.to_le_bytes().repeat(256 << 10);
    let document = |number: u32| {
        format!("{{\"n\":{number},\"a\":\"{}\"}}\n", "x".repeat(256 << 10)).into_bytes()
    };
    let routes: [(&str, &str, Body<'_>); 3] = [
        ("PUT", "/v1/files/attack/more", &large),
        ("POST", "/v1/documents/attack", &document),
        ("POST", "/v1/events?stream=attack", &document),
    ];
    for (method, path, body) in routes {
        let mut status = 0;
        // Reserved space is used up first.
        for number in 0..600 {
            let path = match method {
                "PUT" => format!("{path}-{number}"),
                _ => path.to_owned(),
            };
            let answer = server.ask(method, &path, "", &body(number))?;
            status = answer.status;
            if !matches!(status, 200 | 201) {
                claim(status == 507, || {
                    format!("{method} {path} on a full disk returned {}", answer.shown())
                })?;
                break;
            }
        }
        claim(status == 507, || format!("{method} {path} is never refused on a full disk"))?;
    }
    let mut cache = server.resp()?;
    let value = "y".repeat(256 << 10);
    let mut reply = String::new();
    for number in 0..2_000 {
        reply = cache.ask(&["SET", &format!("more:{number}"), &value])?;
        if reply != "OK" {
            break;
        }
    }
    claim(reply.starts_with("-MISCONF"), || format!("SET on a full disk returned {reply:?}"))?;
    Ok("507 and MISCONF".to_owned())
}

fn reads(server: &Server) -> anyhow::Result<()> {
    let back = server.want("GET", FILE, b"", &[200])?;
    claim(back.body == vec![7; 200 << 10], || "the file was changed".to_owned())?;
    let documents = server.want("GET", "/v1/documents/attack?limit=1", b"", &[200])?;
    claim(documents.shown().contains("kept"), || format!("documents: {}", documents.shown()))?;
    let events =
        server.want("GET", "/v1/events?stream=attack&order=oldest&limit=1", b"", &[200])?;
    claim(events.shown().contains("kept"), || format!("events: {}", events.shown()))?;
    let mut cache = server.resp()?;
    cache.want(&["PING"], "PONG")?;
    cache.want(&["GET", "kept"], "1")?;
    server.want("GET", "/v1/files?limit=10", b"", &[200]).map(drop)
}

fn writes(server: &Server) -> anyhow::Result<()> {
    server.want("PUT", "/v1/files/attack/after", &vec![3; 200 << 10], &[200, 201])?;
    server.want("POST", "/v1/documents/after", br#"{"after":1}"#, &[200, 201])?;
    server.want("POST", "/v1/events?stream=after", b"{\"after\":1}\n", &[200])?;
    server.resp()?.want(&["SET", "after", "1"], "OK")
}
