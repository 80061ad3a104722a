//! Flags that set settings, shared by several commands.

use std::path::PathBuf;

use clap::Args;

use crate::config::{Flags, Resolved};
use crate::exit::{Coded, Exit};

const HEADING: &str = "Settings";

/// Data directory and configuration file, for every command that uses either.
#[derive(Args, Clone, Debug, Default)]
pub(super) struct DataArgs {
    /// Data directory, created if it does not exist [default: ./forebay-data].
    #[arg(long, value_name = "DIR", help_heading = HEADING)]
    data: Option<String>,
    /// Configuration file [default: ./forebay.toml if it exists; environment: FOREBAY_CONFIG].
    #[arg(long, value_name = "FILE", help_heading = HEADING)]
    config: Option<PathBuf>,
    /// Set a setting. May be repeated; `forebay config show` lists all settings.
    #[arg(long = "set", value_name = "KEY=VALUE", help_heading = HEADING)]
    set: Vec<String>,
}

/// Settings of the server that have flags.
#[derive(Args, Clone, Debug, Default)]
pub(super) struct ServerArgs {
    #[command(flatten)]
    data: DataArgs,
    /// Address and port to listen on; port 0 chooses a free port [default: 127.0.0.1:8090].
    #[arg(long, value_name = "ADDRESS", help_heading = HEADING)]
    listen: Option<String>,
    /// Allow listening on other than loopback addresses without API keys.
    #[arg(long, help_heading = HEADING)]
    insecure: bool,
    /// Number of worker threads; 0 uses one for each processor [default: 0].
    #[arg(long, value_name = "COUNT", help_heading = HEADING)]
    threads: Option<String>,
    /// Certificate chain in PEM; together with --tls-key it enables HTTPS.
    #[arg(long, value_name = "FILE", help_heading = HEADING)]
    tls_cert: Option<String>,
    /// Private key in PEM.
    #[arg(long, value_name = "FILE", help_heading = HEADING)]
    tls_key: Option<String>,
    /// When an upload is acknowledged: sync, interval:50ms or os [default: sync].
    #[arg(long, value_name = "WORD", help_heading = HEADING)]
    durability: Option<String>,
    /// Log level, or a filter such as info,forebay=debug [default: info].
    #[arg(long, value_name = "FILTER", help_heading = HEADING)]
    log: Option<String>,
    /// Log format: auto (human on a terminal, else JSON), human or json [default: auto].
    #[arg(long, value_name = "FORMAT", help_heading = HEADING)]
    log_format: Option<String>,
}

impl DataArgs {
    /// Returns all settings, with these flags on top.
    ///
    /// # Errors
    /// The configuration is not valid (exit code 2).
    pub(super) fn resolve(&self) -> anyhow::Result<Resolved> {
        resolve(self.flags()?)
    }

    /// Returns the flags alone, for a command that adds its own.
    ///
    /// # Errors
    /// A `--set` is not valid (exit code 2).
    pub(super) fn flags(&self) -> anyhow::Result<Flags> {
        let mut flags = Flags::with_file(self.config.clone());
        for given in &self.set {
            flags.set(given).map_err(wrong)?;
        }
        flags.note("data", "--data", self.data.clone());
        Ok(flags)
    }
}

impl ServerArgs {
    /// Returns all settings, with these flags on top.
    ///
    /// # Errors
    /// The configuration is not valid (exit code 2).
    pub(super) fn resolve(&self) -> anyhow::Result<Resolved> {
        let mut flags = self.data.flags()?;
        flags.note("server.listen", "--listen", self.listen.clone());
        flags.note("server.insecure", "--insecure", self.insecure.then(|| "true".to_owned()));
        flags.note("threads", "--threads", self.threads.clone());
        flags.note("server.tls_cert", "--tls-cert", self.tls_cert.clone());
        flags.note("server.tls_key", "--tls-key", self.tls_key.clone());
        flags.note("intake.durability", "--durability", self.durability.clone());
        flags.note("log", "--log", self.log.clone());
        flags.note("log_format", "--log-format", self.log_format.clone());
        resolve(flags)
    }
}

/// Returns all settings, with `flags` on top.
///
/// # Errors
/// The configuration is not valid (exit code 2).
pub(super) fn resolve(flags: Flags) -> anyhow::Result<Resolved> {
    // A variable that is not UTF-8 cannot be one of ours: their names and values are text.
    let env: Vec<_> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    Resolved::load(&flags, &env).map_err(wrong)
}

/// A configuration error ends the process with the usage code.
pub(super) fn wrong(error: impl Into<anyhow::Error>) -> anyhow::Error {
    Coded::wrap(Exit::Usage, "invalid configuration", error.into())
}
