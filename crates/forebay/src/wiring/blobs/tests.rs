//! A bucket of a server in this process, and one of versitygw, keep the promises of a place for blobs.

use std::cell::Cell;

use forebay_intake::blobs::conformance::{Subject, check};
use forebay_objects::{Address, Keys};
use forebay_testing::Versity;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use s3s::auth::SimpleAuth;
use s3s::service::{S3Service, S3ServiceBuilder};
use tempfile::TempDir;
use tokio::net::TcpListener;

use super::*;

const KEY: &str = Versity::KEY;
const SECRET: &str = Versity::SECRET;

/// The storage of a prefix of the bucket `files`.
fn storage(endpoint: &str, prefix: usize) -> Arc<BucketStorage> {
    let Ok(Address::Bucket(address)) = format!("s3://files/of/{prefix}").parse() else {
        unreachable!()
    };
    let settings = Settings {
        endpoint: Some(endpoint.to_owned()),
        keys: Some(Keys::new(KEY, SECRET, None)),
        allow_http: true,
        ..Settings::default()
    };
    let access = Access::new(&settings).unwrap();
    Arc::new(BucketStorage::new(&access, &address).unwrap())
}

/// Runs the suite against a server.
fn keeps_the_promises(endpoint: &str) {
    let dir = tempfile::tempdir().unwrap();
    let count = Cell::new(0);
    check(|| {
        count.set(count.get() + 1);
        let storage = Some(storage(endpoint, count.get()) as _);
        Subject { dir: dir.path().join(count.get().to_string()), storage }
    });
}

/// A server in this process; it ends with its runtime.
struct InProcess {
    _runtime: Runtime,
    endpoint: String,
    _dir: TempDir,
}

impl InProcess {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("files")).unwrap();
        let mut builder = S3ServiceBuilder::new(s3s_fs::FileSystem::new(dir.path()).unwrap());
        builder.set_auth(SimpleAuth::from_single(KEY, SECRET));
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        runtime.spawn(accept(listener, builder.build()));
        Self { _runtime: runtime, endpoint, _dir: dir }
    }
}

async fn accept(listener: TcpListener, s3: S3Service) {
    while let Ok((stream, _)) = listener.accept().await {
        stream.set_nodelay(true).unwrap();
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
fn a_bucket_keeps_the_promises_of_a_place_for_blobs() {
    keeps_the_promises(&InProcess::start().endpoint);
}

#[test]
fn a_bucket_of_versitygw_keeps_the_promises_of_a_place_for_blobs() {
    if let Some(server) = Versity::start("files") {
        keeps_the_promises(&server.endpoint());
    }
}

#[test]
fn objects_are_written_listed_and_replaced_only_as_the_version_that_was_read() {
    let server = InProcess::start();
    let storage = storage(&server.endpoint, 0);
    assert_eq!(storage.url(), "s3://files/of/0");
    storage.put("packs/a/1", Bytes::from_static(b"0123456789")).unwrap();
    assert_eq!(storage.read("packs/a/1", 2..5).unwrap(), "234");
    assert!(matches!(storage.read("packs/a/2", 0..1), Err(StorageError::Missing)));
    let mut parts = vec![Bytes::from(vec![7; 9 << 20]), Bytes::from_static(b"end")];
    let size = (9 << 20) + 3;
    let sent = storage.upload("packs/a/3", size, &mut || {
        Ok(if parts.is_empty() { None } else { Some(parts.remove(0)) })
    });
    sent.unwrap();
    assert_eq!(storage.read("packs/a/3", size - 4..size).unwrap(), [7, b'e', b'n', b'd'][..]);
    let failed = storage.upload("packs/a/4", size, &mut || Err(io::Error::other("the disk")));
    assert!(matches!(failed, Err(StorageError::Source(_))), "{failed:?}");
    let mut listed = Vec::new();
    storage.list("packs", &mut |name, size| listed.push((name.to_owned(), size))).unwrap();
    listed.sort();
    assert_eq!(listed, [("packs/a/1".to_owned(), 10), ("packs/a/3".to_owned(), size)]);
    assert!(storage.load("claim", 10).unwrap().is_none());
    let first = storage.replace("claim", Bytes::from_static(b"1"), None).unwrap();
    let second = storage.replace("claim", Bytes::from_static(b"2"), Some(&first)).unwrap();
    for was in [None, Some(&first)] {
        let lost = storage.replace("claim", Bytes::from_static(b"3"), was);
        assert!(matches!(lost, Err(StorageError::Conflict)), "{lost:?}");
    }
    assert_eq!(storage.load("claim", 10).unwrap(), Some((Bytes::from_static(b"2"), second)));
    for _ in 0..2 {
        storage.remove("packs/a/1").unwrap();
    }
    assert!(matches!(storage.read("packs/a/1", 0..1), Err(StorageError::Missing)));
}

#[test]
fn a_bucket_that_does_not_exist_or_refuses_is_not_one_that_is_away() {
    let Some(server) = Versity::start("files") else { return };
    let settings = |secret: &str| Settings {
        endpoint: Some(server.endpoint()),
        keys: Some(Keys::new(KEY, secret, None)),
        allow_http: true,
        ..Settings::default()
    };
    for (address, secret) in [("s3://absent/p", SECRET), ("s3://files/p", "wrong")] {
        let Ok(Address::Bucket(address)) = address.parse() else { unreachable!() };
        let access = Access::new(&settings(secret)).unwrap();
        let storage = BucketStorage::new(&access, &address).unwrap();
        let refused = storage.put("x", Bytes::new()).unwrap_err();
        assert!(matches!(refused, StorageError::Refused { .. }), "{refused:?}");
    }
}
