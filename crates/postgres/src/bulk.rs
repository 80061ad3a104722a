//! Bulk writes: binary COPY, and parameters in wire format.
//!
//! Who sends rows encodes them: a field of binary COPY has the same bytes as a binary parameter.
//!
//! Invariant: it is an error if the server stored fewer rows than were sent.

use std::pin::Pin;

use bytes::{Bytes, BytesMut};
use forebay_pgcopy::{HEADER, TRAILER};
use futures_util::SinkExt as _;
use tokio_postgres::types::{Format, IsNull, ToSql, Type, to_sql_checked};
use tokio_postgres::{Client, CopyInSink, Error, Statement};

/// A COPY that has begun. Dropping it aborts it.
pub(crate) struct Copy {
    sink: Pin<Box<CopyInSink<Bytes>>>,
    rows: u64,
    size: usize,
}

/// The rows of a COPY that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stored {
    /// Number of rows that the server stored.
    pub(crate) stored: u64,
    /// Number of rows that were sent.
    pub(crate) sent: u64,
}

impl Copy {
    /// Begins a COPY.
    ///
    /// * `statement`: `copy ... from stdin (format binary)`.
    pub(crate) async fn begin(client: &Client, statement: &Statement) -> Result<Copy, Error> {
        let mut sink = Box::pin(client.copy_in(statement).await?);
        sink.as_mut().feed(Bytes::from_static(HEADER)).await?;
        Ok(Copy { sink, rows: 0, size: 0 })
    }

    /// Sends complete tuples. If the server accepts no more, the error is its reason.
    pub(crate) async fn send(&mut self, tuples: Bytes, rows: u64) -> Result<(), Error> {
        self.rows += rows;
        self.size += tuples.len();
        self.feed(tuples).await
    }

    /// Size in bytes of what was sent.
    #[cfg_attr(
        target_family = "wasm",
        expect(dead_code, reason = "only the sink of documents ends a COPY by its size")
    )]
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Ends the COPY.
    pub(crate) async fn finish(mut self) -> Result<Stored, Error> {
        self.feed(Bytes::from_static(TRAILER)).await?;
        let stored = self.sink.as_mut().finish().await?;
        Ok(Stored { stored, sent: self.rows })
    }

    async fn feed(&mut self, bytes: Bytes) -> Result<(), Error> {
        match self.sink.as_mut().feed(bytes).await {
            Ok(()) => Ok(()),
            Err(error) => Err(self.sink.as_mut().finish().await.err().unwrap_or(error)),
        }
    }
}

impl Stored {
    /// Rows can only be missing if a trigger or a rule of the database's owner dropped them.
    pub(crate) fn check(self) -> Result<(), String> {
        let Self { stored, sent } = self;
        if stored == sent {
            return Ok(());
        }
        Err(format!("the server stored {stored} of {sent} rows"))
    }
}

/// A parameter in wire format; `None` is NULL.
#[derive(Debug)]
pub(crate) struct Encoded<B>(pub(crate) Option<B>);

impl<B: AsRef<[u8]> + std::fmt::Debug> ToSql for Encoded<B> {
    fn to_sql(
        &self,
        _: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        let Some(bytes) = &self.0 else { return Ok(IsNull::Yes) };
        out.extend_from_slice(bytes.as_ref());
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    fn encode_format(&self, _: &Type) -> Format {
        Format::Binary
    }

    to_sql_checked!();
}
