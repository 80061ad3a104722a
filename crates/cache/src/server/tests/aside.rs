//! Commands that have their work done by another thread, among others on the same connection.

use super::*;

const SIZE: usize = 2 << 20;

fn fill(stream: &mut TcpStream) {
    for (key, letter) in [("one", "a"), ("other", "b")] {
        let value = letter.repeat(SIZE);
        let length = key.len();
        let request = format!("*3\r\n$3\r\nSET\r\n${length}\r\n{key}\r\n${SIZE}\r\n{value}\r\n");
        ask(stream, &request, "+OK\r\n");
    }
}

#[test]
fn the_commands_behind_it_run_afterwards() {
    for way in WAYS {
        let server = start(way);
        let mut stream = connect(server.resp_address());
        fill(&mut stream);
        let commands = "BITOP XOR made one other\r\nSTRLEN made\r\nBITCOUNT made\r\n\
                        SETRANGE one 9 xyz\r\nGETRANGE one 8 12\r\nDEL made\r\nPING\r\n";
        let bits = 2 * SIZE;
        let replies =
            format!(":{SIZE}\r\n:{SIZE}\r\n:{bits}\r\n:{SIZE}\r\n$5\r\naxyza\r\n:1\r\n+PONG\r\n");
        ask(&mut stream, commands, &replies);
    }
}

#[test]
fn a_client_that_closed_its_half_meanwhile_still_gets_its_replies() {
    for way in WAYS {
        let server = start(way);
        let mut stream = connect(server.resp_address());
        fill(&mut stream);
        stream.write_all(b"BITOP XOR made one other\r\nSTRLEN made\r\n").unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        expect(&mut stream, &format!(":{SIZE}\r\n:{SIZE}\r\n"));
        assert!(is_closed(&mut stream), "{way:?}");
    }
}

#[test]
fn a_client_that_leaves_meanwhile_is_removed() {
    let server = start(WAYS[0]);
    let mut stream = connect(server.resp_address());
    fill(&mut stream);
    stream.write_all(b"BITOP XOR made one other\r\n").unwrap();
    drop(stream);
    let mut other = connect(server.resp_address());
    until("the client is gone", || {
        ask(&mut other, "PING\r\n", "+PONG\r\n");
        server.statistics().open == 1
    });
}
