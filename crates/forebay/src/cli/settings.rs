//! Flags that set settings, shared by the commands that read them.

use std::path::PathBuf;

use clap::Args;

use crate::config::{Flags, Resolved};
use crate::exit::{Coded, Exit};

const HEADING: &str = "Settings";

/// Where the data and the configuration are: for every command that touches either.
#[derive(Args, Clone, Debug, Default)]
pub(super) struct DataArgs {
    /// Directory that holds everything; made when missing [default: ./forebay-data].
    #[arg(long, value_name = "DIR", help_heading = HEADING)]
    data: Option<String>,
    /// Configuration file [default: ./forebay.toml if it is there; environment: FOREBAY_CONFIG].
    #[arg(long, value_name = "FILE", help_heading = HEADING)]
    config: Option<PathBuf>,
    /// Set any setting, as often as needed; `forebay config show` lists them.
    #[arg(long = "set", value_name = "KEY=VALUE", help_heading = HEADING)]
    set: Vec<String>,
}

/// Everything the server can be told on its command line.
#[derive(Args, Clone, Debug, Default)]
pub(super) struct ServerArgs {
    #[command(flatten)]
    data: DataArgs,
    /// Address and port; port 0 takes a free one [default: 127.0.0.1:8090].
    #[arg(long, value_name = "ADDRESS", help_heading = HEADING)]
    listen: Option<String>,
    /// Allow listening beyond this machine with neither API keys nor TLS.
    #[arg(long, help_heading = HEADING)]
    insecure: bool,
    /// Worker threads; 0 takes one a core [default: 0].
    #[arg(long, value_name = "COUNT", help_heading = HEADING)]
    threads: Option<String>,
    /// Certificate chain in PEM; with --tls-key the server speaks HTTPS.
    #[arg(long, value_name = "FILE", help_heading = HEADING)]
    tls_cert: Option<String>,
    /// Private key in PEM.
    #[arg(long, value_name = "FILE", help_heading = HEADING)]
    tls_key: Option<String>,
    /// When an upload is acknowledged: sync, interval:50ms or os [default: sync].
    #[arg(long, value_name = "WORD", help_heading = HEADING)]
    durability: Option<String>,
    /// A level or a filter such as info,forebay=debug [default: info].
    #[arg(long, value_name = "FILTER", help_heading = HEADING)]
    log: Option<String>,
    /// auto, human or json [default: auto: human on a terminal, JSON otherwise].
    #[arg(long, value_name = "FORMAT", help_heading = HEADING)]
    log_format: Option<String>,
}

impl DataArgs {
    /// All settings, with these flags on top.
    ///
    /// # Errors
    /// The configuration is wrong (exit code 2).
    pub(super) fn resolve(&self) -> anyhow::Result<Resolved> {
        resolve(self.flags()?)
    }

    /// The flags alone, for a command that adds its own.
    ///
    /// # Errors
    /// A `--set` is wrong (exit code 2).
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
    /// All settings, with these flags on top.
    ///
    /// # Errors
    /// The configuration is wrong (exit code 2).
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

/// All settings, with `flags` on top.
///
/// # Errors
/// The configuration is wrong (exit code 2).
pub(super) fn resolve(flags: Flags) -> anyhow::Result<Resolved> {
    // A variable that is not UTF-8 cannot be one of ours: their names and values are text.
    let env: Vec<_> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    Resolved::load(&flags, &env).map_err(wrong)
}

/// A configuration error ends the process with the usage code.
pub(super) fn wrong(error: impl Into<anyhow::Error>) -> anyhow::Error {
    Coded::wrap(Exit::Usage, "wrong configuration", error.into())
}
