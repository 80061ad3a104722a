//! Errors of commands, in the wording that Redis clients know.

use std::borrow::Cow;

use crate::store::WrongType;

/// An error; its text is sent to the client after a `-`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CommandError(pub Cow<'static, str>);

impl CommandError {
    /// `ERR syntax error`.
    pub const SYNTAX: Self = Self(Cow::Borrowed("ERR syntax error"));
    /// `ERR value is not an integer or out of range`.
    pub const NOT_INTEGER: Self =
        Self(Cow::Borrowed("ERR value is not an integer or out of range"));
    /// `ERR value is not a valid float`.
    pub const NOT_FLOAT: Self = Self(Cow::Borrowed("ERR value is not a valid float"));
    /// `ERR no such key`.
    pub const NO_KEY: Self = Self(Cow::Borrowed("ERR no such key"));
    /// `ERR index out of range`.
    pub const INDEX: Self = Self(Cow::Borrowed("ERR index out of range"));
    /// An integer of more than 32 bits, where Redis reads one of 32.
    pub const NOT_I32: Self = Self(Cow::Borrowed(
        "ERR value is out of range, value must between -2147483648 and 2147483647",
    ));
    /// `ERR DB index is out of range`.
    pub const DATABASE: Self = Self(Cow::Borrowed("ERR DB index is out of range"));
    /// The value has another type.
    pub const WRONG_TYPE: Self =
        Self(Cow::Borrowed("WRONGTYPE Operation against a key holding the wrong kind of value"));
    /// The memory limit is reached.
    pub const OOM: Self =
        Self(Cow::Borrowed("OOM command not allowed when used memory > 'maxmemory'."));

    /// Returns an error with this text, which includes its code.
    #[must_use]
    pub fn new(text: impl Into<Cow<'static, str>>) -> Self {
        Self(text.into())
    }
}

impl From<WrongType> for CommandError {
    fn from(_: WrongType) -> Self {
        Self::WRONG_TYPE
    }
}
