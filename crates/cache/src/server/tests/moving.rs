//! Connections move between threads while they are used.

use std::sync::atomic::AtomicBool;

use super::*;

/// The modes in which connections move.
const MOVING: [Way; 2] = [WAYS[0], WAYS[1]];
const THREADS: usize = 3;

fn start(way: Way) -> Server {
    start_with(way, |options| (options.threads, options.threads_min) = (THREADS, 1))
}

/// Uses one thread, two, three, one... until the end.
fn shake(server: &Server, end: &AtomicBool) {
    let mut active = 1;
    while !end.load(Relaxed) {
        active = active % THREADS + 1;
        server.shared.balance.use_threads(active);
        let turns = || server.statistics().threads.iter().map(|it| it.turns).sum::<u64>();
        let before = turns();
        until("the threads have some turns", || end.load(Relaxed) || turns() > before + 20);
    }
}

fn taken(server: &Server) -> u64 {
    server.statistics().threads.iter().map(|thread| thread.taken).sum()
}

/// Pipelines in pieces: every reply is there, once and in order.
fn count_up(mut stream: TcpStream, key: &str, end: &AtomicBool) {
    let mut count = 0;
    while !end.load(Relaxed) {
        let request = format!("*2\r\n$4\r\nINCR\r\n${}\r\n{key}\r\n", key.len()).repeat(7);
        let answer: String = (count + 1..=count + 7).map(|count| format!(":{count}\r\n")).collect();
        let (first, second) = request.as_bytes().split_at(count % request.len());
        stream.write_all(first).unwrap();
        stream.write_all(second).unwrap();
        expect(&mut stream, &answer);
        count += 7;
    }
}

/// One client blocks on a list, the other pushes to it.
fn push_and_pop(mut pops: TcpStream, mut pushes: TcpStream, end: &AtomicBool) {
    let mut count = 0;
    while !end.load(Relaxed) {
        count += 1;
        pops.write_all(b"BLPOP queue 20\r\n").unwrap();
        ask(&mut pushes, &format!("RPUSH queue {count:06}\r\n"), ":1\r\n");
        expect(&mut pops, &format!("*2\r\n$5\r\nqueue\r\n$6\r\n{count:06}\r\n"));
    }
}

/// One client publishes, the other reads everything in order.
fn publish_and_read(mut reads: TcpStream, mut sends: TcpStream, end: &AtomicBool) {
    ask(&mut reads, "SUBSCRIBE news\r\n", "*3\r\n$9\r\nsubscribe\r\n$4\r\nnews\r\n:1\r\n");
    let mut count = 0;
    while !end.load(Relaxed) {
        count += 1;
        ask(&mut sends, &format!("PUBLISH news {count:06}\r\n"), ":1\r\n");
        let message = format!("*3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n$6\r\n{count:06}\r\n");
        expect(&mut reads, &message);
        if count % 5 == 0 {
            let pong = "*2\r\n$4\r\npong\r\n$0\r\n\r\n";
            ask(&mut reads, "PING\r\n", pong);
        }
    }
}

#[test]
fn replies_mail_and_blocked_commands_arrive_once_and_in_order_as_connections_move() {
    const COUNTERS: usize = 8;
    for way in MOVING {
        let server = start(way);
        let (end, stop_shaking) = (AtomicBool::new(false), AtomicBool::new(false));
        let connect = || connect(server.resp_address());
        std::thread::scope(|scope| {
            let (end, server) = (&end, &server);
            let mut clients = Vec::new();
            for number in 0..COUNTERS {
                let stream = connect();
                clients.push(scope.spawn(move || count_up(stream, &format!("c{number}"), end)));
            }
            let (pops, pushes) = (connect(), connect());
            clients.push(scope.spawn(move || push_and_pop(pops, pushes, end)));
            let (reads, sends) = (connect(), connect());
            clients.push(scope.spawn(move || publish_and_read(reads, sends, end)));
            let stop_shaking = &stop_shaking;
            let shaker = scope.spawn(move || shake(server, stop_shaking));
            let opened = COUNTERS as u64 + 4;
            until("every connection has moved many times", || {
                clients.iter().any(|client| client.is_finished()) || taken(server) > 10 * opened
            });
            end.store(true, Relaxed);
            clients.into_iter().for_each(|client| client.join().unwrap());
            stop_shaking.store(true, Relaxed);
            shaker.join().unwrap();
        });
        until("all are closed", || server.statistics().open == 0);
        assert!(server.statistics().threads.iter().all(|thread| thread.open == 0));
    }
}

#[test]
fn a_server_that_stops_as_connections_move_closes_each_of_them_once() {
    for way in MOVING {
        for _ in 0..10 {
            let server = start(way);
            let mut streams: Vec<_> = (0..20).map(|_| connect(server.resp_address())).collect();
            for (round, active) in [3, 1, 2, 3].into_iter().enumerate() {
                server.shared.balance.use_threads(active);
                for stream in &mut streams {
                    ask(stream, &format!("ECHO {round}\r\n"), &format!("$1\r\n{round}\r\n"));
                }
            }
            for stream in &mut streams {
                stream.write_all(b"PING\r\n").unwrap();
            }
            server.stop();
            assert_eq!(server.statistics().open, 0);
            assert_eq!(server.shared.engine.statistics().clients.load(Relaxed), 0);
        }
    }
}

#[test]
fn connections_gather_on_the_threads_in_use() {
    for way in MOVING {
        let server = start_with(way, |options| {
            (options.threads, options.threads_min) = (THREADS, THREADS);
        });
        let mut streams: Vec<_> = (0..9).map(|_| connect(server.resp_address())).collect();
        let open = || server.statistics().threads.iter().map(|it| it.open).collect::<Vec<_>>();
        until("they are shared out", || open() == [3, 3, 3]);
        server.shared.balance.use_threads(1);
        until("they have moved to the first", || {
            streams.iter_mut().for_each(|stream| ask(stream, "PING\r\n", "+PONG\r\n"));
            open() == [9, 0, 0]
        });
        assert_eq!(server.statistics().active, 1);
    }
}
