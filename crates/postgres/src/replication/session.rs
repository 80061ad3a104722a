//! A session of a replication connection, as a state machine that knows no socket.
//!
//! The caller moves bytes: what [`Session::to_send`] returns is sent, what arrives is passed to
//! [`Session::received`], and [`Session::next_event`] returns what it means. So the same code runs over a
//! socket of this process and over one that a host lends.
//!
//! ```text
//! start-up -> log-in -> idle <-> query
//!                        └-> START_REPLICATION -> copying, until the connection ends
//! ```
//!
//! Invariants: bytes of the server never cause a panic; before the log-in is complete a message has at
//! most [`LOGIN_MESSAGE_SIZE_MAX`] bytes, later at most [`MESSAGE_SIZE_MAX`]; a password is never printed,
//! and sent as it is only over an encrypted connection.

use std::fmt;

use bytes::{Bytes, BytesMut};
use postgres_protocol::authentication::md5_hash;
use postgres_protocol::authentication::sasl::{ChannelBinding, SCRAM_SHA_256, ScramSha256};
use postgres_protocol::message::backend::{Header, Message};
use postgres_protocol::message::frontend;

use super::error::{ServerMessage, SessionError, malformed};

/// Maximum size of a message before the log-in is complete, in bytes.
pub const LOGIN_MESSAGE_SIZE_MAX: usize = 64 << 10;
/// Maximum size of a message, in bytes: the server cannot build a larger one.
pub const MESSAGE_SIZE_MAX: usize = 1 << 30;
/// Maximum number of rows that a query returns. Commands of replication return one.
const ROWS_MAX: usize = 10_000;
/// Type of the message that begins a copy in both directions, which `postgres-protocol` has not.
const COPY_BOTH: u8 = b'W';

/// Who logs in, and how.
#[derive(Clone)]
pub struct Login {
    /// The user.
    pub user: String,
    /// The database.
    pub database: String,
    /// The password, if one was set.
    pub password: Option<Vec<u8>>,
    /// Whether the connection is encrypted.
    pub is_encrypted: bool,
    /// Settings of the session, as startup parameters.
    pub settings: Vec<(&'static str, String)>,
}

/// Without the password.
impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login")
            .field("user", &self.user)
            .field("database", &self.database)
            .field("password", &self.password.as_ref().map(|_| "..."))
            .field("is_encrypted", &self.is_encrypted)
            .field("settings", &self.settings)
            .finish()
    }
}

/// A row of a query's result, its values as text.
pub type TextRow = Vec<Option<String>>;

/// What arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The log-in is complete: a query can be sent.
    Ready,
    /// The result of a query: another one can be sent.
    Rows(Vec<TextRow>),
    /// Replication has started.
    CopyStarted,
    /// A message of the replication.
    CopyData(Bytes),
    /// The server ended the replication.
    CopyEnded,
}

enum State {
    LoggingIn(Option<Box<ScramSha256>>),
    LoggedIn,
    Idle,
    Querying(Vec<TextRow>, Option<ServerMessage>),
    Copying,
    /// After a copy, until the server is ready for the next query.
    Ending,
}

/// A session.
pub struct Session {
    login: Login,
    state: State,
    inbox: BytesMut,
    outbox: BytesMut,
    cancel_key: Option<(i32, i32)>,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("login", &self.login).finish_non_exhaustive()
    }
}

impl Session {
    /// Begins a session: the message to send first is there.
    ///
    /// # Errors
    /// [`SessionError::Unsupported`] if a name contains a zero byte.
    pub fn start(login: Login) -> Result<Self, SessionError> {
        let mut outbox = BytesMut::new();
        let fixed = [
            ("user", login.user.as_str()),
            ("database", login.database.as_str()),
            ("replication", "database"),
            ("client_encoding", "UTF8"),
            ("application_name", "forebay"),
        ];
        let set = login.settings.iter().map(|(name, value)| (*name, value.as_str()));
        frontend::startup_message(fixed.into_iter().chain(set), &mut outbox)
            .map_err(|_| SessionError::Unsupported("a name with a zero byte"))?;
        let (state, inbox) = (State::LoggingIn(None), BytesMut::new());
        Ok(Self { login, state, inbox, outbox, cancel_key: None })
    }

    /// What is to be sent: the caller removes what was.
    pub fn to_send(&mut self) -> &mut BytesMut {
        &mut self.outbox
    }

    /// The server's process and the key that cancels its command, after the log-in.
    #[must_use]
    pub fn cancel_key(&self) -> Option<(i32, i32)> {
        self.cancel_key
    }

    /// Where bytes that arrive are added.
    pub fn received(&mut self) -> &mut BytesMut {
        &mut self.inbox
    }

    /// Sends a query. The session has to be idle.
    ///
    /// # Errors
    /// [`SessionError::Unsupported`] if it contains a zero byte, or the session is not idle.
    pub fn query(&mut self, query: &str) -> Result<(), SessionError> {
        if !matches!(self.state, State::Idle) {
            return Err(SessionError::Unsupported("a query while the connection is in use"));
        }
        frontend::query(query, &mut self.outbox)
            .map_err(|_| SessionError::Unsupported("a query with a zero byte"))?;
        self.state = State::Querying(Vec::new(), None);
        Ok(())
    }

    /// Sends a message of the replication.
    ///
    /// # Errors
    /// [`SessionError::Unsupported`] if replication has not started.
    pub fn send_copy_data(&mut self, data: &[u8]) -> Result<(), SessionError> {
        if !matches!(self.state, State::Copying) {
            return Err(SessionError::Unsupported("a message before replication has started"));
        }
        let message = frontend::CopyData::new(data);
        message
            .map_err(|_| SessionError::Unsupported("a message this large"))?
            .write(&mut self.outbox);
        Ok(())
    }

    /// The next event, or `None` until more bytes arrive.
    ///
    /// # Errors
    /// [`SessionError::Refused`] is what the server answered. Unless it was fatal, the session is idle
    /// again. After every other error the connection cannot be used.
    pub fn next_event(&mut self) -> Result<Option<Event>, SessionError> {
        loop {
            let Some(header) = Header::parse(&self.inbox).map_err(SessionError::protocol)? else {
                return Ok(None);
            };
            let is_logged_in = !matches!(self.state, State::LoggingIn(_));
            let size_max = if is_logged_in { MESSAGE_SIZE_MAX } else { LOGIN_MESSAGE_SIZE_MAX };
            let size = usize::try_from(header.len()).unwrap_or(usize::MAX).saturating_add(1);
            if size > size_max {
                return Err(malformed("a message", format!("it has {size} bytes")).into());
            }
            if self.inbox.len() < size {
                return Ok(None);
            }
            if header.tag() == COPY_BOTH {
                let _formats = self.inbox.split_to(size);
                match std::mem::replace(&mut self.state, State::Copying) {
                    State::Querying(..) => return Ok(Some(Event::CopyStarted)),
                    _ => return Err(unexpected("the start of a copy")),
                }
            }
            let message = Message::parse(&mut self.inbox).map_err(SessionError::protocol)?;
            let Some(message) = message else { return Ok(None) };
            if let Some(event) = self.take(message)? {
                return Ok(Some(event));
            }
        }
    }

    fn take(&mut self, message: Message) -> Result<Option<Event>, SessionError> {
        match (message, &mut self.state) {
            (Message::CopyData(data), State::Copying) => {
                return Ok(Some(Event::CopyData(data.into_bytes())));
            }
            (Message::CopyDone, State::Copying) => {
                frontend::copy_done(&mut self.outbox);
                self.state = State::Ending;
                return Ok(Some(Event::CopyEnded));
            }
            (Message::ErrorResponse(body), state) => {
                let error = ServerMessage::of(&mut body.fields())?;
                match state {
                    // The server is ready for the next query after it has said so.
                    State::Querying(_, first) if !error.is_fatal() => *first = Some(error),
                    _ => return Err(SessionError::Refused(error)),
                }
            }
            (Message::NoticeResponse(body), _) => {
                let notice = ServerMessage::of(&mut body.fields())?;
                tracing::debug!(notice = ?notice.to_string(), "PostgreSQL sent a notice");
            }
            (Message::BackendKeyData(body), _) => {
                self.cancel_key = Some((body.process_id(), body.secret_key()));
            }
            (Message::ParameterStatus(_) | Message::NotificationResponse(_), _) => {}
            (Message::DataRow(body), State::Querying(rows, _)) => {
                if rows.len() >= ROWS_MAX {
                    return Err(malformed("a result", format!("more than {ROWS_MAX} rows")).into());
                }
                rows.push(row_of(&body)?);
            }
            (
                Message::RowDescription(_)
                | Message::CommandComplete(_)
                | Message::EmptyQueryResponse,
                State::Querying(..) | State::Ending,
            ) => {}
            (Message::ReadyForQuery(_), state) => {
                return match std::mem::replace(state, State::Idle) {
                    State::Querying(_, Some(error)) => Err(SessionError::Refused(error)),
                    State::Querying(rows, None) => Ok(Some(Event::Rows(rows))),
                    State::LoggedIn => Ok(Some(Event::Ready)),
                    State::Ending => Ok(None),
                    State::Idle | State::Copying | State::LoggingIn(_) => {
                        Err(unexpected("readiness for a query"))
                    }
                };
            }
            (message, State::LoggingIn(_)) => self.log_in(message)?,
            _ => return Err(unexpected("a message")),
        }
        Ok(None)
    }

    /// Answers a message of the log-in.
    fn log_in(&mut self, message: Message) -> Result<(), SessionError> {
        let State::LoggingIn(scram) = &mut self.state else { return Err(unexpected("a log-in")) };
        let password = || self.login.password.as_deref().ok_or(SessionError::NoPassword);
        match message {
            Message::AuthenticationOk => self.state = State::LoggedIn,
            Message::AuthenticationCleartextPassword => {
                if !self.login.is_encrypted {
                    return Err(SessionError::Unsupported(
                        "a password in clear text over a connection that is not encrypted",
                    ));
                }
                send_password(password()?, &mut self.outbox)?;
            }
            Message::AuthenticationMd5Password(body) => {
                let hash = md5_hash(self.login.user.as_bytes(), password()?, body.salt());
                send_password(hash.as_bytes(), &mut self.outbox)?;
            }
            Message::AuthenticationSasl(body) => {
                if !offers_scram(&body)? {
                    return Err(SessionError::Unsupported("any of the server's methods to log in"));
                }
                let begun = ScramSha256::new(password()?, ChannelBinding::unsupported());
                frontend::sasl_initial_response(SCRAM_SHA_256, begun.message(), &mut self.outbox)
                    .map_err(SessionError::protocol)?;
                *scram = Some(Box::new(begun));
            }
            Message::AuthenticationSaslContinue(body) => {
                let scram = scram.as_mut().ok_or_else(|| unexpected("a step of a log-in"))?;
                scram.update(body.data()).map_err(SessionError::protocol)?;
                frontend::sasl_response(scram.message(), &mut self.outbox)
                    .map_err(SessionError::protocol)?;
            }
            Message::AuthenticationSaslFinal(body) => {
                let scram = scram.as_mut().ok_or_else(|| unexpected("the end of a log-in"))?;
                // This proves that the server knows the password, too.
                scram.finish(body.data()).map_err(SessionError::protocol)?;
            }
            _ => return Err(SessionError::Unsupported("the server's method to log in")),
        }
        Ok(())
    }
}

fn offers_scram(
    body: &postgres_protocol::message::backend::AuthenticationSaslBody,
) -> Result<bool, SessionError> {
    use fallible_iterator::FallibleIterator as _;

    let mut mechanisms = body.mechanisms();
    mechanisms.any(|mechanism| Ok(mechanism == SCRAM_SHA_256)).map_err(SessionError::protocol)
}

fn send_password(password: &[u8], outbox: &mut BytesMut) -> Result<(), SessionError> {
    frontend::password_message(password, outbox)
        .map_err(|_| SessionError::Unsupported("a password with a zero byte"))
}

fn row_of(
    body: &postgres_protocol::message::backend::DataRowBody,
) -> Result<TextRow, SessionError> {
    use fallible_iterator::FallibleIterator as _;

    let bytes = body.buffer();
    let mut row = Vec::new();
    let mut ranges = body.ranges();
    while let Some(range) = ranges.next().map_err(SessionError::protocol)? {
        let Some(range) = range else {
            row.push(None);
            continue;
        };
        let value = bytes.get(range).and_then(|bytes| std::str::from_utf8(bytes).ok());
        let value = value.ok_or_else(|| malformed("a result", "a value is not UTF-8"))?;
        row.push(Some(value.to_owned()));
    }
    Ok(row)
}

fn unexpected(what: &'static str) -> SessionError {
    let found = "that does not belong here".to_owned();
    super::error::ReplicationError::Unexpected { what, found }.into()
}
