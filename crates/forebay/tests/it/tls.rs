//! HTTPS from files.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;

use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::support::{Answer, Server, forebay, run, send, stderr};

/// A certificate for `localhost` in `cert.pem` and its key in `key.pem`.
fn certificate(dir: &tempfile::TempDir) -> CertificateDer<'static> {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    std::fs::write(dir.path().join("cert.pem"), made.cert.pem()).unwrap();
    std::fs::write(dir.path().join("key.pem"), made.signing_key.serialize_pem()).unwrap();
    made.cert.der().clone()
}

fn client(
    server: &Server,
    trusted: CertificateDer<'static>,
) -> StreamOwned<ClientConnection, TcpStream> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("localhost").unwrap();
    StreamOwned::new(ClientConnection::new(Arc::new(config), name).unwrap(), server.connect())
}

const TLS: [&str; 4] = ["--tls-cert", "cert.pem", "--tls-key", "key.pem"];

#[test]
fn a_certificate_from_files_serves_https() {
    let dir = tempfile::tempdir().unwrap();
    let trusted = certificate(&dir);
    let server = Server::start(&dir, &TLS);
    assert!(server.url.starts_with("https://"), "{}", server.url);
    let mut stream = client(&server, trusted.clone());
    send(&mut stream, "GET", "/healthz", "");
    assert_eq!(Answer::read(&mut stream).status, 200);
    // A client that speaks plain HTTP is closed without harm to others.
    let mut plain = server.connect();
    plain.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    plain.read_to_end(&mut answer).unwrap_or_default();
    assert!(!answer.starts_with(b"HTTP/"), "{answer:?}");
    let mut stream = client(&server, trusted);
    send(&mut stream, "GET", "/readyz", "");
    assert_eq!(Answer::read(&mut stream).status, 200);
    server.signal("TERM");
    assert_eq!(server.wait(), Some(0));
}

#[test]
fn a_server_that_serves_https_only_is_backed_up_by_a_client_that_verifies_it() {
    let dir = tempfile::tempdir().unwrap();
    certificate(&dir);
    let server = Server::start(&dir, &TLS);
    let url = server.url.replace("127.0.0.1", "localhost");
    let backup = |url: &str, more: &[&str]| {
        run(&dir, &[&["backup", "backups", "--json", "--server", url], more].concat())
    };
    let made = backup(&url, &["--ca-file", "cert.pem"]);
    assert!(made.status.success(), "{}", stderr(&made));
    let made: serde_json::Value = serde_json::from_slice(&made.stdout).unwrap();
    assert_eq!(made["online"], true);
    // Neither an unknown certificate nor another name is accepted, not even on this machine.
    for (url, more, text) in [
        (&*url, &[][..], "certificate"),
        (&*server.url, &["--ca-file", "cert.pem"], "certificate"),
        (&*url, &["--ca-file", "key.pem"], "certificates"),
        ("http://127.0.0.1:1", &["--ca-file", "cert.pem"], "https://"),
        (&*server.url.replace("https:", "http:"), &[], "https://"),
    ] {
        let refused = backup(url, more);
        assert!(!refused.status.success(), "{url} {more:?}");
        assert!(stderr(&refused).contains(text), "{url} {more:?}: {}", stderr(&refused));
        assert!(!dir.path().join("forebay-data/backup-image").exists());
    }
    // Other commands trust the system's certificates, which the environment names.
    let mut jobs = forebay(&dir);
    jobs.args(["jobs", "ls", "--server", &url]).env("SSL_CERT_FILE", dir.path().join("cert.pem"));
    let listed = jobs.output().unwrap();
    assert!(listed.status.success(), "{}", stderr(&listed));
    let refused = run(&dir, &["jobs", "ls", "--server", &url]);
    assert_eq!(refused.status.code(), Some(1), "{}", stderr(&refused));
    assert!(stderr(&refused).contains("certificate"), "{}", stderr(&refused));
    assert!(run(&dir, &["backup", "verify", "backups"]).status.success());
}

#[test]
fn a_silent_client_is_cut_in_the_handshake() {
    let dir = tempfile::tempdir().unwrap();
    certificate(&dir);
    let mut args = TLS.to_vec();
    args.extend(["--set", "server.header_read_timeout=100ms"]);
    let server = Server::start(&dir, &args);
    let mut rest = Vec::new();
    server.connect().read_to_end(&mut rest).unwrap();
    assert_eq!(rest, b"");
}

#[test]
fn files_that_are_no_certificate_stop_the_start_and_are_named() {
    let dir = tempfile::tempdir().unwrap();
    certificate(&dir);
    std::fs::write(dir.path().join("empty.pem"), "nothing here").unwrap();
    for (cert, key) in
        [("missing.pem", "key.pem"), ("empty.pem", "key.pem"), ("cert.pem", "empty.pem")]
    {
        let listen = ["--listen", "127.0.0.1:0", "--tls-cert", cert, "--tls-key", key];
        let cache = ["--set", "cache.enabled=false"];
        let output = run(&dir, &[&["serve"], &listen[..], &cache[..]].concat());
        assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
        let bad = if cert == "cert.pem" { key } else { cert };
        assert!(stderr(&output).contains(bad), "{}", stderr(&output));
        assert!(stderr(&output).contains("server.tls_cert (flag --tls-cert)"), "{cert} {key}");
    }
    let (_, other) = self_signed(false);
    std::fs::write(dir.path().join("other.pem"), other).unwrap();
    let files = ["--tls-cert", "cert.pem", "--tls-key", "other.pem"];
    let output = run(&dir, &[&["serve", "--listen", "127.0.0.1:0"][..], &files].concat());
    assert_eq!(output.status.code(), Some(3));
    let text = "the private key in other.pem does not belong to the certificate in cert.pem";
    assert!(stderr(&output).ends_with(&format!("{text}\n")), "{}", stderr(&output));
}

#[test]
fn a_renewed_certificate_serves_the_next_connections_and_a_hangup_is_no_end() {
    let dir = tempfile::tempdir().unwrap();
    let old = certificate(&dir);
    let server = Server::start(&dir, &TLS);
    let get = |trusted: CertificateDer<'static>| {
        let mut stream = client(&server, trusted);
        let head = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
        let written = stream.write_all(head);
        let mut answer = Vec::new();
        written.is_ok()
            && stream.read_to_end(&mut answer).is_ok()
            && answer.starts_with(b"HTTP/1.1 200")
    };
    assert!(get(old.clone()));
    let new = certificate(&dir);
    server.signal("HUP");
    let deadline = std::time::Instant::now() + crate::support::HANG;
    while !get(new.clone()) {
        assert!(std::time::Instant::now() < deadline, "the old certificate still serves");
    }
    assert!(!get(old), "and nothing else does");
    server.signal("TERM");
    assert_eq!(server.wait(), Some(0));
}

#[test]
fn a_client_that_speaks_another_protocol_than_the_port_names_the_way_out() {
    let dir = tempfile::tempdir().unwrap();
    certificate(&dir);
    let tls = Server::start(&dir, &TLS);
    let plain_dir = tempfile::tempdir().unwrap();
    let plain = Server::start(&plain_dir, &[]);
    for command in [&["files", "ls"][..], &["jobs", "ls"], &["documents", "ls", "d"]] {
        for (url, way) in [
            (tls.url.replace("https:", "http:"), "write https:// in its URL"),
            (plain.url.replace("http:", "https:"), "write http:// in its URL"),
        ] {
            let refused = run(&dir, &[command, &["--server", &url]].concat());
            assert_eq!(refused.status.code(), Some(1), "{command:?} {url}");
            assert!(stderr(&refused).contains(way), "{command:?} {url}: {}", stderr(&refused));
        }
    }
}

#[test]
fn a_certificate_of_a_ca_is_refused_with_the_option_that_makes_another() {
    let dir = tempfile::tempdir().unwrap();
    let (cert, key) = self_signed(true);
    std::fs::write(dir.path().join("cert.pem"), cert).unwrap();
    std::fs::write(dir.path().join("key.pem"), key).unwrap();
    let server = Server::start(&dir, &TLS);
    let mut list = forebay(&dir);
    list.args(["files", "ls", "--server", &server.url.replace("127.0.0.1", "localhost")]);
    let refused = list.env("SSL_CERT_FILE", dir.path().join("cert.pem")).output().unwrap();
    let said = stderr(&refused);
    assert!(said.contains("basicConstraints=critical,CA:FALSE"), "{said}");
    assert!(!said.contains("CaUsedAsEndEntity"), "{said}");
}

/// A certificate of `localhost` and its key, in PEM.
///
/// * `is_ca`: whether it says that it may sign others, as those of openssl do by default.
fn self_signed(is_ca: bool) -> (String, String) {
    let mut of = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    if is_ca {
        of.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    }
    let key = rcgen::KeyPair::generate().unwrap();
    (of.self_signed(&key).unwrap().pem(), key.serialize_pem())
}
