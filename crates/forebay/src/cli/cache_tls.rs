//! TLS settings of clients of a cache.

use std::path::PathBuf;

use crate::cache_client::Trust;

#[derive(clap::Args, Debug)]
pub(super) struct TlsArgs {
    /// Connect with TLS.
    #[arg(long)]
    tls: bool,
    /// PEM file with the CA certificates to trust [default: the system's].
    #[arg(long, value_name = "FILE", requires = "tls")]
    tls_ca: Option<PathBuf>,
    /// Name in the server's certificate [default: the server's address].
    #[arg(long, value_name = "NAME", requires = "tls")]
    tls_name: Option<String>,
}

impl TlsArgs {
    /// Returns how to verify the server; nothing if TLS is not used.
    pub(super) fn trust(&self) -> Option<Trust> {
        self.tls.then(|| Trust { roots: self.tls_ca.clone(), name: self.tls_name.clone() })
    }
}
