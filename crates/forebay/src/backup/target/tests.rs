//! Targets in a bucket of a server in this process.

use std::io::{Read as _, Write as _};
use std::sync::Arc;

use forebay_objects::{Access, Address, Bucket, Keys, Settings};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use s3s::auth::SimpleAuth;
use s3s::service::{S3Service, S3ServiceBuilder};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

use super::{Purpose, S3, Target as _};

/// A server with one empty bucket; it ends with its runtime.
struct Server {
    runtime: Arc<Runtime>,
    endpoint: String,
    dir: TempDir,
}

impl Server {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("bucket")).unwrap();
        let mut builder = S3ServiceBuilder::new(s3s_fs::FileSystem::new(dir.path()).unwrap());
        builder.set_auth(SimpleAuth::from_single("test-access", "test-secret"));
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        runtime.spawn(accept(listener, builder.build()));
        Self { runtime: Arc::new(runtime), endpoint, dir }
    }

    fn bucket(&self) -> Bucket {
        let Ok(Address::Bucket(address)) = "s3://bucket/at/prefix".parse() else { unreachable!() };
        let settings = Settings {
            endpoint: Some(self.endpoint.clone()),
            keys: Some(Keys::new("test-access", "test-secret", None)),
            allow_http: true,
            ..Settings::default()
        };
        Access::new(&settings).unwrap().with_checksums().bucket(&address).unwrap()
    }

    fn target(&self) -> S3 {
        S3::with(Arc::clone(&self.runtime), self.bucket())
    }
}

async fn accept(listener: TcpListener, s3: S3Service) {
    while let Ok((stream, _)) = listener.accept().await {
        let s3 = s3.clone();
        let answer = service_fn(move |request: http::Request<hyper::body::Incoming>| {
            let s3 = s3.clone();
            async move { s3.call(request.map(s3s::Body::from)).await }
        });
        let served = http1::Builder::new().serve_connection(TokioIo::new(stream), answer);
        // A client that disconnects is not a failure.
        tokio::spawn(async move { served.await.unwrap_or_default() });
    }
}

#[test]
fn a_list_of_any_size_is_published_whole_and_replaces_none() {
    let server = Server::start();
    let target = server.target();
    for (name, size) in [("lists/small", 5), ("lists/large", (33 << 20) + 7)] {
        let bytes: Vec<u8> = (0..=250_u8).cycle().take(size).collect();
        let publish = |bytes: &[u8]| {
            let mut file = target.scratch().unwrap();
            file.write_all(bytes).unwrap();
            target.publish(name, file)
        };
        publish(&bytes).unwrap();
        let mut read = Vec::new();
        target.open(name).unwrap().unwrap().read_to_end(&mut read).unwrap();
        assert!(read == bytes, "{name}");
        assert_eq!(target.size(name).unwrap(), Some(size as u64));
        let mut other = bytes.clone();
        other[0] = 255;
        let error = publish(&other).unwrap_err();
        assert!(format!("{error:#}").contains(name), "{error:#}");
        let kept = target.read(name, size, false).unwrap().unwrap();
        assert!(kept == bytes, "{name}");
        assert!(target.read(name, size - 1, false).is_err());
    }
    assert!(!target.is_empty().unwrap());
    let mut listed = Vec::new();
    let mut add = |name: &str, size| {
        listed.push((name.to_owned(), size));
        Ok(())
    };
    target.list("lists", &mut add).unwrap();
    listed.sort();
    assert_eq!(listed, [("lists/large".to_owned(), (33 << 20) + 7), ("lists/small".to_owned(), 5)]);
    target.remove(&["lists/large".into(), "lists/small".into(), "lists/missing".into()]).unwrap();
    assert!(target.is_empty().unwrap() && target.open("lists/large").unwrap().is_none());
}

#[test]
fn backups_share_a_bucket_and_a_prune_has_it_alone() {
    let server = Server::start();
    let target = server.target();
    let hold = |purpose| target.hold(purpose);
    let (one, two) = (hold(Purpose::Backup).unwrap(), hold(Purpose::Backup).unwrap());
    assert!(!one.is_exclusive());
    let error = hold(Purpose::Prune).unwrap_err();
    assert!(format!("{error:#}").contains("a backup is being made"), "{error:#}");
    drop(one);
    assert!(hold(Purpose::Prune).is_err());
    two.check().unwrap();
    drop(two);
    let prune = hold(Purpose::Prune).unwrap();
    assert!(prune.is_exclusive());
    assert!(hold(Purpose::Prune).is_err() && hold(Purpose::Backup).is_err());
    prune.check().unwrap();
    drop(prune);
    // Locks do not make a prefix one that holds something else, and none remains.
    assert!(target.is_empty().unwrap());
    let locks = server.dir.path().join("bucket/at/prefix/locks");
    assert!(std::fs::read_dir(locks).map_or(0, Iterator::count) == 0);
}

#[test]
fn an_expired_lock_is_revoked_and_its_holder_finds_out() {
    let server = Server::start();
    let target = server.target();
    let stopped = target.hold(Purpose::Backup).unwrap();
    let locks = server.dir.path().join("bucket/at/prefix/locks");
    for lock in std::fs::read_dir(&locks).unwrap() {
        let lock = std::fs::File::options().append(true).open(lock.unwrap().path()).unwrap();
        let age = std::time::Duration::from_secs(3_600);
        lock.set_modified(std::time::SystemTime::now() - age).unwrap();
    }
    // Another backup does not need it to be gone.
    drop(target.hold(Purpose::Backup).unwrap());
    stopped.check().unwrap();
    let prune = target.hold(Purpose::Prune).unwrap();
    let error = stopped.check().unwrap_err();
    assert!(format!("{error:#}").contains("start again"), "{error:#}");
    prune.check().unwrap();
    // What a later version writes there may mean anything.
    drop((stopped, prune));
    std::fs::write(locks.join("0123"), "{\"purpose\":\"moving\"}").unwrap();
    assert!(target.hold(Purpose::Backup).is_err());
}
