//! A proxy between a sink and its server that cuts the connection at a chosen request.

#![expect(clippy::unwrap_used, reason = "what a test sets up itself either works or ends the test")]

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// Which request, and how far it gets.
#[derive(Debug, Clone, Copy)]
pub struct Cut {
    /// What is in the request.
    pub request: &'static [u8],
    /// Whether the server receives it and answers; the answer is lost either way.
    pub arrives: bool,
}

/// Forwards bytes until a cut is requested.
#[derive(Debug)]
pub struct Proxy {
    /// Its port on this machine.
    pub port: u16,
    cut: Arc<Mutex<Option<Cut>>>,
}

impl Proxy {
    /// One before the server at a port of this machine.
    ///
    /// # Panics
    /// If no port is free.
    pub fn before(server: u16) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let cut = Arc::new(Mutex::new(None));
        let requested = Arc::clone(&cut);
        thread::spawn(move || {
            for client in listener.incoming() {
                let (client, requested) = (client.unwrap(), Arc::clone(&requested));
                // A server that is down is a connection that ends.
                if let Ok(server) = TcpStream::connect(("127.0.0.1", server)) {
                    client.set_nodelay(true).unwrap();
                    server.set_nodelay(true).unwrap();
                    thread::spawn(move || forward(client, server, &requested));
                }
            }
        });
        Proxy { port, cut }
    }

    /// Cuts at the next such request, once.
    ///
    /// # Panics
    /// If a thread of the proxy has panicked, as all of its methods.
    pub fn cut(&self, cut: Cut) {
        *self.cut.lock().unwrap() = Some(cut);
    }

    /// Whether the cut that was asked for has been made.
    ///
    /// # Panics
    /// As [`cut`](Self::cut).
    #[must_use]
    pub fn has_cut(&self) -> bool {
        self.cut.lock().unwrap().is_none()
    }
}

/// Passes on what a client sends, and in a separate thread what the server answers, until one of them
/// is done or the connection is to be cut.
fn forward(mut client: TcpStream, mut server: TcpStream, cut: &Mutex<Option<Cut>>) {
    let is_cut = Arc::new(Mutex::new(false));
    let (answers, answered, mute) =
        (server.try_clone().unwrap(), client.try_clone().unwrap(), Arc::clone(&is_cut));
    let back = thread::spawn(move || answer(answers, answered, &mute));
    let mut buffer = vec![0; 1 << 20];
    while let Ok(length @ 1..) = client.read(&mut buffer) {
        let request = &buffer[..length];
        let mut requested = cut.lock().unwrap();
        let found =
            requested.filter(|cut| request.windows(cut.request.len()).any(|it| it == cut.request));
        if let Some(found) = found {
            *requested = None;
            *is_cut.lock().unwrap() = true;
            drop(requested);
            if found.arrives && server.write_all(request).is_ok() {
                // It ends the connection once it has an answer.
                back.join().unwrap();
            }
            break;
        }
        drop(requested);
        if server.write_all(request).is_err() {
            break;
        }
    }
    // Either may be gone already.
    for end in [client, server] {
        drop(end.shutdown(Shutdown::Both));
    }
}

fn answer(mut server: TcpStream, mut client: TcpStream, is_cut: &Mutex<bool>) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(length @ 1..) = server.read(&mut buffer) {
        if *is_cut.lock().unwrap() || client.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    for end in [client, server] {
        drop(end.shutdown(Shutdown::Both));
    }
}
