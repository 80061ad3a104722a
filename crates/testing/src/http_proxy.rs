//! A proxy of HTTP that loses requests or answers, as a network does at the worst moment.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;

/// What becomes of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It is passed on, and so is its answer.
    Pass,
    /// It is passed on. The connection of the client ends once the server has answered.
    LoseAnswer,
    /// Half of its body is passed on. Both connections end then.
    CutBody,
    /// Nothing of it is passed on. The connection of the client ends.
    Lose,
    /// Nothing of it is passed on. It is answered with 503.
    Busy,
    /// It is passed on. Half of the body of its answer is, and the connection of the client ends.
    CutAnswer,
    /// It is passed on. A bit in the middle of the body of its answer is changed.
    AlterAnswer,
}

/// What [`Fate::Busy`] answers.
const BUSY: &[u8] = b"HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\n\r\n";

/// A proxy in front of a server on this machine, for requests and answers with a `Content-Length`.
#[derive(Debug)]
pub struct HttpProxy {
    port: u16,
}

impl HttpProxy {
    /// Starts one that runs until the process ends.
    ///
    /// * `to`: the port of the server.
    /// * `fate`: decides by the head and the body of a request what becomes of it.
    ///
    /// # Panics
    /// If it cannot listen.
    #[must_use]
    pub fn start(to: u16, fate: impl Fn(&str, &[u8]) -> Fate + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let fate = Arc::new(fate);
        std::thread::spawn(move || {
            while let Ok((client, _)) = listener.accept() {
                let fate = Arc::clone(&fate);
                std::thread::spawn(move || serve(&client, to, &*fate));
            }
        });
        Self { port }
    }

    /// Returns its port on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }
}

/// Serves the requests of one connection until one of them is lost.
fn serve(client: &TcpStream, to: u16, fate: &dyn Fn(&str, &[u8]) -> Fate) {
    client.set_nodelay(true).unwrap();
    let mut requests = BufReader::new(client);
    let server = TcpStream::connect(("127.0.0.1", to));
    let ended = server.and_then(|server| {
        server.set_nodelay(true)?;
        let mut answers = BufReader::new(&server);
        while let Some((head, body)) = message(&mut requests)? {
            let fate = fate(&head, &body);
            let mut client = client;
            match fate {
                Fate::Lose => break,
                Fate::Busy => {
                    client.write_all(BUSY)?;
                    continue;
                }
                Fate::CutBody => {
                    (&server).write_all(head.as_bytes())?;
                    (&server).write_all(body.get(..body.len() / 2).unwrap_or_default())?;
                    break;
                }
                Fate::Pass | Fate::LoseAnswer | Fate::CutAnswer | Fate::AlterAnswer => {
                    (&server).write_all(head.as_bytes())?;
                    (&server).write_all(&body)?;
                }
            }
            let Some((head, mut body)) = message(&mut answers)? else { break };
            if fate == Fate::LoseAnswer {
                break;
            }
            client.write_all(head.as_bytes())?;
            let half = body.len() / 2;
            if fate == Fate::CutAnswer {
                client.write_all(body.get(..half).unwrap_or_default())?;
                break;
            }
            if fate == Fate::AlterAnswer
                && let Some(byte) = body.get_mut(half)
            {
                *byte ^= 1;
            }
            client.write_all(&body)?;
        }
        server.shutdown(Shutdown::Both)
    });
    // Either side may have ended the connection.
    drop(ended);
    drop(client.shutdown(Shutdown::Both));
}

/// The next request or answer: its head and its body; `None` at the end.
fn message(from: &mut BufReader<&TcpStream>) -> std::io::Result<Option<(String, Vec<u8>)>> {
    let (mut head, mut size) = (String::new(), 0);
    loop {
        let start = head.len();
        if from.read_line(&mut head)? == 0 {
            return Ok(None);
        }
        let line = head.split_at(start).1.trim().to_ascii_lowercase();
        if let Some(length) = line.strip_prefix("content-length:") {
            size = length.trim().parse().map_err(std::io::Error::other)?;
        }
        if line.is_empty() {
            break;
        }
    }
    let mut body = vec![0; size];
    from.read_exact(&mut body)?;
    Ok(Some((head, body)))
}
