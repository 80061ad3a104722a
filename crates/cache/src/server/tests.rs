//! Connections over real sockets, in both modes.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use super::*;

/// Time after which a test hangs.
const HANG: Duration = Duration::from_secs(20);
/// Every mode. Where io_uring is not permitted, the first equals the second.
const WAYS: [Way; 3] = [
    Way { mode: Mode::PerConnection, network: Network::Automatic },
    Way { mode: Mode::PerConnection, network: Network::Epoll },
    Way { mode: Mode::Pooled { workers: 8 }, network: Network::Epoll },
];

#[derive(Clone, Copy, Debug)]
struct Way {
    mode: Mode,
    network: Network,
}

fn start_with(way: Way, change: impl FnOnce(&mut ServerOptions)) -> Server {
    let any = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
    let Way { mode, network } = way;
    let mut options = ServerOptions {
        resp: any,
        text: any,
        mode,
        network,
        threads: 2,
        threads_min: 2,
        ..ServerOptions::default()
    };
    change(&mut options);
    Server::start(Arc::new(Engine::in_memory(1)), &options).unwrap()
}

fn start(way: Way) -> Server {
    start_with(way, |_| {})
}

fn connect(address: Option<SocketAddr>) -> TcpStream {
    let stream = TcpStream::connect(address.unwrap()).unwrap();
    stream.set_read_timeout(Some(HANG)).unwrap();
    stream.set_write_timeout(Some(HANG)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// Reads exactly what is expected.
fn expect(stream: &mut TcpStream, expected: &str) {
    let mut bytes = vec![0; expected.len()];
    let mut at = 0;
    while at < bytes.len() {
        match stream.read(&mut bytes[at..]) {
            Ok(0) => break,
            Ok(count) => at += count,
            Err(error) => panic!("{error}: {:?}", String::from_utf8_lossy(&bytes[..at])),
        }
    }
    assert_eq!(String::from_utf8_lossy(&bytes[..at]), expected);
}

fn ask(stream: &mut TcpStream, request: &str, expected: &str) {
    stream.write_all(request.as_bytes()).unwrap();
    expect(stream, expected);
}

/// Waits for a change that other threads make.
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + HANG;
    while !holds() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::yield_now();
    }
}

fn is_closed(stream: &mut TcpStream) -> bool {
    match stream.read(&mut [0; 1]) {
        Ok(count) => count == 0,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    }
}

#[test]
fn a_pipeline_in_pieces_of_any_size_is_answered_in_order() {
    let request = b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$3\r\n123\r\nPING\r\n*2\r\n$3\r\nGET\r\n$1\r\na\r\n\r\nECHO \"x y\"\r\n";
    let answer = "+OK\r\n+PONG\r\n$3\r\n123\r\n$3\r\nx y\r\n";
    for way in WAYS {
        let server = start(way);
        let mut stream = connect(server.resp_address());
        for size in [1, 2, 3, 7, 20, request.len()] {
            for piece in request.chunks(size) {
                stream.write_all(piece).unwrap();
            }
            expect(&mut stream, answer);
        }
        until("all are counted", || {
            server.statistics().threads.iter().map(|it| it.commands).sum::<u64>() == 24
        });
    }
}

#[test]
fn a_client_that_leaves_after_its_blocked_command_or_a_large_reply_is_closed() {
    for way in WAYS {
        let server = start(way);
        let (mut pops, mut other) =
            (connect(server.resp_address()), connect(server.resp_address()));
        pops.write_all(b"BLPOP list 0\r\n").unwrap();
        until("it is blocked", || server.shared.engine.blocked() == 1);
        ask(&mut other, "RPUSH list a\r\n", ":1\r\n");
        expect(&mut pops, "*2\r\n$4\r\nlist\r\n$1\r\na\r\n");
        drop(pops);
        until("only the other is left", || server.statistics().open == 1);
        // A reply above the limit of unsent output also ends the turn's commands early.
        ask(&mut other, "SETRANGE big 2000000 x\r\n", ":2000001\r\n");
        let mut reads = connect(server.resp_address());
        reads.write_all(b"GET big\r\n").unwrap();
        reads.read_exact(&mut vec![0; "$2000001\r\n\r\n".len() + 2_000_001]).unwrap();
        drop(reads);
        until("only the other is left again", || server.statistics().open == 1);
    }
}

#[test]
fn a_pipeline_that_ends_with_more_than_may_wait_unsent_is_not_the_last_one() {
    for way in WAYS {
        let server = start(way);
        let mut stream = connect(server.resp_address());
        // Two of them exceed the limit of unsent output, so an even number ends the pipeline there.
        let value = "x".repeat(600 << 10);
        let set = format!("*3\r\n$3\r\nSET\r\n$3\r\nbig\r\n${}\r\n{value}\r\n", value.len());
        ask(&mut stream, &set, "+OK\r\n");
        let reply = format!("${}\r\n{value}\r\n", value.len());
        let mut bytes = vec![0; 8 * reply.len()];
        // The kernel's send buffer grows with use, until it accepts such a reply at once.
        for _ in 0..40 {
            stream.write_all(&b"GET big\r\n".repeat(8)).unwrap();
            stream.read_exact(&mut bytes).unwrap();
            ask(&mut stream, "PING\r\n", "+PONG\r\n");
        }
        assert!(bytes.chunks(reply.len()).all(|found| found == reply.as_bytes()));
    }
}

#[test]
fn arguments_and_replies_larger_than_every_buffer_pass_whole() {
    for way in WAYS {
        let server = start(way);
        let mut stream = connect(server.resp_address());
        let value = "0123456789abcdef".repeat(20 << 16);
        let head = format!("*3\r\n$3\r\nSET\r\n$3\r\nbig\r\n${}\r\n", value.len());
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(value.as_bytes()).unwrap();
        ask(&mut stream, "\r\n", "+OK\r\n");
        // Twice in a pipeline: the second reply exceeds the limit of unsent output.
        stream.write_all(b"GET big\r\nGET big\r\nPING\r\n").unwrap();
        for _ in 0..2 {
            expect(&mut stream, &format!("${}\r\n", value.len()));
            let mut bytes = vec![0; value.len()];
            stream.read_exact(&mut bytes).unwrap();
            assert!(bytes == value.as_bytes());
            expect(&mut stream, "\r\n");
        }
        expect(&mut stream, "+PONG\r\n");
    }
}

#[test]
fn more_clients_at_once_than_there_are_buffers_for_input_are_all_answered() {
    for way in WAYS {
        let server = start_with(way, |options| options.threads = 1);
        let mut streams: Vec<_> = (0..600).map(|_| connect(server.resp_address())).collect();
        let value = "v".repeat(20_000);
        for round in 0..3 {
            for (number, stream) in streams.iter_mut().enumerate() {
                let request = format!("SET {number} {round}{value}\r\nSTRLEN {number}\r\n");
                stream.write_all(request.as_bytes()).unwrap();
            }
            for stream in &mut streams {
                expect(stream, "+OK\r\n:20001\r\n");
            }
        }
    }
}

#[test]
fn io_uring_serves_exactly_where_it_can_be_had() {
    let permitted = io_uring::IoUring::new(8).is_ok();
    let server = start(WAYS[0]);
    ask(&mut connect(server.resp_address()), "PING\r\n", "+PONG\r\n");
    assert_eq!(server.statistics().uring, permitted);
    assert!(!start(WAYS[1]).statistics().uring);
}

#[test]
fn a_client_that_breaks_the_protocol_gets_an_error_and_is_closed_and_others_stay() {
    for way in WAYS {
        let server = start(way);
        let (mut good, mut bad) = (connect(server.resp_address()), connect(server.resp_address()));
        ask(&mut bad, "PING\r\n", "+PONG\r\n");
        ask(&mut bad, "*1\r\nPING\r\n", "-ERR Protocol error: expected '$', got 'P'\r\n");
        assert!(is_closed(&mut bad));
        ask(&mut good, "PING\r\n", "+PONG\r\n");
        assert_eq!(server.statistics().protocol_errors, 1);
        until("one is left", || server.statistics().open == 1);
    }
}

#[test]
fn connections_spread_evenly_over_the_threads() {
    let server = start_with(WAYS[0], |options| (options.threads, options.threads_min) = (4, 4));
    let mut streams: Vec<TcpStream> = (0..40).map(|_| connect(server.resp_address())).collect();
    for stream in &mut streams {
        ask(stream, "PING\r\n", "+PONG\r\n");
    }
    let open: Vec<usize> = server.statistics().threads.iter().map(|it| it.open).collect();
    assert_eq!(open, [10, 10, 10, 10]);
    drop(streams);
    until("all are gone", || server.statistics().open == 0);
}

#[test]
fn one_connection_too_many_gets_an_error_and_room_is_given_again() {
    for way in WAYS {
        let server = start(way);
        server.shared.engine.config().clients_max.store(2, Relaxed);
        let mut streams = [connect(server.resp_address()), connect(server.text_address())];
        ask(&mut streams[0], "PING\r\n", "+PONG\r\n");
        ask(&mut streams[1], "GET a\n", "NULL\n");
        let mut refused = connect(server.resp_address());
        expect(&mut refused, "-ERR max number of clients reached\r\n");
        assert!(is_closed(&mut refused));
        let mut refused = connect(server.text_address());
        expect(&mut refused, "ERROR max number of clients reached\n");
        assert_eq!(server.statistics().refused, 2);
        streams[0].shutdown(Shutdown::Both).unwrap();
        until("one has left", || server.statistics().open == 1);
        ask(&mut connect(server.resp_address()), "PING\r\n", "+PONG\r\n");
    }
}

#[test]
fn a_wait_for_a_key_ends_by_another_thread_or_by_its_time() {
    for way in WAYS {
        let server = start(way);
        let (mut waiting, mut giving) =
            (connect(server.resp_address()), connect(server.resp_address()));
        // What follows the blocked command in the pipeline waits as well.
        waiting.write_all(b"BLPOP list 0\r\nPING\r\n").unwrap();
        until("it waits", || server.shared.engine.blocked() == 1);
        ask(&mut giving, "RPUSH list value\r\n", ":1\r\n");
        expect(&mut waiting, "*2\r\n$4\r\nlist\r\n$5\r\nvalue\r\n+PONG\r\n");
        ask(&mut waiting, "BLPOP list 0.01\r\nPING\r\n", "*-1\r\n+PONG\r\n");
    }
}

#[test]
fn a_client_that_hangs_up_while_waiting_is_removed() {
    for way in WAYS {
        let server = start(way);
        let mut waiting = connect(server.resp_address());
        waiting.write_all(b"BLPOP list 0\r\n").unwrap();
        until("it waits", || server.statistics().threads.iter().any(|it| it.commands == 1));
        drop(waiting);
        until("it is gone", || server.statistics().open == 0);
    }
}

#[test]
fn replies_to_a_client_that_closed_its_half_are_still_sent() {
    for way in WAYS {
        let server = start(way);
        let mut stream = connect(server.text_address());
        stream.write_all(b"SET key \"a value\"\nGET key\nDEL key\nGET key").unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert_eq!(answer, "OK\na value\nOK\nNULL\n");
    }
}

#[test]
fn a_consumer_that_reads_nothing_is_cut_and_holds_little() {
    for way in WAYS {
        let server = start(way);
        let mut stream = connect(server.resp_address());
        let value = "v".repeat(1 << 20);
        let set = format!("*3\r\n$3\r\nSET\r\n$3\r\nbig\r\n${}\r\n{value}\r\n", value.len());
        ask(&mut stream, &set, "+OK\r\n");
        server.shared.engine.config().output_max.store(1 << 16, Relaxed);
        // Far more than the kernel's buffers hold.
        stream.write_all("GET big\r\n".repeat(64).as_bytes()).unwrap();
        until("it is cut", || server.statistics().open == 0);
        assert_eq!(server.statistics().slow_closed, 1);
    }
}

#[test]
fn a_line_too_long_ends_the_connection() {
    for way in WAYS {
        let server = start(way);
        server.shared.engine.config().line_max.store(1_000, Relaxed);
        let mut stream = connect(server.text_address());
        ask(&mut stream, &format!("SET a {}\n", "x".repeat(993)), "OK\n");
        stream.write_all(format!("SET a {}\n", "x".repeat(994)).as_bytes()).unwrap();
        expect(&mut stream, "ERROR line too long\n");
        assert!(is_closed(&mut stream));
    }
}

#[test]
fn a_silent_text_connection_is_closed_after_its_time() {
    for way in WAYS {
        let server = start_with(way, |options| {
            options.limits.text_idle_timeout = Duration::from_millis(1);
        });
        let mut stream = connect(server.text_address());
        ask(&mut stream, "GET a\n", "NULL\n");
        assert!(is_closed(&mut stream));
        assert_eq!(server.statistics().idle_closed, 1);
    }
}

#[test]
fn a_stop_under_load_answers_whole_replies_and_ends_every_thread() {
    for way in WAYS {
        let server = start(way);
        let address = server.resp_address();
        let clients: Vec<_> = (0..8)
            .map(|_| {
                std::thread::spawn(move || {
                    let mut stream = connect(address);
                    let mut answered = 0_u64;
                    loop {
                        if stream.write_all(b"PING\r\nPING\r\n").is_err() {
                            return answered;
                        }
                        let mut bytes = [0; 14];
                        match stream.read_exact(&mut bytes) {
                            Ok(()) => assert_eq!(&bytes, b"+PONG\r\n+PONG\r\n"),
                            Err(_) => return answered,
                        }
                        answered += 1;
                    }
                })
            })
            .collect();
        until("all are served", || {
            let statistics = server.statistics();
            statistics.open == 8 && statistics.threads.iter().any(|it| it.commands > 1_000)
        });
        server.stop();
        let answered: u64 = clients.into_iter().map(|client| client.join().unwrap()).sum();
        assert!(answered > 0);
        assert_eq!(server.statistics().open, 0);
        assert!(TcpStream::connect(address.unwrap()).is_err(), "nothing listens any more");
    }
}

#[test]
fn an_address_in_use_is_reported_with_its_protocol() {
    let server = start(WAYS[0]);
    let options = ServerOptions { resp: server.resp_address(), ..ServerOptions::default() };
    let error = Server::start(Arc::new(Engine::in_memory(1)), &options).unwrap_err();
    let text = error.to_string();
    assert!(text.ends_with("for RESP") && text.starts_with("cannot listen on 127.0.0.1"), "{text}");
}

#[test]
fn the_pool_shows_its_size_and_a_wait_holds_no_worker() {
    let server = start(Way { mode: Mode::Pooled { workers: 4 }, network: Network::Epoll });
    let mut waiting: Vec<TcpStream> = (0..16).map(|_| connect(server.resp_address())).collect();
    for stream in &mut waiting {
        stream.write_all(b"BLPOP list 0\r\n").unwrap();
    }
    until("all wait", || server.statistics().threads.iter().any(|it| it.commands == 16));
    ask(&mut connect(server.resp_address()), "PING\r\n", "+PONG\r\n");
    until("no worker is busy", || {
        let pool = server.statistics().pool.unwrap();
        (pool.busy, pool.queued) == (0, 0)
    });
    let pool = server.statistics().pool.unwrap();
    assert_eq!(pool.workers, 4);
    assert!(pool.tasks >= 16);
    drop(waiting);
}

mod aside;
mod http;
mod moving;
mod order;
mod slow;

mod over_tls {
    use super::*;
    use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName};
    use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, StreamOwned};

    struct Keys {
        certificate: CertificateDer<'static>,
        config: Arc<ServerConfig>,
    }

    fn keys() -> Keys {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let certificate = made.cert.der().clone();
        let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.clone()], key.into())
            .unwrap();
        Keys { certificate, config: Arc::new(config) }
    }

    fn start_tls(way: Way, source: TlsSource) -> Server {
        start_with(way, |options| {
            let any = options.resp;
            options.tls = Some(TlsOptions { resp: any, text: any, source });
        })
    }

    fn client(
        address: Option<SocketAddr>,
        keys: &Keys,
    ) -> StreamOwned<ClientConnection, TcpStream> {
        let mut roots = RootCertStore::empty();
        roots.add(keys.certificate.clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from("localhost").unwrap();
        let session = ClientConnection::new(Arc::new(config), name).unwrap();
        StreamOwned::new(session, connect(address))
    }

    fn ask_sealed(
        stream: &mut StreamOwned<ClientConnection, TcpStream>,
        request: &[u8],
        expected: &[u8],
    ) {
        stream.write_all(request).unwrap();
        let mut bytes = vec![0; expected.len()];
        stream.read_exact(&mut bytes).unwrap();
        assert!(bytes == expected, "{}", String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn both_protocols_serve_values_of_any_size() {
        for way in WAYS {
            let keys = keys();
            let config = Arc::clone(&keys.config);
            let server = start_tls(way, TlsSource::new(move || Arc::clone(&config)));
            let mut resp = client(server.tls_resp_address(), &keys);
            ask_sealed(&mut resp, b"SET small 1\r\nGET small\r\n", b"+OK\r\n$1\r\n1\r\n");
            let value = "0123456789abcdef".repeat(20 << 12);
            let head = format!("*3\r\n$3\r\nSET\r\n$3\r\nbig\r\n${}\r\n{value}\r\n", value.len());
            ask_sealed(&mut resp, head.as_bytes(), b"+OK\r\n");
            let whole = format!("${}\r\n{value}\r\n+PONG\r\n", value.len());
            ask_sealed(&mut resp, b"GET big\r\nPING\r\n", whole.as_bytes());
            let mut text = client(server.tls_text_address(), &keys);
            ask_sealed(&mut text, b"GET small\n", b"1\n");
            ask_sealed(&mut resp, b"QUIT\r\n", b"+OK\r\n");
            // A complete end, sent by the session itself, which an attacker who cuts the stream
            // cannot forge.
            assert_eq!(resp.read(&mut [0; 1]).unwrap(), 0);
        }
    }

    #[test]
    fn http_inside_tls_runs_no_command_either() {
        for way in WAYS {
            let keys = keys();
            let config = Arc::clone(&keys.config);
            let server = start_tls(way, TlsSource::new(move || Arc::clone(&config)));
            let mut good = client(server.tls_resp_address(), &keys);
            ask_sealed(&mut good, b"SET kept 1\r\n", b"+OK\r\n");
            for address in [server.tls_resp_address(), server.tls_text_address()] {
                let mut page = client(address, &keys);
                page.write_all(b"POST / HTTP/1.1\r\nHost: a\r\n\r\nFLUSHALL\r\n").unwrap();
                // The session is closed properly, or the connection reset: there is no reply.
                assert_eq!(page.read(&mut [0; 1]).unwrap_or(0), 0);
            }
            ask_sealed(&mut good, b"GET kept\r\n", b"$1\r\n1\r\n");
            assert_eq!(server.statistics().http_refused, 2);
        }
    }

    #[test]
    fn a_client_without_tls_is_closed_and_others_stay() {
        for way in WAYS {
            let keys = keys();
            let config = Arc::clone(&keys.config);
            let server = start_tls(way, TlsSource::new(move || Arc::clone(&config)));
            let mut good = client(server.tls_resp_address(), &keys);
            ask_sealed(&mut good, b"PING\r\n", b"+PONG\r\n");
            let mut plain = connect(server.tls_resp_address());
            plain.write_all(b"*1\r\n$4\r\nPING\r\n").unwrap();
            let mut received = Vec::new();
            plain.read_to_end(&mut received).unwrap_or_default();
            assert!(!received.windows(4).any(|it| it == b"PONG"));
            until("it is counted", || server.statistics().protocol_errors == 1);
            ask_sealed(&mut good, b"PING\r\n", b"+PONG\r\n");
        }
    }

    #[test]
    fn a_renewed_certificate_serves_the_next_connection() {
        let (old, new) = (keys(), keys());
        let current = Arc::new(parking_lot::Mutex::new(Arc::clone(&old.config)));
        let asked = Arc::clone(&current);
        let server = start_tls(WAYS[0], TlsSource::new(move || Arc::clone(&asked.lock())));
        let mut first = client(server.tls_resp_address(), &old);
        ask_sealed(&mut first, b"PING\r\n", b"+PONG\r\n");
        *current.lock() = Arc::clone(&new.config);
        ask_sealed(&mut client(server.tls_resp_address(), &new), b"PING\r\n", b"+PONG\r\n");
        ask_sealed(&mut first, b"PING\r\n", b"+PONG\r\n");
    }
}

#[test]
fn buffers_are_counted_while_they_hold_something_and_not_after() {
    for way in WAYS {
        let server = start(way);
        let counted = || server.shared.engine.clients_memory();
        let mut stream = connect(server.resp_address());
        stream.write_all(b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$100000\r\n").unwrap();
        stream.write_all(&[b'x'; 60_000]).unwrap();
        until("half a request is held", || counted() >= 60_000);
        stream.write_all(&[b'x'; 40_000]).unwrap();
        ask(&mut stream, "\r\n", "+OK\r\n");
        until("nothing is held", || counted() == 0);
    }
}
