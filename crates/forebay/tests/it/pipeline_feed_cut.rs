//! A proxy that loses answers: it passes requests on and cuts connections while their answers arrive.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use forebay_base::fs::sim::Rng;

use super::support::HANG;

/// A running proxy.
pub(crate) struct Cutting {
    address: SocketAddr,
    cuts: Arc<AtomicU64>,
    is_ended: Arc<AtomicBool>,
}

impl Cutting {
    /// Starts one in front of a server. Of the connections, a third passes everything.
    pub(crate) fn start(server: SocketAddr, seed: u64) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let cutting = Self { address, cuts: Arc::default(), is_ended: Arc::default() };
        let (cuts, ended) = (Arc::clone(&cutting.cuts), Arc::clone(&cutting.is_ended));
        let mut random = Rng::new(seed);
        std::thread::spawn(move || {
            for client in listener.incoming() {
                if ended.load(Ordering::Relaxed) {
                    return;
                }
                let Ok(client) = client else { continue };
                let keep = (random.below(3) > 0).then(|| random.below(1500));
                let cuts = Arc::clone(&cuts);
                std::thread::spawn(move || pass(client, server, keep, &cuts));
            }
        });
        cutting
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Number of connections that were cut.
    pub(crate) fn cuts(&self) -> u64 {
        self.cuts.load(Ordering::Relaxed)
    }
}

impl Drop for Cutting {
    fn drop(&mut self) {
        self.is_ended.store(true, Ordering::Relaxed);
        drop(TcpStream::connect(self.address));
    }
}

/// Passes a connection on; cuts it after this many bytes of answers.
fn pass(client: TcpStream, server: SocketAddr, keep: Option<usize>, cuts: &AtomicU64) {
    let Ok(upstream) = TcpStream::connect(server) else { return };
    upstream.set_read_timeout(Some(HANG)).unwrap();
    let (Ok(mut from), Ok(mut to)) = (client.try_clone(), upstream.try_clone()) else { return };
    let requests = std::thread::spawn(move || {
        std::io::copy(&mut from, &mut to).unwrap_or_default();
        // Until the server has answered what it has.
        to.shutdown(Shutdown::Write).unwrap_or_default();
    });
    let (mut upstream, mut client) = (upstream, client);
    let (mut buffer, mut left) = ([0; 512], keep.unwrap_or(usize::MAX));
    while let Ok(read @ 1..) = upstream.read(&mut buffer) {
        let part = left.min(read);
        let is_sent = client.write_all(&buffer[..part]).is_ok();
        left -= part;
        if left == 0 {
            cuts.fetch_add(1, Ordering::Relaxed);
        }
        if left == 0 || !is_sent {
            break;
        }
    }
    client.shutdown(Shutdown::Both).unwrap_or_default();
    upstream.shutdown(Shutdown::Both).unwrap_or_default();
    requests.join().unwrap_or_default();
}
