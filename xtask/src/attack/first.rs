//! The first start of a server, on a machine where something is in the way.

use std::net::TcpListener;

use anyhow::Context as _;

use super::stage::Stage;
use super::{Check, claim};

pub(super) const CHECKS: [Check; 1] = [Check::quick(
    "first-command",
    "a port in use is reported with its setting, and no partial data directory is left",
    taken,
)];

fn taken(stage: &Stage) -> anyhow::Result<String> {
    let taken = TcpListener::bind("127.0.0.1:0").context("cannot open a port")?;
    let taken = taken.local_addr().map(|address| (taken, address)).context("no address")?;
    let address = taken.1.to_string();
    let free = "127.0.0.1:0";
    for (number, setting) in ["server.listen", "cache.resp", "cache.text"].into_iter().enumerate() {
        let data = format!("data-{number}");
        let at = |name: &str| format!("{name}={}", if name == setting { &address } else { free });
        let (listen, resp, text) = (at("server.listen"), at("cache.resp"), at("cache.text"));
        let args = ["serve", "--data", &data, "--set", &listen, "--set", &resp, "--set", &text];
        let output = stage.run(&args, 20)?;
        let said = String::from_utf8_lossy(&output.stderr);
        let code = output.status.code();
        claim(code == Some(3), || {
            format!("{setting} in use: the server exited with {code:?}: {said}")
        })?;
        claim(said.contains(setting) && said.contains(&address), || {
            format!("{setting} in use: the message does not name it and {address}: {said}")
        })?;
        let left = stage.dir.join(&data);
        claim(!left.exists(), || format!("{setting} in use: {} is left", left.display()))?;
    }
    drop(taken);
    Ok(String::new())
}
