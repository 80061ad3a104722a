//! Buckets, of a server in this process and in memory.

use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use forebay_sdk::acceptance;
use forebay_sdk::connector::Destination;
use forebay_sdk::error::ConnectorError;
use forebay_sdk::registry::{
    ConnectorSettings as _, DestinationSettings as _, SourceSettings as _,
};
use forebay_sdk::settings::StreamSettings;

use crate::{Bucket, Environment};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use s3s::auth::SimpleAuth;
use s3s::service::{S3Service, S3ServiceBuilder};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncRead as _, AsyncWrite as _, ReadBuf};
use tokio::net::{TcpListener, TcpStream};

use super::super::csv::CsvLayout;
use super::super::destination::FileDestination;
use super::super::format::Layout;
use super::super::location::Location;
use super::super::parquet::ParquetLayout;
use super::super::{
    CsvDestination, FileSettings, ParquetDestination, ParquetSource, in_environment,
};
use super::{chain, fill, passes, stream};

/// A server with one empty bucket; it ends with the test.
pub(in crate::connector) struct S3 {
    dir: TempDir,
    endpoint: String,
}

impl S3 {
    pub(in crate::connector) async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("bucket")).unwrap();
        let mut builder = S3ServiceBuilder::new(s3s_fs::FileSystem::new(dir.path()).unwrap());
        builder.set_auth(SimpleAuth::from_single("test-access", "test-secret"));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(accept(listener, builder.build()));
        Self { dir, endpoint }
    }

    /// Settings of a connector for a prefix here.
    pub(in crate::connector) fn settings(&self, prefix: &str, secret: &str) -> Value {
        json!({
            "path": format!("s3://bucket/{prefix}"),
            "s3": {
                "endpoint": self.endpoint,
                "access_key_id": "test-access",
                "secret_access_key": secret,
                "path_style": true,
                "allow_http": true,
            },
        })
    }

    fn names(&self, directory: &str) -> Vec<String> {
        names(&self.dir.path().join("bucket").join(directory))
    }
}

async fn accept(listener: TcpListener, s3: S3Service) {
    while let Ok((stream, _)) = listener.accept().await {
        stream.set_nodelay(true).unwrap();
        let s3 = s3.clone();
        let answer = service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
            let s3 = s3.clone();
            async move { s3.call(request.map(s3s::Body::from)).await }
        });
        let served = http1::Builder::new().serve_connection(Io(stream), answer);
        // A client that leaves is no failure.
        tokio::spawn(async move { served.await.unwrap_or_default() });
    }
}

/// A connection of `tokio` as `hyper` wants it.
struct Io(TcpStream);

impl hyper::rt::Read for Io {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        mut buffer: hyper::rt::ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let mut bytes = [0; 16 << 10];
        let room = buffer.remaining().min(bytes.len());
        let mut read = ReadBuf::new(&mut bytes[..room]);
        ready!(Pin::new(&mut self.0).poll_read(context, &mut read))?;
        buffer.put_slice(read.filled());
        Poll::Ready(Ok(()))
    }
}

impl hyper::rt::Write for Io {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// A destination in a bucket that is kept in memory.
fn in_memory(layout: Arc<dyn Layout>) -> Arc<dyn Destination> {
    let store = Arc::new(object_store::memory::InMemory::new());
    let bucket = Bucket::new(store, "b", "some/where".into());
    Arc::new(FileDestination::at(Location::Bucket(bucket), layout))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_is_a_destination() {
    let settings = json!({ "path": "s3://b/some/where" });
    let parquet = ParquetLayout::new(&serde_json::from_value(settings.clone()).unwrap());
    passes(in_memory(Arc::new(parquet))).await;
    let csv = CsvLayout::new(&serde_json::from_value(settings).unwrap());
    passes(in_memory(Arc::new(csv))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_of_s3_is_a_source_and_a_destination() {
    let server = S3::start().await;
    let destination =
        super::destination::<ParquetDestination>(server.settings("lake/", "test-secret"));
    let content = fill(&destination).await;
    let shown = server.names("lake/t");
    assert!(shown.len() == 2 && shown.iter().all(|name| name.ends_with(".parquet")), "{shown:?}");
    assert!(server.names("lake/_forebay/t").contains(&"ledger.json".to_owned()));
    let source = super::source::<ParquetSource>(server.settings("lake", "test-secret"));
    for name in ["t", "t/part-*.parquet"] {
        if let Err(failure) = acceptance::source(&source, &stream(name), content).await {
            panic!("{name}: {}", chain(&failure));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn names_of_any_letters_reach_a_server_of_s3() {
    let server = S3::start().await;
    let settings = server.settings("any where", "test-secret");
    passes(super::destination::<CsvDestination>(settings)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_key_is_said_and_a_server_that_is_not_there_may_be_tried_again() {
    let server = S3::start().await;
    let source = super::source::<ParquetSource>(server.settings("lake", "wrong"));
    let error = source.check().await.unwrap_err();
    assert!(!error.is_retryable(), "{}", chain(&error));
    assert!(error.to_string().contains("s3://bucket/lake"), "{error}");
    let missing: StreamSettings = stream("nothing");
    let source = super::source::<ParquetSource>(server.settings("lake", "test-secret"));
    let Err(error) = acceptance::open_source(&source, &missing).await else { panic!("opened") };
    assert!(matches!(error, ConnectorError::Unsupported { .. }), "{}", chain(&error));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_profile_has_the_keys_and_the_server_and_what_is_in_the_file_precedes() {
    let server = S3::start().await;
    let home = tempfile::tempdir().unwrap();
    std::fs::create_dir(home.path().join(".aws")).unwrap();
    let endpoint = &server.endpoint;
    let profiles = format!(
        "[work]\naws_access_key_id = test-access\naws_secret_access_key = test-secret\n\
         endpoint_url = {endpoint}\n[wrong]\naws_access_key_id = test-access\n\
         aws_secret_access_key = hunter2\nendpoint_url = http://127.0.0.1:1\n\
         [role]\nrole_arn = r\nendpoint_url = {endpoint}\n"
    );
    std::fs::write(home.path().join(".aws/credentials"), profiles).unwrap();
    let environment = Environment::new([], Some(home.path().to_owned()));
    let settings = |profile: &str| json!({ "path": "s3://bucket/lake", "s3": { "profile": profile, "allow_http": true } });
    fn loaded<S: FileSettings + DeserializeOwned>(
        settings: Value,
        environment: &Environment,
    ) -> Result<S, String> {
        let mut settings = serde_json::from_value(settings).unwrap();
        in_environment(environment)(&mut settings)?;
        Ok(settings)
    }
    let source = |settings: Value| loaded::<ParquetSource>(settings, &environment);
    let destination = loaded::<CsvDestination>(settings("work"), &environment).unwrap();
    passes(destination.destination()).await;
    source(settings("work")).unwrap().source().check().await.unwrap();
    // What the file itself names precedes.
    let mut own = server.settings("lake", "test-secret");
    own["s3"]["profile"] = "wrong".into();
    source(own).unwrap().source().check().await.unwrap();
    // Its server and its files are compared with the permissions.
    let wrong = source(settings("wrong")).unwrap();
    let reach = wrong.reach();
    assert_eq!(reach.hosts, [("127.0.0.1".to_owned(), Some(1))]);
    assert!(reach.paths.contains(&home.path().join(".aws/credentials")), "{reach:?}");
    assert!(!format!("{wrong:?}").contains("hunter2"));
    let error = source(settings("missing")).unwrap_err();
    assert!(error.contains("there is no profile \"missing\""), "{error}");
    // Settings that no program completed are refused, not used without keys.
    let error = super::source::<ParquetSource>(settings("work")).check().await.unwrap_err();
    assert!(chain(&error).contains("the profile work was not loaded"), "{}", chain(&error));
    let error = source(settings("role")).unwrap().source().check().await.unwrap_err();
    assert!(chain(&error).contains("by role_arn"), "{}", chain(&error));
}
