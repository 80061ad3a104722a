//! A client that receives much and slowly, or sends much, among others.

use super::*;

/// Size of the large value: more than the buffers of a socket hold.
const SIZE: usize = 8 << 20;
const ROUNDS: usize = 40;

fn start_on_one_thread(way: Way) -> Server {
    start_with(way, |options| {
        options.threads = 1;
        options.threads_min = 1;
    })
}

/// Sets a flag at its end, also after a failure.
struct Sets<'a>(&'a AtomicBool);

impl Drop for Sets<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

#[test]
fn others_are_answered_while_a_client_receives_a_large_reply_in_parts() {
    for way in WAYS {
        let server = start_on_one_thread(way);
        let address = server.resp_address();
        let mut large = connect(address);
        let value = "v".repeat(SIZE);
        let request = format!("*3\r\n$3\r\nSET\r\n$5\r\nlarge\r\n${SIZE}\r\n{value}\r\n");
        ask(&mut large, &request, "+OK\r\n");
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let _over = Sets(&over);
            for _ in 0..8 {
                scope.spawn(|| {
                    let mut other = connect(address);
                    // One that is not answered fails after `HANG`.
                    while !over.load(Relaxed) {
                        ask(&mut other, "PING\r\n", "+PONG\r\n");
                    }
                    ask(&mut other, "PING\r\n", "+PONG\r\n");
                });
            }
            let mut part = vec![0; 8_000];
            for _ in 0..ROUNDS {
                large.write_all(b"GET large\r\n").unwrap();
                let mut left = format!("${SIZE}\r\n\r\n").len() + SIZE;
                while left > 0 {
                    let room = part.len().min(left);
                    left -= large.read(&mut part[..room]).unwrap();
                }
            }
        });
    }
}

#[test]
fn others_are_answered_while_a_client_sends_without_end() {
    for way in WAYS {
        let server = start_on_one_thread(way);
        let address = server.resp_address();
        let mut large = connect(address);
        let size = SIZE / 4;
        let value = "v".repeat(size);
        let request = format!("*3\r\n$3\r\nSET\r\n$5\r\nlarge\r\n${size}\r\n{value}\r\n");
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let _over = Sets(&over);
            scope.spawn(|| {
                while !over.load(Relaxed) {
                    large.write_all(request.as_bytes()).unwrap();
                }
            });
            // One that is not answered fails after `HANG`.
            let mut others = [connect(address), connect(address), connect(address)];
            for _ in 0..ROUNDS {
                for other in &mut others {
                    ask(other, "PING\r\n", "+PONG\r\n");
                }
            }
        });
    }
}
