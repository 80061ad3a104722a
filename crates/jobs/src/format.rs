//! Log entries of a queue (`docs/formats/jobs-log.md`).
//!
//! Invariants: what is decoded is encoded to the same bytes; no bytes make decoding panic or allocate
//! more than their number.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

use crate::id::JobId;
use crate::status::Priority;

/// Maximum size of an order, in bytes.
pub(crate) const ORDER_SIZE_MAX: usize = 256 << 10;
/// Maximum size of a result, in bytes.
pub(crate) const RESULT_SIZE_MAX: usize = 4 << 20;
/// Maximum size of a reason, in bytes.
const REASON_SIZE_MAX: usize = 4 << 10;
/// Added to the number of a kept state that begins with the time of the last start.
const WITH_START: u8 = 2;

/// What an entry says of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Entry<'a> {
    Submitted(Submitted<'a>),
    Started { attempt: u32 },
    Postponed { attempt: u32, due_ms: u64, reason: &'a str },
    Ended { attempts: u32, end: End<'a> },
    QueuedAgain,
    Kept(Kept<'a>),
    Forgotten,
}

/// A job as it was submitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Submitted<'a> {
    pub(crate) priority: Priority,
    pub(crate) work: &'a str,
    pub(crate) key: Option<Key>,
    pub(crate) order: &'a [u8],
    pub(crate) body: StoredBody<'a>,
}

/// What makes a request recognisable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) key: [u8; 16],
    pub(crate) fingerprint: [u8; 16],
}

/// A body, or what its file must have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoredBody<'a> {
    None,
    Inline(&'a [u8]),
    File { size: u64, sha256: [u8; 32] },
}

/// How a job ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct End<'a> {
    pub(crate) how: How,
    pub(crate) result: &'a [u8],
    pub(crate) reason: &'a str,
}

/// The outcomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    Completed,
    Failed,
    Cancelled,
}

/// All that is known of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Kept<'a> {
    pub(crate) submitted: Submitted<'a>,
    pub(crate) attempts: u32,
    pub(crate) crashes: u32,
    pub(crate) submitted_ms: u64,
    /// When its last attempt was started; 0: never, or unknown.
    pub(crate) started_ms: u64,
    pub(crate) state: KeptState<'a>,
}

/// Where a job is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum KeptState<'a> {
    /// `due_ms`: 0: at once. `reason`: why its last attempt failed, if one did.
    Waiting {
        due_ms: u64,
        reason: &'a str,
    },
    Ended(End<'a>),
}

impl<'a> Entry<'a> {
    /// What it says that a job was submitted with.
    pub(crate) fn submitted(&self) -> Option<&Submitted<'a>> {
        match self {
            Self::Submitted(submitted) => Some(submitted),
            Self::Kept(kept) => Some(&kept.submitted),
            _ => None,
        }
    }

    /// The result of a job that it says.
    pub(crate) fn result(&self) -> Option<&'a [u8]> {
        match self {
            Self::Ended { end, .. } => Some(end.result),
            Self::Kept(Kept { state: KeptState::Ended(end), .. }) => Some(end.result),
            _ => None,
        }
    }
}

/// Encodes an entry.
pub(crate) fn encode(id: JobId, at_ms: u64, entry: &Entry<'_>) -> Vec<u8> {
    let mut out = Vec::with_capacity(64);
    out.push(match entry {
        Entry::Submitted(_) => 1,
        Entry::Started { .. } => 2,
        Entry::Postponed { .. } => 3,
        Entry::Ended { .. } => 4,
        Entry::QueuedAgain => 5,
        Entry::Kept(_) => 6,
        Entry::Forgotten => 7,
    });
    out.extend_from_slice(&id.0.to_be_bytes());
    out.extend_from_slice(&at_ms.to_le_bytes());
    match entry {
        Entry::Submitted(submitted) => put_submitted(&mut out, submitted),
        Entry::Started { attempt } => out.extend_from_slice(&attempt.to_le_bytes()),
        Entry::Postponed { attempt, due_ms, reason } => {
            out.extend_from_slice(&attempt.to_le_bytes());
            out.extend_from_slice(&due_ms.to_le_bytes());
            put(&mut out, reason.as_bytes());
        }
        Entry::Ended { attempts, end } => put_end(&mut out, *attempts, end),
        Entry::QueuedAgain | Entry::Forgotten => {}
        Entry::Kept(kept) => {
            put_submitted(&mut out, &kept.submitted);
            out.extend_from_slice(&kept.crashes.to_le_bytes());
            out.extend_from_slice(&kept.submitted_ms.to_le_bytes());
            let was_started = kept.started_ms > 0;
            let number = u8::from(matches!(kept.state, KeptState::Ended(_)));
            out.push(if was_started { WITH_START + number } else { number });
            if was_started {
                out.extend_from_slice(&kept.started_ms.to_le_bytes());
            }
            match &kept.state {
                KeptState::Waiting { due_ms, reason } => {
                    out.extend_from_slice(&kept.attempts.to_le_bytes());
                    out.extend_from_slice(&due_ms.to_le_bytes());
                    put(&mut out, reason.as_bytes());
                }
                KeptState::Ended(end) => put_end(&mut out, kept.attempts, end),
            }
        }
    }
    out
}

/// Shortens a reason to what an entry takes.
pub(crate) fn reason(text: &str) -> &str {
    let end = (0..=REASON_SIZE_MAX.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    text.get(..end.unwrap_or(0)).unwrap_or_default()
}

fn put(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes());
    out.extend_from_slice(bytes);
}

fn put_submitted(out: &mut Vec<u8>, submitted: &Submitted<'_>) {
    out.push(submitted.priority.number());
    out.push(u8::try_from(submitted.work.len()).unwrap_or(u8::MAX));
    out.extend_from_slice(submitted.work.as_bytes());
    match &submitted.key {
        None => out.push(0),
        Some(Key { key, fingerprint }) => {
            out.push(1);
            out.extend_from_slice(key);
            out.extend_from_slice(fingerprint);
        }
    }
    put(out, submitted.order);
    match &submitted.body {
        StoredBody::None => out.push(0),
        StoredBody::Inline(bytes) => {
            out.push(1);
            put(out, bytes);
        }
        StoredBody::File { size, sha256 } => {
            out.push(2);
            out.extend_from_slice(&size.to_le_bytes());
            out.extend_from_slice(sha256);
        }
    }
}

fn put_end(out: &mut Vec<u8>, attempts: u32, end: &End<'_>) {
    out.push(match end.how {
        How::Completed => 0,
        How::Failed => 1,
        How::Cancelled => 2,
    });
    out.extend_from_slice(&attempts.to_le_bytes());
    put(out, end.result);
    put(out, end.reason.as_bytes());
}

/// Decodes an entry.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn decode(bytes: &[u8]) -> Result<(JobId, u64, Entry<'_>), &'static str> {
    let mut rest = Fields { bytes };
    let kind = rest.byte()?;
    let id = JobId(u128::from_be_bytes(rest.take()?));
    let at_ms = rest.u64()?;
    let entry = match kind {
        1 => Entry::Submitted(rest.submitted()?),
        2 => Entry::Started { attempt: rest.u32()? },
        3 => {
            let (attempt, due_ms) = (rest.u32()?, rest.u64()?);
            Entry::Postponed { attempt, due_ms, reason: rest.text()? }
        }
        4 => {
            let (attempts, end) = rest.end()?;
            Entry::Ended { attempts, end }
        }
        5 => Entry::QueuedAgain,
        6 => {
            let submitted = rest.submitted()?;
            let (crashes, submitted_ms) = (rest.u32()?, rest.u64()?);
            let (number, started_ms) = match rest.byte()? {
                number @ WITH_START.. => (number - WITH_START, Some(rest.u64()?)),
                number => (number, None),
            };
            if started_ms == Some(0) {
                return Err("its time of start is 0");
            }
            let (attempts, state) = match number {
                0 => {
                    let (attempts, due_ms) = (rest.u32()?, rest.u64()?);
                    (attempts, KeptState::Waiting { due_ms, reason: rest.text()? })
                }
                1 => rest.end().map(|(attempts, end)| (attempts, KeptState::Ended(end)))?,
                _ => return Err("its state is unknown"),
            };
            let started_ms = started_ms.unwrap_or(0);
            Entry::Kept(Kept { submitted, attempts, crashes, submitted_ms, started_ms, state })
        }
        7 => Entry::Forgotten,
        _ => return Err("its kind is unknown"),
    };
    if rest.bytes.is_empty() { Ok((id, at_ms, entry)) } else { Err("bytes follow its end") }
}

const CUT: &str = "it is truncated";

struct Fields<'a> {
    bytes: &'a [u8],
}

impl<'a> Fields<'a> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], &'static str> {
        let (found, rest) = self.bytes.split_first_chunk::<N>().ok_or(CUT)?;
        self.bytes = rest;
        Ok(*found)
    }

    fn byte(&mut self) -> Result<u8, &'static str> {
        self.take::<1>().map(|[byte]| byte)
    }

    fn u32(&mut self) -> Result<u32, &'static str> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, &'static str> {
        self.take().map(u64::from_le_bytes)
    }

    fn bytes(&mut self, size: usize) -> Result<&'a [u8], &'static str> {
        let (found, rest) = self.bytes.split_at_checked(size).ok_or(CUT)?;
        self.bytes = rest;
        Ok(found)
    }

    fn sized(&mut self) -> Result<&'a [u8], &'static str> {
        let size = self.u32()?;
        self.bytes(usize::try_from(size).map_err(|_| CUT)?)
    }

    fn text(&mut self) -> Result<&'a str, &'static str> {
        std::str::from_utf8(self.sized()?).map_err(|_| "a text is not UTF-8")
    }

    fn submitted(&mut self) -> Result<Submitted<'a>, &'static str> {
        let priority = Priority::of(self.byte()?).ok_or("its priority is unknown")?;
        let size = self.byte()?;
        let work = std::str::from_utf8(self.bytes(size.into())?)
            .map_err(|_| "its kind of work is not UTF-8")?;
        let key = match self.byte()? {
            0 => None,
            1 => Some(Key { key: self.take()?, fingerprint: self.take()? }),
            _ => return Err("its flag for a key is invalid"),
        };
        let order = self.sized()?;
        let body = match self.byte()? {
            0 => StoredBody::None,
            1 => StoredBody::Inline(self.sized()?),
            2 => StoredBody::File { size: self.u64()?, sha256: self.take()? },
            _ => return Err("its kind of body is unknown"),
        };
        Ok(Submitted { priority, work, key, order, body })
    }

    fn end(&mut self) -> Result<(u32, End<'a>), &'static str> {
        let how = match self.byte()? {
            0 => How::Completed,
            1 => How::Failed,
            2 => How::Cancelled,
            _ => return Err("its outcome is unknown"),
        };
        let attempts = self.u32()?;
        Ok((attempts, End { how, result: self.sized()?, reason: self.text()? }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries() -> Vec<Entry<'static>> {
        let submitted = Submitted {
            priority: Priority::Low,
            work: "http",
            key: Some(Key { key: [1; 16], fingerprint: [2; 16] }),
            order: b"order",
            body: StoredBody::Inline(b"body"),
        };
        let end = End { how: How::Failed, result: b"result", reason: "because" };
        let file = StoredBody::File { size: 7, sha256: [3; 32] };
        let kept = |state: KeptState<'static>, started_ms| {
            let submitted = Submitted { body: file, key: None, ..submitted.clone() };
            let (attempts, crashes, submitted_ms) = (2, 1, 5);
            Entry::Kept(Kept { submitted, attempts, crashes, submitted_ms, started_ms, state })
        };
        vec![
            Entry::Submitted(submitted.clone()),
            Entry::Submitted(Submitted { body: StoredBody::None, ..submitted.clone() }),
            Entry::Started { attempt: 3 },
            Entry::Postponed { attempt: 1, due_ms: 9, reason: "busy" },
            Entry::Ended { attempts: 4, end: end.clone() },
            Entry::QueuedAgain,
            kept(KeptState::Waiting { due_ms: 8, reason: "busy" }, 0),
            kept(KeptState::Waiting { due_ms: 8, reason: "busy" }, 6),
            kept(KeptState::Ended(end.clone()), 0),
            kept(KeptState::Ended(end), 7),
            Entry::Forgotten,
        ]
    }

    #[test]
    fn every_entry_survives_and_no_cut_or_addition_passes() {
        let id = JobId(77);
        for entry in entries() {
            let bytes = encode(id, 1_234, &entry);
            assert_eq!(decode(&bytes), Ok((id, 1_234, entry.clone())));
            for cut in 0..bytes.len() {
                assert!(decode(&bytes[..cut]).is_err(), "{entry:?} cut at {cut}");
            }
            let longer = [&bytes[..], &[0]].concat();
            assert!(decode(&longer).is_err(), "{entry:?}");
        }
    }

    #[test]
    fn a_reason_is_cut_between_characters() {
        let text = "ü".repeat(REASON_SIZE_MAX);
        let cut = reason(&text);
        assert_eq!(cut.len(), REASON_SIZE_MAX);
        assert_eq!(reason("ab"), "ab");
        let odd = format!("a{text}");
        assert_eq!(reason(&odd).len(), REASON_SIZE_MAX - 1);
    }
}
