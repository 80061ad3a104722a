//! `forebay events export` to S3, against a server in this process.

use std::fs;
use std::net::SocketAddr;
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};

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

use crate::events_support::{append_ok, events, numbered};
use crate::support::{forebay, stderr};

/// A server with one empty bucket; it ends with its runtime.
pub(crate) struct S3 {
    _runtime: Runtime,
    address: SocketAddr,
    pub(crate) dir: TempDir,
    /// Method and query of each request.
    asked: Asked,
}

type Asked = Arc<Mutex<Vec<String>>>;

impl S3 {
    pub(crate) fn start() -> Self {
        Self::start_but("nothing")
    }

    /// A server on this port.
    pub(crate) fn start_on(port: u16) -> Self {
        Self::serve(port, "nothing")
    }

    /// A server that forbids requests with this text in their query.
    fn start_but(forbidden: &'static str) -> Self {
        Self::serve(0, forbidden)
    }

    fn serve(port: u16, forbidden: &'static str) -> Self {
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
        let listener = runtime.block_on(TcpListener::bind(("127.0.0.1", port))).unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Asked::default();
        runtime.spawn(accept(listener, service, forbidden, Arc::clone(&asked)));
        Self { _runtime: runtime, address, dir, asked }
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Runs an export of `dir` here.
    fn export(&self, dir: &TempDir, args: &[&str]) -> Output {
        let mut command = without_aws(dir);
        command.env("AWS_ACCESS_KEY_ID", "test-access").env("AWS_SECRET_ACCESS_KEY", "test-secret");
        command.args(["events", "export", "--endpoint", &self.endpoint()]).args(args);
        command.output().unwrap()
    }

    /// Names in a directory of the bucket.
    pub(crate) fn names(&self, prefix: &str) -> Vec<String> {
        let dir = self.dir.path().join("archive").join(prefix);
        let mut names: Vec<String> = walkdir::WalkDir::new(&dir)
            .into_iter()
            .map(|entry| entry.unwrap())
            .filter(|entry| entry.file_type().is_file())
            .map(|entry| entry.path().strip_prefix(&dir).unwrap().display().to_string())
            .collect();
        names.sort();
        names
    }
}

/// A command without the AWS settings of the user who runs the tests.
pub(crate) fn without_aws(dir: &TempDir) -> Command {
    let mut command = forebay(dir);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("AWS_") {
            command.env_remove(name);
        }
    }
    command.env("HOME", dir.path()).stdin(Stdio::null());
    command
}

async fn accept(listener: TcpListener, s3: S3Service, forbidden: &'static str, asked: Asked) {
    while let Ok((stream, _)) = listener.accept().await {
        stream.set_nodelay(true).unwrap();
        let (s3, asked) = (s3.clone(), Arc::clone(&asked));
        let answer = service_fn(move |request: Request<Incoming>| {
            let query = request.uri().query().unwrap_or_default().to_owned();
            asked.lock().unwrap().push(format!("{} {query}", request.method()));
            let s3 = s3.clone();
            async move {
                if query.contains(forbidden) {
                    let mut forbidden = Response::new(s3s::Body::empty());
                    *forbidden.status_mut() = StatusCode::FORBIDDEN;
                    return Ok(forbidden);
                }
                s3.call(request.map(s3s::Body::from)).await
            }
        });
        let served = http1::Builder::new().serve_connection(TokioIo::new(stream), answer);
        // A client that disconnects is not a failure.
        tokio::spawn(async move { served.await.unwrap_or_default() });
    }
}

/// Lines that do not compress: more than two requests' worth.
fn large(dir: &TempDir) {
    let line = "x".repeat(100_000) + "\n";
    append_ok(dir, &["--stream", "s", "--format", "raw"], line.repeat(210).as_bytes());
}

fn ok(output: &Output) -> Value {
    assert!(output.status.success(), "{}", stderr(output));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn objects_are_the_files_a_directory_would_get() {
    let (s3, dir) = (S3::start(), tempfile::tempdir().unwrap());
    append_ok(&dir, &["--stream", "s"], numbered(50).as_bytes());
    let args = ["--partition", "day", "--rows-max", "20", "--json"];
    let mut here =
        vec!["--out", "s3://archive/deep/er", "--allow-http", "--region", "eu-central-1"];
    here.extend(args);
    let report = ok(&s3.export(&dir, &here));
    assert_eq!((report["files"].as_u64(), report["rows"].as_u64()), (Some(3), Some(50)));
    let mut there = vec!["export", "--out", "out"];
    there.extend(args);
    events(&dir, &there);
    let names = s3.names("deep/er");
    assert_eq!(
        names,
        [
            "_forebay_export.json",
            "date=2024-11-21/part-00000.parquet",
            "date=2024-11-21/part-00001.parquet",
            "date=2024-11-21/part-00002.parquet",
        ]
    );
    for name in names {
        let object = s3.dir.path().join("archive/deep/er").join(&name);
        let (object, file) = (fs::read(object), fs::read(dir.path().join("out").join(&name)));
        assert!(object.unwrap() == file.unwrap(), "{name}");
    }
    // Existing objects are not replaced, whether the earlier export was complete or not.
    let again = s3.export(&dir, &here);
    assert_eq!(again.status.code(), Some(1));
    assert!(stderr(&again).contains("s3://archive/deep/er/"), "{}", stderr(&again));
    fs::remove_file(s3.dir.path().join("archive/deep/er/_forebay_export.json")).unwrap();
    let again = s3.export(&dir, &here);
    assert_eq!(again.status.code(), Some(1));
    assert!(stderr(&again).contains("part-00000.parquet"), "{}", stderr(&again));
}

#[test]
fn a_large_part_is_uploaded_in_pieces_and_is_whole() {
    let (s3, dir) = (S3::start(), tempfile::tempdir().unwrap());
    large(&dir);
    let args = ["--out", "s3://archive", "--allow-http", "--path-style", "--format", "ndjson"];
    let output = s3.export(&dir, &args);
    assert!(output.status.success(), "{}", stderr(&output));
    events(&dir, &["export", "--out", "out", "--format", "ndjson"]);
    let object = fs::read(s3.dir.path().join("archive/part-00000.ndjson")).unwrap();
    assert!(object.len() > 20 << 20);
    assert!(object == fs::read(dir.path().join("out/part-00000.ndjson")).unwrap());
    let asked = s3.asked.lock().unwrap();
    let pieces = asked.iter().filter(|asked| asked.contains("partNumber=")).count();
    assert_eq!(pieces, 3, "{asked:?}");
}

#[test]
fn an_upload_that_fails_half_way_is_aborted() {
    let (s3, dir) = (S3::start_but("partNumber=3"), tempfile::tempdir().unwrap());
    large(&dir);
    let output = s3.export(&dir, &["--out", "s3://archive", "--allow-http", "--format", "ndjson"]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let said = stderr(&output);
    assert!(said.contains("cannot store s3://archive/part-00000.ndjson"), "{said}");
    let asked = s3.asked.lock().unwrap();
    assert!(asked.iter().any(|asked| asked.starts_with("DELETE uploadId=")), "{asked:?}");
    assert_eq!(s3.names(""), [""; 0]);
}

#[test]
fn a_server_without_tls_and_a_wrong_secret_are_refused() {
    let (s3, dir) = (S3::start(), tempfile::tempdir().unwrap());
    append_ok(&dir, &["--stream", "s"], numbered(2).as_bytes());
    let output = s3.export(&dir, &["--out", "s3://archive/x"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("--allow-http"), "{}", stderr(&output));
    assert_eq!(s3.export(&dir, &["--out", "s3:///x", "--allow-http"]).status.code(), Some(2));
    let mut command = forebay(&dir);
    command.env("AWS_ACCESS_KEY_ID", "test-access").env("AWS_SECRET_ACCESS_KEY", "another");
    command.env("AWS_ENDPOINT_URL", s3.endpoint());
    let output = command
        .args(["events", "export", "--out", "s3://archive/x", "--allow-http"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(!stderr(&output).contains("another"), "{}", stderr(&output));
    assert!(s3.names("").is_empty());
}

#[test]
fn a_profile_has_the_keys_the_region_and_the_endpoint() {
    let (s3, dir) = (S3::start(), tempfile::tempdir().unwrap());
    append_ok(&dir, &["--stream", "s"], numbered(3).as_bytes());
    fs::create_dir(dir.path().join(".aws")).unwrap();
    let keys = "aws_access_key_id = test-access\naws_secret_access_key = test-secret\n";
    let wrong = "aws_access_key_id = test-access\naws_secret_access_key = no-such-secret\n";
    let credentials = format!("[default]\n{wrong}[work]\n{keys}[half]\naws_access_key_id = x\n");
    fs::write(dir.path().join(".aws/credentials"), credentials).unwrap();
    let config = format!(
        "[profile work]\nregion = eu-west-1\nendpoint_url = {}\n[profile role]\nrole_arn = r\n",
        s3.endpoint()
    );
    fs::write(dir.path().join("elsewhere"), config).unwrap();
    let export = |to: &str, environment: &[(&str, &str)], args: &[&str]| {
        let mut command = without_aws(&dir);
        command.env("AWS_CONFIG_FILE", dir.path().join("elsewhere"));
        command.envs(environment.iter().copied());
        let to = format!("s3://archive/{to}");
        command.args(["events", "export", "--json", "--allow-http", "--out", &to]).args(args);
        command.output().unwrap()
    };
    let environment =
        [("AWS_ACCESS_KEY_ID", "test-access"), ("AWS_SECRET_ACCESS_KEY", "no-such-secret")];
    ok(&export("option", &[], &["--profile", "work"]));
    ok(&export("variable", &[("AWS_PROFILE", "work")], &[]));
    // Keys of the environment precede a profile named only there, and follow the option.
    ok(&export(
        "before",
        &[&environment[..], &[("AWS_SESSION_TOKEN", "t")]].concat(),
        &["--profile", "work"],
    ));
    let both = [&environment[..], &[("AWS_PROFILE", "work")]].concat();
    let refused = export("after", &both, &[]);
    assert_eq!(refused.status.code(), Some(1), "{}", stderr(&refused));
    for (profile, report) in [
        ("missing", "there is no profile \"missing\""),
        ("half", "has no aws_secret_access_key"),
        ("role", "by role_arn"),
    ] {
        let refused = export("wrong", &[], &["--profile", profile]);
        assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
        assert!(stderr(&refused).contains(report), "{}", stderr(&refused));
        assert!(!stderr(&refused).contains("secret\n") && !stderr(&refused).contains("test-"));
    }
}

#[test]
fn an_endpoint_with_a_password_is_refused_and_not_printed() {
    let dir = tempfile::tempdir().unwrap();
    append_ok(&dir, &["--stream", "s"], numbered(1).as_bytes());
    let args = ["events", "export", "--out", "s3://archive/x"];
    let given =
        without_aws(&dir).args(args).args(["--endpoint", "https://user:hunter2@s3.test"]).output();
    let set = without_aws(&dir)
        .args(args)
        .env("AWS_ENDPOINT_URL", "https://user:hunter2@s3.test")
        .output();
    for refused in [given.unwrap(), set.unwrap()] {
        assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
        let said = stderr(&refused);
        assert!(said.contains("***@s3.test") && !said.contains("hunter2"), "{said}");
    }
}

#[test]
fn a_pipeline_uses_the_profile_that_its_file_names() {
    let (s3, dir) = (S3::start(), tempfile::tempdir().unwrap());
    fs::write(s3.dir.path().join("archive/x.csv"), "key,size\na,1\n").unwrap();
    fs::create_dir(dir.path().join(".aws")).unwrap();
    let endpoint = s3.endpoint();
    let credentials = format!(
        "[work]\naws_access_key_id = test-access\naws_secret_access_key = test-secret\n\
         endpoint_url = {endpoint}\n"
    );
    fs::write(dir.path().join(".aws/credentials"), credentials).unwrap();
    let run = |profile: &str| {
        let file = format!(
            "version: 1\npipeline: p\nsource:\n  use: csv\n  config:\n    path: s3://archive\n    \
             s3: {{ profile: {profile}, allow_http: true }}\n  streams: [{{ name: x.csv }}]\n\
             destination:\n  use: ndjson\n  config: {{ path: out }}\n"
        );
        fs::write(dir.path().join("p.yaml"), file).unwrap();
        without_aws(&dir).args(["pipeline", "run", "p.yaml"]).output().unwrap()
    };
    let done = run("work");
    assert!(done.status.success(), "{}", stderr(&done));
    assert!(dir.path().join("out/x").is_dir());
    let refused = run("missing");
    assert!(!refused.status.success());
    let said = stderr(&refused);
    assert!(said.contains("p.yaml:") && said.contains("no profile \"missing\""), "{said}");
}
