//! Encrypted connections.

use std::sync::Arc;

use forebay_http_json::Settings;
use forebay_sdk::registry::SourceSettings as _;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring::default_provider;

use crate::reading::{failure, ids};

#[tokio::test]
async fn a_certificate_is_verified_by_the_trusted_ones() {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let ca = dir.path().join("ca.pem");
    std::fs::write(&ca, made.cert.pem()).unwrap();
    let key = made.signing_key.serialize_der().try_into().unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let serving = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            let mut request = [0; 4096];
            assert!(stream.read(&mut request).await.unwrap() > 0);
            let answer = crate::server::answer("200 OK", "connection: close\r\n", r#"[{"id": 1}]"#);
            stream.write_all(&answer).await.unwrap();
            stream.shutdown().await.unwrap();
        }
    });
    let source = |more: serde_json::Value| {
        let mut settings = json!({
            "url": format!("https://localhost:{port}"), "retries": 0, "streams": [{ "name": "s" }],
        });
        settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        serde_json::from_value::<Settings>(settings).unwrap().source()
    };
    assert_eq!(ids(&source(json!({ "tls_ca_file": ca }))).await.unwrap(), [1]);
    let error = failure(&source(json!({}))).await;
    assert!(error.contains("certificate"), "{error}");
    let other = format!("https://127.0.0.1:{port}");
    let error = failure(&source(json!({ "tls_ca_file": ca, "url": other }))).await;
    assert!(error.contains("certificate"), "{error}");
    let missing = dir.path().join("missing.pem");
    let error = failure(&source(json!({ "tls_ca_file": missing }))).await;
    assert!(error.contains("missing.pem"), "{error}");
    serving.abort();
}
