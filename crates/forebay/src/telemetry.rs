//! Logging: `tracing` events as lines on standard error.
//!
//! Human on a terminal, otherwise one JSON object per line. Values that a client sent are logged
//! with `?` (escaped), never with `%`, so that no client can write lines or terminal codes into a
//! log.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::time::SystemTime;

use crate::config::LogFormat;
use crate::exit::{Coded, Exit};

/// Installs the subscriber of this process. Called once, before anything logs.
///
/// # Errors
/// `filter` is neither a level nor a filter (exit code 2).
pub(crate) fn install(filter: &str, format: LogFormat) -> anyhow::Result<()> {
    let usage =
        format!("log = {filter:?}: expected a level or a filter such as info,forebay=debug");
    // A word alone would be a target, whose events are the only ones logged.
    for part in filter.split(',').map(str::trim).filter(|part| !part.contains(['=', '[', ':'])) {
        if part.parse::<LevelFilter>().is_err() {
            return Err(Coded::error(Exit::Usage, format!("{usage}; {part:?} is no level")));
        }
    }
    let mut filter = filter.to_owned();
    for (quiet, _why) in [
        ("s3s", "logs every error of a client as one of the server's, with what the client sent"),
        ("delta_kernel", "logs each step, and as errors what is reported, or expected"),
    ] {
        if !filter.contains(quiet) {
            filter += &format!(",{quiet}=off");
        }
    }
    let filter = EnvFilter::builder()
        .parse(&filter)
        .map_err(|error| Coded::wrap(Exit::Usage, usage, error.into()))?;
    let terminal = std::io::stderr().is_terminal();
    let human = match format {
        LogFormat::Auto => terminal,
        LogFormat::Human => true,
        LogFormat::Json => false,
    };
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_timer(SystemTime)
        .with_writer(std::io::stderr);
    let installed = if human {
        builder.with_ansi(terminal).try_init()
    } else {
        builder.json().flatten_event(true).try_init()
    };
    installed.map_err(|error| anyhow::anyhow!("cannot install the logger: {error}"))?;
    report_panics();
    Ok(())
}

/// A panic is a bug of ours: it is logged as one event instead of raw lines.
fn report_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let payload = panic.payload();
        let message = payload
            .downcast_ref::<&str>()
            .copied()
            .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
            .unwrap_or("(no message)");
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        let thread = std::thread::current().name().unwrap_or("?").to_owned();
        tracing::error!(message = "panic", panic = ?message, place, thread);
    }));
}
