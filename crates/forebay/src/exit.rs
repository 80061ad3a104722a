//! Exit codes of every `forebay` command, in one place because scripts depend on them.
//!
//! | code | meaning |
//! |---|---|
//! | 0 | done |
//! | 1 | a check ran and found something wrong (`fsck`, `tour`, `bench` below a bar) or the command failed |
//! | 2 | the command line or the configuration is wrong; nothing was started |
//! | 3 | the server could not start: address in use, data directory, TLS files; or what was asked for is not in the index |
//! | 4 | shutdown reached its limit and cut requests that were still running |
//! | 130 | a second signal stopped the process at once |

use std::fmt;
use std::process::ExitCode;

/// How a command ended, as the number a shell sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Everything asked for was done.
    Ok,
    /// A check failed, or the command itself did.
    Failed,
    /// Wrong command line or configuration.
    Usage,
    /// The server could not start.
    Start,
    /// What was asked for is not in the index.
    Absent,
    /// Requests were cut by the shutdown limit.
    Cut,
    /// A second signal asked for an immediate stop.
    Interrupted,
}

impl Exit {
    /// The number handed to the operating system.
    pub(crate) fn code(self) -> u8 {
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

/// An error that carries the exit code it should end the process with.
///
/// Put around an `anyhow` chain with [`Coded::wrap`]; `main` looks for it and falls back to
/// [`Exit::Failed`]. Its own text is the outermost line of the message.
#[derive(Debug)]
pub(crate) struct Coded {
    exit: Exit,
    message: String,
}

impl Coded {
    /// An error that ends the process with `exit`, saying `message`.
    pub(crate) fn error(exit: Exit, message: impl Into<String>) -> anyhow::Error {
        anyhow::Error::new(Self { exit, message: message.into() })
    }

    /// Puts `message` in front of `error` and gives it the exit code `exit`.
    pub(crate) fn wrap(
        exit: Exit,
        message: impl Into<String>,
        error: anyhow::Error,
    ) -> anyhow::Error {
        error.context(Self { exit, message: message.into() })
    }

    /// The exit code `error` asks for.
    pub(crate) fn exit_of(error: &anyhow::Error) -> Exit {
        error.downcast_ref::<Self>().map_or(Exit::Failed, |coded| coded.exit)
    }
}

impl fmt::Display for Coded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Coded {}
