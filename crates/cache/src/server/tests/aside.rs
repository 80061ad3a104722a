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

/// Size of a value that another thread prepares, and of a reply that it makes.
const LONG: usize = (8 << 20) + 5;

/// A long value of bytes that compress well, or not at all.
fn long(compresses: bool) -> Vec<u8> {
    let mut state = 7u64;
    let byte = |at: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        if compresses { b"abcdefghijklmnopqrstuvw"[at % 23] } else { state.to_le_bytes()[5] }
    };
    (0..LONG).map(byte).collect()
}

fn command(words: &[&[u8]]) -> Vec<u8> {
    let mut request = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        request.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        request.extend_from_slice(word);
        request.extend_from_slice(b"\r\n");
    }
    request
}

fn bulk(value: &[u8]) -> Vec<u8> {
    [format!("${}\r\n", value.len()).as_bytes(), value, b"\r\n"].concat()
}

/// Sends commands in one piece and compares their replies.
fn exchange(stream: &mut TcpStream, commands: &[Vec<u8>], replies: &[Vec<u8>]) {
    let mut replies_read = vec![0; replies.iter().map(Vec::len).sum()];
    std::thread::scope(|scope| {
        let mut sender = stream.try_clone().unwrap();
        scope.spawn(move || sender.write_all(&commands.concat()).unwrap());
        stream.read_exact(&mut replies_read).unwrap();
    });
    assert!(replies_read == replies.concat(), "the replies are not those expected");
}

#[test]
fn long_values_are_stored_and_returned_whole_among_other_commands() {
    let (text, noise) = (long(true), long(false));
    for way in WAYS {
        let server = start(way);
        let mut stream = connect(server.resp_address());
        exchange(
            &mut stream,
            &[
                command(&[b"SET", b"text", &text]),
                command(&[b"GETRANGE", b"text", b"2000000", b"2000009"]),
                command(&[b"MSET", b"noise", &noise, b"short", b"s", b"again", &text]),
                command(&[b"GET", b"short"]),
                command(&[b"GET", b"noise"]),
                command(&[b"GET", b"text"]),
                command(&[b"GETRANGE", b"again", b"1", b"-2"]),
                command(&[b"BITPOS", b"noise", b"1", b"3000000"]),
                command(&[b"PING"]),
            ],
            &[
                b"+OK\r\n".to_vec(),
                bulk(&text[2_000_000..2_000_010]),
                b"+OK\r\n".to_vec(),
                bulk(b"s"),
                bulk(&noise),
                bulk(&text),
                bulk(&text[1..LONG - 1]),
                format!(":{}\r\n", first_bit(&noise, 3_000_000)).into_bytes(),
                b"+PONG\r\n".to_vec(),
            ],
        );
    }
}

fn first_bit(value: &[u8], from: usize) -> usize {
    let at = (from..value.len()).find(|&at| value[at] != 0).unwrap();
    at * 8 + value[at].leading_zeros() as usize
}

#[test]
fn a_long_value_of_a_client_that_closed_its_half_is_stored() {
    let noise = long(false);
    for way in WAYS {
        let server = start(way);
        let mut stream = connect(server.resp_address());
        stream.write_all(&command(&[b"SET", b"noise", &noise])).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        expect(&mut stream, "+OK\r\n");
        assert!(is_closed(&mut stream), "{way:?}");
        let mut other = connect(server.resp_address());
        exchange(&mut other, &[command(&[b"GET", b"noise"])], &[bulk(&noise)]);
    }
}

#[test]
fn a_client_with_a_long_value_that_is_unblocked_or_leaves_disturbs_no_other() {
    let text = long(true);
    for way in WAYS {
        let server = start(way);
        let mut other = connect(server.resp_address());
        for round in 0..4 {
            let mut stream = connect(server.resp_address());
            stream.write_all(b"CLIENT ID\r\n").unwrap();
            let mut id = [0; 32];
            let count = stream.read(&mut id).unwrap();
            let id = String::from_utf8_lossy(&id[1..count - 2]).into_owned();
            stream.write_all(&command(&[b"SET", b"text", &text])).unwrap();
            for _ in 0..20 {
                other.write_all(format!("CLIENT UNBLOCK {id}\r\n").as_bytes()).unwrap();
                expect(&mut other, ":0\r\n");
            }
            if round % 2 == 0 {
                expect(&mut stream, "+OK\r\n");
                exchange(&mut other, &[command(&[b"GET", b"text"])], &[bulk(&text)]);
            }
        }
        until("only the other is left", || {
            ask(&mut other, "PING\r\n", "+PONG\r\n");
            server.statistics().open == 1
        });
    }
}
