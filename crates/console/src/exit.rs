//! Exit codes of every `forebay` command, in one place because scripts depend on them.
//!
//! | code | meaning |
//! |---|---|
//! | 0 | success |
//! | 1 | a check found a fault (`fsck`, `tour`, `bench` below a bar), or the command failed |
//! | 2 | invalid command line or configuration; nothing was started |
//! | 3 | the server could not start (address in use, data directory, TLS files), or the requested
//! item is not in the index | | 4 | shutdown reached its time limit and ended requests that were
//! still running | | 130 | a second signal stopped the process at once |

use std::fmt;
use std::process::ExitCode;

/// The result of a command, as an exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// The command succeeded.
    Ok,
    /// A check found a fault, or the command failed.
    Failed,
    /// Invalid command line or configuration.
    Usage,
    /// The server could not start.
    Start,
    /// The requested item is not in the index.
    Absent,
    /// The shutdown limit ended requests.
    Cut,
    /// A second signal requested an immediate stop.
    Interrupted,
}

impl Exit {
    /// Returns the number for the operating system.
    pub fn code(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Start | Self::Absent => 3,
            Self::Cut => 4,
            Self::Interrupted => 130,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// An error with the exit code of the process.
///
/// Put around an `anyhow` chain with [`Coded::wrap`]; `main` looks for it and falls back to
/// [`Exit::Failed`]. Its own text is the outermost line of the message.
#[derive(Debug)]
pub struct Coded {
    exit: Exit,
    message: String,
}

impl Coded {
    /// Creates an error with a message and an exit code.
    pub fn error(exit: Exit, message: impl Into<String>) -> anyhow::Error {
        anyhow::Error::new(Self { exit, message: message.into() })
    }

    /// Adds `message` and the exit code `exit` to `error`.
    pub fn wrap(exit: Exit, message: impl Into<String>, error: anyhow::Error) -> anyhow::Error {
        error.context(Self { exit, message: message.into() })
    }

    /// Returns the exit code that `error` carries.
    pub fn exit_of(error: &anyhow::Error) -> Exit {
        error.downcast_ref::<Self>().map_or(Exit::Failed, |coded| coded.exit)
    }
}

impl fmt::Display for Coded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Coded {}
