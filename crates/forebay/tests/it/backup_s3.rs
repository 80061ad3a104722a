//! `forebay backup` and `restore` with a bucket of S3, against a server in this process that can hold requests back.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use s3s::auth::SimpleAuth;
use s3s::service::{S3Service, S3ServiceBuilder};
use serde_json::Value;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::watch;

use crate::events_export_s3::without_aws;
use crate::support::{HANG, Server, agent, stderr};

/// Where the backups are.
const TARGET: &str = "s3://archive/deep/backups";

/// A request, as the tests compare it.
#[derive(Debug, Clone)]
struct Asked {
    method: String,
    /// Below the prefix of the backups.
    name: String,
    headers: http::HeaderMap,
}

impl Asked {
    fn is(&self, method: &str, name: &str) -> bool {
        self.method == method && self.name.starts_with(name)
    }
}

/// Which requests are held back.
#[derive(Debug, Clone, Copy)]
enum Gate {
    /// None, and those that wait continue.
    Open,
    /// Those with this method and this beginning of their name, after the first `after`.
    Closed { method: &'static str, name: &'static str, after: usize },
    /// None, and those that wait are refused.
    Dropped,
}

/// A request that waits.
struct Waits(watch::Sender<usize>);

impl Waits {
    fn begin(count: watch::Sender<usize>) -> Self {
        count.send_modify(|count| *count += 1);
        Self(count)
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

/// A server with one bucket.
struct Bucket {
    _runtime: Runtime,
    address: SocketAddr,
    dir: TempDir,
    asked: Arc<Mutex<Vec<Asked>>>,
    /// The gate, and how many wait at it.
    gate: watch::Sender<Gate>,
    waiting: watch::Receiver<usize>,
}

impl Bucket {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("archive")).unwrap();
        let mut builder = S3ServiceBuilder::new(s3s_fs::FileSystem::new(dir.path()).unwrap());
        builder.set_auth(SimpleAuth::from_single("test-access", "test-secret"));
        let service = builder.build();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::default();
        let (gate, (waits, waiting)) = (watch::Sender::new(Gate::Open), watch::channel(0));
        runtime.spawn(accept(listener, service, Arc::clone(&asked), gate.clone(), waits));
        Self { _runtime: runtime, address, dir, asked, gate, waiting }
    }

    /// The command line of `forebay`, with access to the bucket.
    fn command(&self, dir: &TempDir, args: &[&str]) -> Command {
        let mut command = without_aws(dir);
        command.env("AWS_ACCESS_KEY_ID", "test-access").env("AWS_SECRET_ACCESS_KEY", "test-secret");
        command.env("AWS_ENDPOINT_URL", format!("http://{}", self.address));
        command.env("AWS_ALLOW_HTTP", "true").args(args);
        command
    }

    fn run(&self, dir: &TempDir, args: &[&str]) -> Output {
        self.command(dir, args).output().unwrap()
    }

    fn ok(&self, dir: &TempDir, args: &[&str]) -> Value {
        let output = self.run(dir, &[args, &["--json"]].concat());
        assert!(output.status.success(), "{args:?}: {}", stderr(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn spawn(&self, dir: &TempDir, args: &[&str]) -> Child {
        let mut command = self.command(dir, args);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Holds requests back.
    fn close(&self, method: &'static str, name: &'static str, after: usize) {
        self.gate.send_replace(Gate::Closed { method, name, after });
    }

    /// Lets all requests through.
    fn open(&self) {
        self.gate.send_replace(Gate::Open);
    }

    /// Returns once this number of requests is held back.
    fn until_waiting(&self, count: usize) {
        until(|| *self.waiting.borrow() >= count);
    }

    /// Runs a command until a request of it is held back and `is_reached`, and kills it.
    fn kill_at(&self, dir: &TempDir, args: &[&str], is_reached: impl Fn() -> bool) {
        let mut killed = self.spawn(dir, args);
        self.until_waiting(1);
        until(is_reached);
        killed.kill().unwrap();
        killed.wait().unwrap();
        self.gate.send_replace(Gate::Dropped);
        until(|| *self.waiting.borrow() == 0);
        self.open();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join("archive/deep/backups").join(name)
    }

    /// Names of the objects below a name.
    fn names(&self, below: &str) -> Vec<String> {
        let dir = self.path("");
        let found = walkdir::WalkDir::new(self.path(below)).sort_by_file_name().into_iter();
        let files = found.filter_map(Result::ok).filter(|entry| entry.file_type().is_file());
        files.map(|e| e.path().strip_prefix(&dir).unwrap().display().to_string()).collect()
    }

    /// Makes the locks as old as those of a command that was killed a while ago.
    fn expire_locks(&self) {
        let locks = self.names("locks");
        assert!(!locks.is_empty());
        for name in locks {
            let file = fs::File::options().append(true).open(self.path(&name)).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(3_600)).unwrap();
        }
    }

    fn asked(&self, method: &str, name: &str) -> Vec<Asked> {
        let asked = self.asked.lock().unwrap();
        asked.iter().filter(|asked| asked.is(method, name)).cloned().collect()
    }

    /// Verifies all backups, and returns their ids.
    fn verified(&self, dir: &TempDir) -> Vec<String> {
        let listed = self.ok(dir, &["backup", "list", TARGET]);
        let ids = listed["backups"].as_array().unwrap().iter().map(id).collect::<Vec<_>>();
        if !ids.is_empty() {
            let verified = self.ok(dir, &["backup", "verify", TARGET]);
            assert_eq!(verified["backups"], ids.len(), "{verified}");
        }
        ids
    }
}

/// Returns once something is so.
fn until(is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + HANG;
    while !is_so() {
        assert!(Instant::now() < deadline, "it does not become so");
        std::thread::yield_now();
    }
}

fn id(made: &Value) -> String {
    made["id"].as_str().unwrap().to_owned()
}

async fn accept(
    listener: TcpListener,
    s3: S3Service,
    asked: Arc<Mutex<Vec<Asked>>>,
    gate: watch::Sender<Gate>,
    waits: watch::Sender<usize>,
) {
    while let Ok((stream, _)) = listener.accept().await {
        stream.set_nodelay(true).unwrap();
        let (s3, asked, gate, waits) = (s3.clone(), asked.clone(), gate.clone(), waits.clone());
        let answer = service_fn(move |request: Request<Incoming>| {
            let method = request.method().to_string();
            let uri = request.uri();
            let is_bulk = uri.query().is_some_and(|query| query.contains("delete"));
            let name = match is_bulk {
                true => "delete",
                false => uri.path().trim_start_matches("/archive/deep/backups/"),
            };
            let now = Asked { method, name: name.to_owned(), headers: request.headers().clone() };
            let (s3, asked, gate, waits) = (s3.clone(), asked.clone(), gate.clone(), waits.clone());
            async move {
                let is_held = {
                    let mut asked = asked.lock().unwrap();
                    asked.push(now.clone());
                    match *gate.borrow() {
                        Gate::Closed { method, name, after } => {
                            let before = asked.iter().filter(|it| it.is(method, name)).count();
                            now.is(method, name) && before > after
                        }
                        Gate::Open | Gate::Dropped => false,
                    }
                };
                if is_held {
                    let waits = Waits::begin(waits);
                    let mut gate = gate.subscribe();
                    let is_closed = |gate: &Gate| matches!(gate, Gate::Closed { .. });
                    let opened = *gate.wait_for(|gate| !is_closed(gate)).await.unwrap();
                    drop(waits);
                    if matches!(opened, Gate::Dropped) {
                        let mut refused = Response::new(s3s::Body::empty());
                        *refused.status_mut() = StatusCode::FORBIDDEN;
                        return Ok(refused);
                    }
                }
                s3.call(request.map(s3s::Body::from)).await
            }
        });
        let served = http1::Builder::new().serve_connection(TokioIo::new(stream), answer);
        // A client that disconnects is not a failure.
        tokio::spawn(async move { served.await.unwrap_or_default() });
    }
}

fn put(server: &Server, name: &str, bytes: &[u8]) {
    let sent = agent().put(format!("{}/v1/files/{name}", server.url)).send(bytes).unwrap();
    assert!(sent.status().is_success(), "{name}");
}

/// A file that is stored as a file, not in the log.
fn large(seed: usize) -> Vec<u8> {
    format!("file {seed} ").into_bytes().repeat(20_000)
}

/// The data of a stopped server with some large files.
fn data(dir: &TempDir, files: usize) {
    let server = Server::start(dir, &[]);
    for number in 0..files {
        put(&server, &format!("n/{number}"), &large(number));
    }
    server.signal("TERM");
    assert_eq!(server.wait(), Some(0));
}

/// Changes the data, so that a backup has something new.
fn change(dir: &TempDir, text: &str) {
    let pipelines = dir.path().join("forebay-data/pipelines");
    fs::create_dir_all(&pipelines).unwrap();
    fs::write(pipelines.join("changing"), text).unwrap();
}

#[test]
fn a_running_server_is_backed_up_to_a_bucket_and_restored_from_it() {
    let (bucket, dir) = (Bucket::start(), tempfile::tempdir().unwrap());
    let server = Server::start(&dir, &[]);
    for number in 0..6 {
        put(&server, &format!("n/{number}"), &large(number));
    }
    let make = ["backup", TARGET, "--server", &server.url];
    let first = bucket.ok(&dir, &make);
    assert_eq!(first["online"], true);
    let stored = bucket.asked("PUT", "chunks/");
    assert!(
        stored.len() >= 6
            && stored.iter().all(|it| it.headers.contains_key("x-amz-checksum-sha256"))
    );
    // The list is the last but its mark, and never replaces one.
    let lists = bucket.asked("PUT", "lists/");
    assert_eq!(lists.len(), 1);
    assert_eq!(lists[0].headers["if-none-match"], "*");
    let puts = bucket.asked("PUT", "");
    let last: Vec<_> = puts.iter().rev().take(2).map(|put| put.name.as_str()).collect();
    assert!(last[0].starts_with("marks/") && last[1].starts_with("lists/"), "{last:?}");
    assert_eq!(bucket.names("locks"), [""; 0]);
    // What is there is not sent again.
    put(&server, "n/new", &large(100));
    let second = bucket.ok(&dir, &make);
    let again = bucket.asked("PUT", "chunks/").len() - stored.len();
    assert!(again < stored.len(), "{again} of {}", stored.len());
    assert!(second["new_bytes"].as_u64() < first["new_bytes"].as_u64(), "{second}");
    drop(server);
    assert_eq!(bucket.verified(&dir), [id(&first), id(&second)]);
    for (made, to, newest) in [(&first, "one", false), (&second, "two", true)] {
        let restored = bucket.ok(&dir, &["restore", TARGET, "--at", &id(made), "--data", to]);
        assert_eq!(restored["files"], made["files"]);
        let server = Server::start(&dir, &["--data", to]);
        for (name, seed, is_there) in [("n/0", 0, true), ("n/5", 5, true), ("n/new", 100, newest)] {
            let mut answer = agent().get(format!("{}/v1/files/{name}", server.url)).call().unwrap();
            assert_eq!(answer.status() == 200, is_there, "{to} {name}");
            assert!(!is_there || answer.body_mut().read_to_vec().unwrap() == large(seed));
        }
    }
    // The same prefix in a bucket is not that of a directory, and something else is left alone.
    fs::create_dir_all(bucket.dir.path().join("archive/else")).unwrap();
    fs::write(bucket.dir.path().join("archive/else/letter"), "dear").unwrap();
    let refused = bucket.run(&dir, &["backup", "s3://archive/else"]);
    assert_eq!(refused.status.code(), Some(3));
    assert!(stderr(&refused).contains("something else"), "{}", stderr(&refused));
    for (args, code) in [
        (&["backup", "list", "s3://archive/else"][..], 3),
        (&["backup", "list", "s3:///x"], 2),
        (&["backup", "list", "ftp://x"], 2),
        (&["backup", "list", "x", "--profile", "y"], 2),
        (&["backup", "list", TARGET, "--profile", "missing"], 2),
        (&["backup", "prune", TARGET], 2),
        (&["backup", "prune", TARGET, "--keep-last", "0"], 2),
        (&["backup"], 2),
    ] {
        assert_eq!(bucket.run(&dir, args).status.code(), Some(code), "{args:?}");
    }
}

#[test]
fn damage_in_a_bucket_is_named_and_nothing_is_restored() {
    let (bucket, dir) = (Bucket::start(), tempfile::tempdir().unwrap());
    data(&dir, 2);
    bucket.ok(&dir, &["backup", TARGET]);
    let chunk = bucket
        .names("chunks")
        .into_iter()
        .max_by_key(|name| fs::metadata(bucket.path(name)).unwrap().len());
    let chunk = chunk.unwrap();
    let whole = fs::read(bucket.path(&chunk)).unwrap();
    let mut damaged = whole.clone();
    damaged[7] ^= 1;
    for bytes in [Some(damaged.as_slice()), whole.get(1..), None] {
        match bytes {
            Some(bytes) => fs::write(bucket.path(&chunk), bytes).unwrap(),
            None => fs::remove_file(bucket.path(&chunk)).unwrap(),
        }
        let verified = bucket.run(&dir, &["backup", "verify", TARGET]);
        assert_eq!(verified.status.code(), Some(1), "{}", stderr(&verified));
        assert!(String::from_utf8_lossy(&verified.stdout).contains(&chunk));
        let restored = bucket.run(&dir, &["restore", TARGET, "--data", "restored"]);
        assert_eq!(restored.status.code(), Some(3));
        assert!(stderr(&restored).contains(&chunk), "{}", stderr(&restored));
        assert!(
            !dir.path().join("restored").exists()
                && !dir.path().join(".restored.restoring").exists()
        );
    }
    fs::write(bucket.path(&chunk), whole).unwrap();
    bucket.ok(&dir, &["restore", TARGET, "--data", "restored"]);
}

#[test]
fn a_backup_that_was_killed_is_none_and_a_prune_removes_its_remains() {
    let (bucket, dir) = (Bucket::start(), tempfile::tempdir().unwrap());
    data(&dir, 8);
    let first = bucket.ok(&dir, &["backup", TARGET]);
    let before = bucket.names("chunks");
    // While chunks are sent, and when only the list is left.
    for (name, after) in [("chunks/", before.len() + 1), ("lists/", 1)] {
        for number in 0..4 {
            change(&dir, &format!("{name} {number}"));
            let path = format!("forebay-data/pipelines/{}-{number}", name.trim_end_matches('/'));
            fs::write(dir.path().join(path), format!("new {name} {number}")).unwrap();
        }
        bucket.close("PUT", name, after);
        // Chunks are sent at the same time: the first of them may end after the next is held back.
        let is_some_stored = || bucket.names("chunks").len() > before.len();
        bucket.kill_at(&dir, &["backup", TARGET], is_some_stored);
        assert_eq!(bucket.verified(&dir), [id(&first)]);
        // Its lock keeps a prune from removing what it needs, and no backup from being made.
        let refused = bucket.run(&dir, &["backup", "prune", TARGET, "--keep", "9"]);
        assert_eq!(refused.status.code(), Some(3));
        assert!(stderr(&refused).contains("a backup is being made"), "{}", stderr(&refused));
        bucket.expire_locks();
        let pruned = bucket.ok(&dir, &["backup", "prune", TARGET, "--keep", "9"]);
        assert!(pruned["chunks"].as_u64().unwrap() > 0, "{pruned}");
        assert_eq!(bucket.names("chunks"), before);
    }
    let next = bucket.ok(&dir, &["backup", TARGET]);
    assert_eq!(bucket.verified(&dir), [id(&first), id(&next)]);
    bucket.ok(&dir, &["restore", TARGET, "--data", "restored"]);
}

#[test]
fn two_backups_at_a_time_are_both_whole_and_no_prune_runs_meanwhile() {
    let (bucket, dir, other) =
        (Bucket::start(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    data(&dir, 3);
    data(&other, 3);
    bucket.close("PUT", "lists/", 0);
    let slow = bucket.spawn(&dir, &["backup", TARGET, "--json"]);
    bucket.until_waiting(1);
    // The other relies on chunks that only the first has stored.
    bucket.close("PUT", "lists/", 1);
    let quick = bucket.spawn(&other, &["backup", TARGET, "--json"]);
    bucket.until_waiting(2);
    let refused = bucket.run(&dir, &["backup", "prune", TARGET, "--keep-last", "1"]);
    assert!(stderr(&refused).contains("a backup is being made"), "{}", stderr(&refused));
    bucket.open();
    let made: Vec<Value> = [slow, quick]
        .map(|child| child.wait_with_output().unwrap())
        .map(|output| {
            serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", stderr(&output)))
        })
        .into();
    let mut ids: Vec<_> = made.iter().map(id).collect();
    ids.sort();
    assert_eq!(bucket.verified(&dir), ids);
    // One of the two is removed: the other stays whole.
    bucket.ok(&dir, &["backup", "prune", TARGET, "--keep-last", "1"]);
    assert_eq!(bucket.verified(&dir), ids[1..]);
    assert_eq!(bucket.names("locks"), [""; 0]);
}

#[test]
fn a_backup_whose_lock_was_taken_meanwhile_fails_and_is_not_listed() {
    let (bucket, dir) = (Bucket::start(), tempfile::tempdir().unwrap());
    data(&dir, 2);
    let first = bucket.ok(&dir, &["backup", TARGET]);
    change(&dir, "new");
    bucket.close("PUT", "lists/", 1);
    let stopped = bucket.spawn(&dir, &["backup", TARGET]);
    bucket.until_waiting(1);
    bucket.expire_locks();
    let pruned = bucket.ok(&dir, &["backup", "prune", TARGET, "--keep-last", "5"]);
    assert!(pruned["chunks"].as_u64().unwrap() > 0, "{pruned}");
    bucket.open();
    let output = stopped.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    assert!(stderr(&output).contains("the lock on the backups"), "{}", stderr(&output));
    assert_eq!(bucket.verified(&dir), [id(&first)]);
    bucket.ok(&dir, &["backup", TARGET]);
    assert_eq!(bucket.verified(&dir).len(), 2);
}

#[test]
fn a_prune_that_was_killed_leaves_whole_backups_and_the_next_ends_it() {
    let (bucket, dir) = (Bucket::start(), tempfile::tempdir().unwrap());
    data(&dir, 2);
    let mut ids = Vec::new();
    for round in 0..3 {
        change(&dir, &format!("round {round}"));
        ids.push(id(&bucket.ok(&dir, &["backup", TARGET])));
    }
    let prune = ["backup", "prune", TARGET, "--keep-last", "1"];
    let dry = bucket.ok(&dir, &[&prune[..], &["--dry-run"]].concat());
    assert_eq!(dry["removed"].as_array().unwrap().len(), 2);
    assert_eq!(bucket.verified(&dir), ids);
    // Held back is the removal of the marks; after that of an expired lock and of the marks, that of the lists; and
    // after all of these, that of chunks.
    for (more, left) in [(0, &ids[..]), (2, &ids[..]), (3, &ids[2..])] {
        bucket.close("POST", "delete", bucket.asked("POST", "delete").len() + more);
        bucket.kill_at(&dir, &prune, || true);
        assert_eq!(bucket.verified(&dir), left);
        let refused = bucket.run(&dir, &["backup", TARGET]);
        assert!(stderr(&refused).contains("backups are being removed"), "{}", stderr(&refused));
        bucket.expire_locks();
    }
    let pruned = bucket.ok(&dir, &prune);
    assert_eq!(pruned["kept"][0]["id"], ids[2].as_str());
    assert_eq!(bucket.verified(&dir), ids[2..]);
    bucket.ok(&dir, &["restore", TARGET, "--data", "restored"]);
    let kept = Path::new("restored/pipelines/changing");
    assert_eq!(fs::read_to_string(dir.path().join(kept)).unwrap(), "round 2");
}
