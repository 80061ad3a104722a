//! How the clients of a cache reach it over TLS.

use std::path::PathBuf;

use crate::cache_client::Trust;

#[derive(clap::Args, Debug)]
pub(super) struct TlsArgs {
    /// Speak over TLS, to the address given.
    #[arg(long)]
    tls: bool,
    /// PEM file with the certificates that may vouch for the server [default: the system's].
    #[arg(long, value_name = "FILE", requires = "tls")]
    tls_ca: Option<PathBuf>,
    /// The name the server's certificate is for [default: its address].
    #[arg(long, value_name = "NAME", requires = "tls")]
    tls_name: Option<String>,
}

impl TlsArgs {
    /// Whom to take for the server; nothing where TLS is not asked for.
    pub(super) fn trust(&self) -> Option<Trust> {
        self.tls.then(|| Trust { roots: self.tls_ca.clone(), name: self.tls_name.clone() })
    }
}
