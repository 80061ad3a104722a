//! Clients that follow documents, events or jobs have a share of the connections.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use crate::support::{Server, agent};

/// Sends a request whose response does not end, and reads its status line.
fn follow(server: &Server, path: &str) -> TcpStream {
    let mut client = server.connect();
    client.write_all(format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").as_bytes()).unwrap();
    let mut status = [0; 12];
    client.read_exact(&mut status).unwrap();
    assert_eq!(&status, b"HTTP/1.1 200", "{path}");
    client
}

#[test]
fn followers_leave_connections_to_uploads() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir, &["--set", "server.connections_max=8"]);
    let url = &server.url;
    let stored = agent().post(format!("{url}/v1/documents/a")).send(r#"{"n":1}"#).unwrap();
    assert_eq!(stored.status().as_u16(), 201);
    let queued = agent().put(format!("{url}/v1/files/a/queued?async=true")).send("1").unwrap();
    assert_eq!(queued.status().as_u16(), 202);
    let job = queued.headers()["location"].to_str().unwrap().to_owned();
    // A quarter of the connections.
    let documents = follow(&server, "/v1/documents/a?follow=true");
    let events = follow(&server, "/v1/events?follow=true&limit=1");
    for path in ["/v1/documents/a?follow=true", "/v1/events?follow=true", &format!("{job}/events")]
    {
        let refused = server.get(path);
        assert_eq!(refused.status, 429, "{path}: {}", refused.body);
        assert_eq!(refused.json()["error"]["code"], "too_many_followers", "{path}");
        assert!(refused.head.contains("retry-after: "), "{}", refused.head);
    }
    for count in 0..8 {
        let answer = agent().put(format!("{url}/v1/files/a/{count}")).send("content").unwrap();
        assert_eq!(answer.status().as_u16(), 201);
    }
    let metrics = server.get("/metrics").body;
    assert!(metrics.contains("\nforebay_http_followers 2\n"), "{metrics}");
    assert!(metrics.contains("\nforebay_http_followers_refused_total 3\n"), "{metrics}");
    drop((documents, events));
}
