//! Encrypted connections.

use std::os::unix::fs::PermissionsExt as _;

use serde_json::json;

use crate::server::{database, database_with, text};

#[tokio::test]
async fn a_certificate_is_verified_by_the_file_that_is_trusted() {
    let names = || ["localhost".to_owned(), "127.0.0.1".to_owned()];
    let made = rcgen::generate_simple_self_signed(names()).unwrap();
    let other = rcgen::generate_simple_self_signed(names()).unwrap();
    let dir = tempfile::tempdir().unwrap();
    // The server runs as another user.
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    std::fs::write(path("cert.pem"), made.cert.pem()).unwrap();
    std::fs::write(path("key.pem"), made.signing_key.serialize_pem()).unwrap();
    std::fs::write(path("other.pem"), other.cert.pem()).unwrap();
    let arguments =
        vec![format!("--ssl-cert={}", path("cert.pem")), format!("--ssl-key={}", path("key.pem"))];
    let Some(encrypted) = database_with(arguments) else { return };
    let trusting = |name: &str| json!({ "tls": "verify", "tls_ca_file": path(name) });
    let answer = encrypted.source(trusting("cert.pem")).check().await.unwrap();
    assert!(answer.contains("MariaDB"), "{answer}");
    let error = text(encrypted.source(trusting("other.pem")).check().await);
    assert!(error.to_lowercase().contains("certificate"), "{error}");
    let error = text(encrypted.source(trusting("none.pem")).check().await);
    assert!(error.contains("none.pem"), "{error}");
    let Some(plain) = database() else { return };
    let error = text(plain.source(trusting("cert.pem")).check().await);
    assert!(error.contains("SSL"), "{error}");
}
