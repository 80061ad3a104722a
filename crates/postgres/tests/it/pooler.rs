//! A pooler in front of the server: it refuses startup options, as PgBouncer does.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use forebay_postgres::{ServerSettings, connect};

/// A proxy to a port, which refuses connections with startup parameters that PgBouncer does not know.
/// Returns its own port, and the names of the parameters that it saw.
fn pooler(port: u16) -> (u16, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let own = listener.local_addr().unwrap().port();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let names = Arc::clone(&seen);
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let mut client = client.unwrap();
            let Some((startup, named)) = startup(&mut client) else { continue };
            names.lock().unwrap().extend(named.iter().cloned());
            let known = ["user", "database", "client_encoding", "application_name"];
            if let Some(other) = named.iter().find(|name| !known.contains(&name.as_str())) {
                client
                    .write_all(&refusal(&format!("unsupported startup parameter: {other}")))
                    .unwrap();
                continue;
            }
            let server = TcpStream::connect(("127.0.0.1", port)).unwrap();
            (&server).write_all(&startup).unwrap();
            for (mut from, mut to) in
                [(client.try_clone().unwrap(), server.try_clone().unwrap()), (server, client)]
            {
                std::thread::spawn(move || {
                    // Either side may be closed first.
                    std::io::copy(&mut from, &mut to).ok();
                    to.shutdown(Shutdown::Both).ok();
                });
            }
        }
    });
    (own, seen)
}

/// The startup message of a connection, and the names of its parameters.
fn startup(client: &mut TcpStream) -> Option<(Vec<u8>, Vec<String>)> {
    let mut length = [0; 4];
    client.read_exact(&mut length).ok()?;
    let mut body = vec![0; u32::from_be_bytes(length) as usize - 4];
    client.read_exact(&mut body).ok()?;
    let texts: Vec<String> = body[4..]
        .split(|byte| *byte == 0)
        .map(|text| String::from_utf8_lossy(text).into_owned())
        .collect();
    let names = texts.chunks(2).map(|pair| pair[0].clone()).filter(|name| !name.is_empty());
    Some(([&length[..], &body].concat(), names.collect()))
}

fn refusal(message: &str) -> Vec<u8> {
    let mut fields = Vec::new();
    for (kind, text) in [(b'S', "FATAL"), (b'V', "FATAL"), (b'C', "08P01"), (b'M', message)] {
        fields.push(kind);
        fields.extend_from_slice(text.as_bytes());
        fields.push(0);
    }
    fields.push(0);
    let mut refusal = vec![b'E'];
    refusal.extend_from_slice(&(u32::try_from(fields.len()).unwrap() + 4).to_be_bytes());
    refusal.extend_from_slice(&fields);
    refusal
}

#[test]
fn a_pooler_that_refuses_startup_options_is_passed_with_the_same_settings() {
    let Some(server) = crate::pg::shared() else { return };
    let (port, seen) = pooler(server.port());
    let settings = ServerSettings {
        port,
        database: Some("postgres".to_owned()),
        statement_timeout: Some(std::time::Duration::from_secs(7)),
        ..ServerSettings::default()
    };
    let runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = { runtime }.worker_threads(1).enable_all().build().unwrap();
    let found = runtime.block_on(async {
        let client = connect::Server::new(&settings).unwrap().connect().await.unwrap();
        let mut found = Vec::new();
        for name in [
            "search_path",
            "DateStyle",
            "IntervalStyle",
            "TimeZone",
            "extra_float_digits",
            "bytea_output",
            "client_encoding",
            "statement_timeout",
            "tcp_keepalives_idle",
        ] {
            let row = client.query_one(&format!("show {name}"), &[]).await.unwrap();
            found.push(row.get::<_, String>(0));
        }
        found
    });
    assert_eq!(
        found,
        ["pg_catalog, pg_temp", "ISO, YMD", "postgres", "UTC", "1", "hex", "UTF8", "7s", "30"]
    );
    assert!(!seen.lock().unwrap().is_empty());
}
