//! A connection in replication mode: a socket for a [`Session`], commands, and the stream of changes.
//!
//! Invariants: every wait for the server but that for the next change has a limit; an encrypted
//! connection verifies the certificate and its host name; no message contains a password.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use forebay_base::ServerError;
use forebay_sdk::platform::timeout;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::envelope::{ServerTime, status};
use super::error::SessionError;
use super::lsn::Lsn;
use super::session::{Event, Login, Session, TextRow};
use crate::connect::{Server, Socket, classified};
use crate::quote::quote_identifier;

/// Maximum time for a command, except for the creation of a slot.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(60);
/// Free space of the buffer for a read, in bytes.
const READ_SIZE: usize = 64 << 10;
/// The settings of a session, whatever its role has set: how values are written, as on other connections
/// (`connect`), and that a connection which holds a snapshot is not ended. Replication has no pooler between
/// it and its server, and sets nothing later, so they are startup parameters.
const SETTINGS: [(&str, &str); 6] = [
    ("idle_in_transaction_session_timeout", "0"),
    ("DateStyle", "ISO, YMD"),
    ("IntervalStyle", "postgres"),
    ("TimeZone", "UTC"),
    ("extra_float_digits", "1"),
    ("bytea_output", "hex"),
];

/// A connection in replication mode.
pub struct Replication {
    socket: Box<dyn Socket>,
    session: Session,
    server: Server,
    /// The index of its host, if the server has several.
    host: usize,
}

/// A slot that was created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreatedSlot {
    /// Changes of transactions whose commit is after this position are sent, others never.
    pub consistent_point: Lsn,
    /// The snapshot of exactly this position. It exists until the next command on the connection.
    pub snapshot: String,
}

/// How changes are sent.
#[derive(Debug, Clone)]
pub struct StartOptions {
    /// Version of pgoutput's protocol: 1 from PostgreSQL 10, 2 from 14.
    pub protocol_version: u8,
    /// The publications.
    pub publications: Vec<String>,
    /// Whether values are sent in their binary form, from PostgreSQL 14. Types that have none are sent as
    /// text.
    pub binary: bool,
    /// Whether large transactions are sent before their commit, from PostgreSQL 14.
    pub streaming: bool,
}

impl Replication {
    /// Connects: to the primary, if the server has several hosts.
    ///
    /// # Errors
    /// As [`Server::connect`]; of several hosts, the error of the last.
    pub async fn connect(server: &Server) -> Result<Self, ServerError> {
        let hosts = server.config().get_hosts().len();
        for host in 1..hosts {
            match Self::connect_to(server, host - 1).await {
                Ok(mut made) => {
                    if made.is_primary().await {
                        return Ok(made);
                    }
                    tracing::debug!(host, "a standby has no changes; trying the next host");
                }
                Err(error) => tracing::debug!(host, %error, "trying the next host"),
            }
        }
        Self::connect_to(server, hosts.saturating_sub(1)).await
    }

    async fn is_primary(&mut self) -> bool {
        let rows = self.query("look up whether it is a standby", "select pg_is_in_recovery()");
        let rows = timeout(COMMAND_TIMEOUT, rows).await;
        matches!(rows, Ok(Ok(rows)) if rows == [[Some("f".to_owned())]])
    }

    async fn connect_to(server: &Server, host: usize) -> Result<Self, ServerError> {
        let (config, name) = (server.config(), server.name());
        let within = config.get_connect_timeout().copied().unwrap_or(COMMAND_TIMEOUT);
        let connecting = async {
            let opened = server.socket(host).await;
            let (socket, is_encrypted) = opened.map_err(SessionError::Protocol)?;
            let user = config.get_user().unwrap_or("postgres");
            let login = Login {
                user: user.to_owned(),
                database: config.get_dbname().unwrap_or(user).to_owned(),
                password: config.get_password().map(<[u8]>::to_vec),
                is_encrypted,
                settings: SETTINGS.map(|(name, value)| (name, value.to_owned())).to_vec(),
            };
            let session = Session::start(login)?;
            let mut made = Self { socket, session, server: server.clone(), host };
            match made.event().await? {
                Event::Ready => Ok(made),
                _ => Err(SessionError::Unsupported("an answer before the log-in")),
            }
        };
        match timeout(within, connecting).await {
            Ok(made) => made.map_err(|error| failure("connect", name, error)),
            Err(_) => Err(failure("connect", name, late(within))),
        }
    }

    /// Creates a slot that stays until it is dropped, and exports its snapshot.
    ///
    /// The server waits for every transaction that was writing when this was called, of any database.
    ///
    /// * `within`: how long to wait for them.
    ///
    /// # Errors
    /// [`ServerError::Busy`] if they did not end within this time; the connection cannot be used after
    /// it. [`ServerError::Refused`] also if the slot exists.
    pub async fn create_slot(
        &mut self,
        slot: &str,
        is_temporary: bool,
        within: Duration,
    ) -> Result<CreatedSlot, ServerError> {
        let act = format!("create the replication slot {slot:?}");
        let temporary = if is_temporary { " TEMPORARY" } else { "" };
        // The form of every version; from 15 on the option can stand in parentheses, too.
        let command = format!(
            "CREATE_REPLICATION_SLOT {}{temporary} LOGICAL pgoutput EXPORT_SNAPSHOT",
            quote_identifier(slot)
        );
        let rows = match timeout(within, self.query(&act, &command)).await {
            Ok(rows) => rows?,
            Err(_) => {
                // Without this, the server would complete the slot, which would keep its log.
                let cancelled = timeout(COMMAND_TIMEOUT, self.cancel()).await;
                if !matches!(cancelled, Ok(Ok(()))) {
                    tracing::warn!(?slot, "could not cancel the creation of a replication slot");
                }
                return Err(ServerError::Busy {
                    act,
                    server: self.server.name().to_owned(),
                    source: format!("transactions that were writing did not end within {within:?}")
                        .into(),
                });
            }
        };
        let contents = |found: &str| ServerError::Contents {
            act: act.clone(),
            server: self.server.name().to_owned(),
            found: found.to_owned(),
        };
        let [row] = &*rows else { return Err(contents("the answer has not one row")) };
        let (Some(Some(at)), Some(Some(snapshot))) = (row.get(1), row.get(2)) else {
            return Err(contents("the answer has no snapshot"));
        };
        let consistent_point = at.parse().map_err(|_| contents("the position is invalid"))?;
        Ok(CreatedSlot { consistent_point, snapshot: snapshot.clone() })
    }

    /// Identifies the server: its system identifier, its timeline, and the end of its flushed log.
    ///
    /// # Errors
    /// The connection was lost.
    pub async fn identify(&mut self) -> Result<(String, u32, Lsn), ServerError> {
        let act = "identify the server";
        let rows = self.query(act, "IDENTIFY_SYSTEM").await?;
        let identity = rows.first().and_then(|row| {
            let [Some(system), Some(timeline), Some(at), ..] = &**row else { return None };
            Some((system.clone(), timeline.parse().ok()?, at.parse().ok()?))
        });
        identity.ok_or_else(|| ServerError::Contents {
            act: act.to_owned(),
            server: self.server.name().to_owned(),
            found: "the identity of the server is incomplete".to_owned(),
        })
    }

    /// How long the server waits for an answer before it ends this connection (`wal_sender_timeout`); zero: for ever.
    ///
    /// # Errors
    /// The connection was lost.
    pub async fn patience(&mut self) -> Result<Duration, ServerError> {
        let act = "look up how long the server waits for an answer";
        let query = "select setting from pg_catalog.pg_settings where name = 'wal_sender_timeout'";
        let rows = self.query(act, query).await?;
        let found = rows.first().and_then(|row| row.first()?.as_ref()?.parse().ok());
        found.map(Duration::from_millis).ok_or_else(|| ServerError::Contents {
            act: act.to_owned(),
            server: self.server.name().to_owned(),
            found: "`wal_sender_timeout` is not a time".to_owned(),
        })
    }

    /// Runs a query or a command of replication, and returns its rows.
    ///
    /// # Errors
    /// The server refused, or the connection was lost.
    pub async fn query(&mut self, act: &str, query: &str) -> Result<Vec<TextRow>, ServerError> {
        let run = async {
            self.session.query(query)?;
            match self.event().await? {
                Event::Rows(rows) => Ok(rows),
                _ => Err(SessionError::Unsupported("a query that begins a copy")),
            }
        };
        let ended = run.await;
        ended.map_err(|error| failure(act, self.server.name(), error))
    }

    /// Starts to receive the changes of a slot.
    ///
    /// * `from`: only transactions whose commit record begins here or later. The server raises it to the
    ///   slot's position without saying so; the caller has to compare the two first.
    ///
    /// # Errors
    /// The server refused: the slot does not exist, is in use, or has lost changes.
    pub async fn start(
        &mut self,
        slot: &str,
        from: Lsn,
        options: &StartOptions,
    ) -> Result<(), ServerError> {
        let act = format!("read changes from the replication slot {slot:?}");
        let command = options.command(slot, from);
        let started = async {
            self.session.query(&command)?;
            match self.event().await? {
                Event::CopyStarted => Ok(()),
                _ => Err(SessionError::Unsupported("a start without changes")),
            }
        };
        match timeout(COMMAND_TIMEOUT, started).await {
            Ok(started) => started.map_err(|error| failure(&act, self.server.name(), error)),
            Err(_) => Err(failure(&act, self.server.name(), late(COMMAND_TIMEOUT))),
        }
    }

    /// Receives the next message, to be decoded as
    /// [`Envelope`](super::envelope::Envelope); `None` once the server has ended the
    /// stream. Nothing is lost if the future is dropped.
    ///
    /// # Errors
    /// The connection was lost, or the server ended it with an error.
    pub async fn receive(&mut self) -> Result<Option<Bytes>, ServerError> {
        match self.event().await {
            Ok(Event::CopyData(data)) => Ok(Some(data)),
            Ok(Event::CopyEnded) => Ok(None),
            Ok(_) => {
                let error = SessionError::Unsupported("an answer between changes");
                Err(failure("read changes", self.server.name(), error))
            }
            Err(error) => Err(failure("read changes", self.server.name(), error)),
        }
    }

    /// Reports how far the changes were received and stored.
    ///
    /// * `durable`: see [`status`].
    /// * `wants_reply`: whether the server is to answer at once, with a keepalive.
    ///
    /// # Errors
    /// The connection was lost.
    pub async fn report(
        &mut self,
        received: Lsn,
        durable: Lsn,
        now: ServerTime,
        wants_reply: bool,
    ) -> Result<(), ServerError> {
        let report = async {
            self.session.send_copy_data(&status(received, durable, now, wants_reply))?;
            self.flush().await
        };
        let reported = match timeout(COMMAND_TIMEOUT, report).await {
            Ok(reported) => reported,
            Err(_) => Err(late(COMMAND_TIMEOUT)),
        };
        reported.map_err(|error| failure("report received changes", self.server.name(), error))
    }

    async fn event(&mut self) -> Result<Event, SessionError> {
        loop {
            let event = self.session.next_event();
            self.flush().await?;
            if let Some(event) = event? {
                return Ok(event);
            }
            let inbox = self.session.received();
            inbox.reserve(READ_SIZE);
            if self.socket.read_buf(inbox).await.map_err(SessionError::Protocol)? == 0 {
                let error = io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed it");
                return Err(SessionError::Protocol(error));
            }
        }
    }

    /// Sends what is to be sent. If the future is dropped, the next call continues where it was.
    async fn flush(&mut self) -> Result<(), SessionError> {
        let bytes = self.session.to_send();
        if bytes.is_empty() {
            return Ok(());
        }
        self.socket.write_all_buf(bytes).await.map_err(SessionError::Protocol)?;
        self.socket.flush().await.map_err(SessionError::Protocol)
    }

    /// Asks the server to end the command that runs. Its answer is not waited for.
    async fn cancel(&self) -> io::Result<()> {
        let Some((process, key)) = self.session.cancel_key() else { return Ok(()) };
        let mut request = bytes::BytesMut::new();
        postgres_protocol::message::frontend::cancel_request(process, key, &mut request);
        let (mut socket, _) = self.server.socket(self.host).await?;
        socket.write_all(&request).await?;
        // The server closes the connection once it has passed the request on.
        socket.read_u8().await.map_or(Ok(()), |_| Ok(()))
    }
}

impl StartOptions {
    fn command(&self, slot: &str, from: Lsn) -> String {
        let names: Vec<_> = self.publications.iter().map(|name| quote_identifier(name)).collect();
        let mut options = vec![
            format!("proto_version '{}'", self.protocol_version),
            format!("publication_names '{}'", names.join(",").replace('\'', "''")),
        ];
        if self.binary {
            options.push("binary 'true'".to_owned());
        }
        if self.streaming {
            options.push("streaming 'on'".to_owned());
        }
        format!(
            "START_REPLICATION SLOT {} LOGICAL {from} ({})",
            quote_identifier(slot),
            options.join(", ")
        )
    }
}

fn late(within: Duration) -> SessionError {
    let what = format!("no answer within {within:?}");
    SessionError::Protocol(io::Error::new(io::ErrorKind::TimedOut, what))
}

/// Classifies an error, as [`crate::connect::failure`] does.
fn failure(act: &str, server: &str, error: SessionError) -> ServerError {
    let code = match &error {
        SessionError::Refused(message) => Some(message.code.clone()),
        _ => None,
    };
    let is_io = matches!(&error, SessionError::Protocol(error) if !matches!(
        error.kind(),
        io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported
    ));
    classified(act.to_owned(), server.to_owned(), code.as_ref(), is_io, error.into())
}
