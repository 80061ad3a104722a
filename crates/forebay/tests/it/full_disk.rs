//! A server killed on a full disk, with all subsystems: it starts, is read, refuses what needs
//! space, and accepts everything again once there is some. The disk is a small file system in a
//! separate mount namespace.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::cache_full::can_mount;
use crate::support::{Answer, HANG, send};

/// Executes the commands it reads, with the data directory on a file system of this size; reports
/// each end.
const SCRIPT: &str = r#"
    mount -t tmpfs -o size=700m,mode=700 none "$0" || exit 77
    while read -r word; do
        case $word in
            serve) "$@" < /dev/null & ;;
            kill) kill -s KILL $!; wait $!; echo done ;;
            fill) cat /dev/zero > "$0/filler" 2> /dev/null; echo done ;;
            free) rm "$0/filler"; echo done ;;
        esac
    done
"#;
/// A start takes no longer than this, whatever the disk.
const START_LIMIT: Duration = Duration::from_secs(20);

/// The disk and the servers on it, one after the other.
struct Disk {
    child: Child,
    words: ChildStdin,
    lines: Receiver<String>,
    address: Option<SocketAddr>,
    dir: TempDir,
}

impl Disk {
    fn new() -> Self {
        let dir = TempDir::new().unwrap();
        let data = dir.path().join("data");
        let pipelines = dir.path().join("pipelines");
        std::fs::create_dir_all(&data).unwrap();
        std::fs::create_dir_all(dir.path().join("tree/below")).unwrap();
        std::fs::write(dir.path().join("tree/below/file"), "12345").unwrap();
        std::fs::create_dir_all(&pipelines).unwrap();
        std::fs::write(dir.path().join("rows.csv"), "id,name\n1,one\n2,two\n").unwrap();
        let path = dir.path().display();
        let pipeline = format!(
            "version: 1\npipeline: rows\nsource:\n  use: csv\n  config: {{ path: '{path}' }}\n  \
             streams: [{{ name: rows.csv }}]\ndestination:\n  use: sqlite\n  \
             config: {{ path: '{path}/out.sqlite' }}\n"
        );
        std::fs::write(pipelines.join("rows.yaml"), pipeline).unwrap();
        let mut child = Command::new("unshare")
            .args(["-rm", "sh", "-c", SCRIPT])
            .arg(&data)
            .arg(env!("CARGO_BIN_EXE_forebay"))
            .args(["serve", "--listen", "127.0.0.1:0", "--data", "data", "--log-format", "json"])
            .args(["--set", "cache.resp=127.0.0.1:0", "--set", "cache.text="])
            .args(["--set", &format!("pipelines.dir={}", pipelines.display())])
            .args(["--set", &format!("inventory.sources={path}/tree")])
            .current_dir(dir.path())
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(dir.path().join("log")).unwrap())
            .spawn()
            .unwrap();
        let words = child.stdin.take().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (to, lines) = channel();
        // Ends with the last of the processes that write to the pipe, at the latest when they are
        // killed.
        std::thread::spawn(move || {
            stdout.lines().map_while(Result::ok).try_for_each(|line| to.send(line))
        });
        Self { child, words, lines, address: None, dir }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap()
    }

    fn word(&mut self, word: &str) -> String {
        writeln!(self.words, "{word}").unwrap();
        let line = self.lines.recv_timeout(HANG);
        line.unwrap_or_else(|error| panic!("{word}: {error}, log: {}", self.log()))
    }

    fn serve(&mut self) {
        let begun = Instant::now();
        let line = self.word("serve");
        let address = line.strip_prefix("listening http://").unwrap_or_else(|| panic!("{line}"));
        self.address = Some(address.parse().unwrap());
        assert!(begun.elapsed() < START_LIMIT, "the start took {:?}", begun.elapsed());
    }

    fn ask(&self, method: &str, path: &str, body: &str) -> Answer {
        let mut stream = TcpStream::connect(self.address.unwrap()).unwrap();
        stream.set_read_timeout(Some(HANG)).unwrap();
        send(&mut stream, method, path, &format!("content-length: {}\r\n", body.len()));
        // The server need not read a refused body.
        stream.write_all(body.as_bytes()).unwrap_or_default();
        Answer::read(&mut stream)
    }

    fn get(&self, path: &str) -> Answer {
        let answer = self.ask("GET", path, "");
        assert_eq!(answer.status, 200, "{path}: {answer:?}, log: {}", self.log());
        answer
    }

    /// Repeats a request until it is answered with this status.
    fn until(&self, status: u16, method: &str, path: &str, body: &str) -> Answer {
        let begun = Instant::now();
        loop {
            let answer = self.ask(method, path, body);
            if answer.status == status {
                return answer;
            }
            assert!(begun.elapsed() < HANG, "{method} {path}: {answer:?}, log: {}", self.log());
        }
    }

    /// Returns the cache's reply to a command of plain words.
    fn cache(&self, words: &str) -> String {
        let log = self.log();
        let open = log.lines().rev().find(|line| line.contains("cache open")).unwrap();
        let open: serde_json::Value = serde_json::from_str(open).unwrap();
        let address = open["resp"].as_str().unwrap();
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(HANG)).unwrap();
        stream.write_all(format!("{words}\r\nQUIT\r\n").as_bytes()).unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        reply
    }

    /// Everything that was stored is read.
    fn check_reads(&self, id: &str) {
        assert_eq!(self.get(&format!("/v1/events/{id}")).json()["raw"], "kept event");
        let found = self.get("/v1/events?contains=kept").json();
        assert_eq!(found["events"].as_array().unwrap().len(), 1, "{found}");
        let proof = self.get(&format!("/v1/events/{id}/proof"));
        assert!(proof.body.contains("checkpoint"), "{proof:?}");
        self.get("/v1/events/checkpoint");
        self.get("/v1/events/stats");
        assert_eq!(self.get("/v1/files/docs/kept.txt").body, "kept file");
        assert!(self.get("/v1/documents/orders").body.contains("kept document"));
        assert_eq!(self.get("/v1/inventories/tree/prefix").json()["objects"], 1);
        let pipelines = self.get("/v1/pipelines").json();
        assert_eq!(pipelines["pipelines"][0]["name"], "rows", "{pipelines}");
        let runs = self.get("/v1/pipelines/rows/runs");
        assert!(runs.body.contains("\"done\""), "{runs:?}");
        assert!(self.cache("GET kept").contains("value"));
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // The shell and the server, which may have ended already.
        let group = format!("-{}", self.child.id());
        let killed = Command::new("kill").args(["-s", "KILL", "--", &group]).output();
        killed.map(drop).unwrap_or_default();
        self.child.wait().map(drop).unwrap_or_default();
    }
}

#[test]
fn a_server_killed_on_a_full_disk_starts_reads_everything_and_writes_again_with_space() {
    if !can_mount() {
        return;
    }
    let mut disk = Disk::new();
    disk.serve();
    let report = disk.until(200, "POST", "/v1/events/raw", "kept event\n").json();
    let id = report["first_id"].as_str().unwrap().to_owned();
    assert_eq!(disk.ask("PUT", "/v1/files/docs/kept.txt", "kept file").status / 100, 2);
    let document = "{\"text\":\"kept document\"}";
    assert_eq!(disk.ask("POST", "/v1/documents/orders", document).status / 100, 2);
    assert!(disk.cache("SET kept value").contains("OK"));
    let from = format!("{{\"from\":[\"fs:{}/tree\"]}}", disk.dir.path().display());
    assert_eq!(disk.ask("POST", "/v1/inventories/tree", &from).status, 202);
    disk.until(200, "GET", "/v1/inventories/tree/prefix", "");
    assert_eq!(disk.ask("POST", "/v1/pipelines/rows/runs", "").status, 202);
    let begun = Instant::now();
    while !disk.get("/v1/pipelines/rows/runs").body.contains("\"done\"") {
        assert!(begun.elapsed() < HANG, "{}", disk.log());
    }
    // A checkpoint is signed before the disk is full.
    disk.get(&format!("/v1/events/{id}/proof"));
    disk.check_reads(&id);
    assert_eq!(disk.word("fill"), "done");
    assert_eq!(disk.word("kill"), "done");
    disk.serve();
    disk.check_reads(&id);
    let large = "x".repeat(100_000);
    for _ in 0..3 {
        let refused = disk.ask("POST", "/v1/events/raw", &format!("{large}\n"));
        assert_eq!(refused.status, 507, "{refused:?}");
        assert!(refused.body.contains("storage_full"), "{refused:?}");
        assert!(refused.head.contains("retry-after"), "{refused:?}");
    }
    let refused = disk.ask("PUT", "/v1/files/docs/new.txt", &large);
    assert_eq!(refused.status, 507, "{refused:?}");
    let refused = disk.ask("POST", "/v1/pipelines/rows/runs", "");
    assert!(matches!(refused.status, 202 | 507), "{refused:?}");
    assert!(disk.cache("SET new value").contains("MISCONF"));
    disk.check_reads(&id);
    assert_eq!(disk.ask("GET", "/readyz", "").status, 503);
    assert_eq!(disk.word("free"), "done");
    disk.until(200, "POST", "/v1/events/raw", "after\n");
    disk.until(201, "PUT", "/v1/files/docs/after.txt", "after");
    disk.until(202, "POST", "/v1/pipelines/rows/runs", "");
    let begun = Instant::now();
    while !disk.cache("SET after value").contains("OK") {
        assert!(begun.elapsed() < HANG, "{}", disk.log());
    }
    assert_eq!(disk.ask("POST", "/v1/documents/orders", document).status / 100, 2);
    assert_eq!(disk.ask("POST", "/v1/inventories/again", &from).status, 202);
    disk.until(200, "GET", "/v1/inventories/again/prefix", "");
    disk.until(200, "GET", "/readyz", "");
    disk.check_reads(&id);
}
