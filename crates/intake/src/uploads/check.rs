//! The unfinished uploads in `fsck`: every frame of every file, and what belongs together.
//!
//! A file may end with bytes that no request acknowledged: a frame that was cut off, one whose sectors a power cut
//! left unwritten, or held bytes without their accept frame. The next request cuts them off, and here they are
//! counted. Anything else that does not match is a finding, certainly lost if a later frame says that it was on stable
//! storage.
//!
//! Invariants: nothing is repaired or removed; a damaged upload stops no other part of the check; at most one frame is
//! in memory.

use std::collections::{HashMap, HashSet};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use forebay_base::fs::{Access, File, FileSystem};

use super::file::{First, HEADER, Tail, follows, length_of, read_first, read_header, read_payload};
use super::frame::{FrameKind, HEADER_SIZE, Header, MAGIC};
use super::{DIR, NEW, UploadId, UploadKind};
use crate::error::OpenError;

/// What a device writes as one: of a frame that a power cut caught, whole sectors are missing.
const SECTOR: u64 = 512;
/// Bytes read at a time while frames behind a damaged one are looked for.
const WINDOW: usize = 256 << 10;

/// What was found.
#[derive(Debug, Default)]
pub(crate) struct Checked {
    /// Uploads that can be read, finished ones as well.
    pub(crate) uploads: u64,
    /// Bytes of theirs that match their checksums.
    pub(crate) bytes: u64,
    /// Bytes of files behind what was acknowledged.
    pub(crate) torn_bytes: u64,
    /// Parts whose multipart upload does not exist. They expire.
    pub(crate) orphans: u64,
    /// Files that are no upload: unfinished ones, which a start removes, and foreign ones, which it leaves.
    pub(crate) leftovers: u64,
    /// Damaged files, and what is wrong with each.
    pub(crate) findings: Vec<(PathBuf, String)>,
}

/// Checks the uploads below the intake's directory `dir`.
///
/// # Errors
/// [`OpenError::Prepare`]: the directory or a file could not be read at all.
pub(crate) fn check(fs: &dyn FileSystem, dir: &Path) -> Result<Checked, OpenError> {
    let dir = dir.join(DIR);
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| OpenError::Prepare { path, source }
    };
    let mut checked = Checked::default();
    // A directory of an older version has none.
    if !fs.exists(&dir).map_err(failed(&dir))? {
        return Ok(checked);
    }
    let (mut groups, mut parts) = (HashSet::new(), HashMap::new());
    for listed in fs.list(&dir).map_err(failed(&dir))? {
        let path = dir.join(&listed.name);
        let name = listed.name.to_str().unwrap_or_default();
        let Ok(id) = name.parse::<UploadId>() else {
            if name.strip_suffix(NEW).is_none() {
                tracing::warn!(path = %path.display(), "ignored a file that is not an upload");
            }
            checked.leftovers += 1;
            continue;
        };
        let file = fs.open(&path, Access::Read).map_err(failed(&path))?;
        let found = upload(file.as_ref(), id).map_err(failed(&path))?;
        match found.kind {
            Some(UploadKind::Multipart) => drop(groups.insert(id)),
            Some(UploadKind::Part { group, .. }) => *parts.entry(group).or_insert(0) += 1,
            _ => {}
        }
        checked.uploads += u64::from(found.kind.is_some());
        checked.bytes += found.bytes;
        checked.torn_bytes += found.torn_bytes;
        checked.findings.extend(found.fault.map(|fault| (path, format!("upload {id}: {fault}"))));
    }
    checked.orphans =
        parts.iter().filter(|(group, _)| !groups.contains(*group)).map(|(_, count)| count).sum();
    Ok(checked)
}

/// One file.
#[derive(Debug, Default)]
struct Found {
    /// `None`: its first frame is damaged.
    kind: Option<UploadKind>,
    bytes: u64,
    torn_bytes: u64,
    fault: Option<String>,
}

fn upload(file: &dyn File, id: UploadId) -> io::Result<Found> {
    match read_first(file, id)? {
        None => {
            let fault =
                "its first frame is damaged; it is refused, and a day after the next start removed";
            Ok(Found { fault: Some(fault.to_owned()), ..Found::default() })
        }
        Some(First::Finished { begin, .. }) => {
            Ok(Found { kind: Some(begin.new.kind), ..Found::default() })
        }
        Some(First::Open { begin, tail }) => {
            let (valid, fault) = frames(file, id, tail)?;
            let torn_bytes = match fault {
                None => file.len()?.saturating_sub(valid.end),
                Some(_) => 0,
            };
            let fault = fault.or_else(|| {
                let length = valid.length.filter(|length| *length < valid.offset)?;
                Some(format!("it has {} bytes, and its length is {length}", valid.offset))
            });
            Ok(Found { kind: Some(begin.new.kind), bytes: valid.offset, torn_bytes, fault })
        }
    }
}

/// Follows all frames after the first.
///
/// Returns the valid part, and what is wrong behind it.
fn frames(file: &dyn File, id: UploadId, first: Tail) -> io::Result<(Tail, Option<String>)> {
    let len = file.len()?;
    let (mut at, mut valid, mut holds) = (first, first, false);
    loop {
        let Some((header, chain)) = read_header(file, len, id, at.end, at.chain)? else {
            return Ok((valid, broken(file, id, len, &at)?));
        };
        let end = at.end + HEADER + u64::from(header.payload_size);
        if header.offset != at.offset || !follows(header.kind, holds) {
            return Ok((valid, Some(format!("the frame at byte {} is out of place", at.end))));
        }
        let Some(payload) = read_payload(file, at.end, &header)? else {
            return Ok((valid, fault(file, id, &at, at.end + HEADER..end, end)?));
        };
        match header.kind {
            FrameKind::Length => {
                let Some((length, note)) = length_of(&payload) else {
                    return Ok((valid, Some(format!("the length at byte {} is invalid", at.end))));
                };
                at = Tail { length: Some(length), note, ..at };
            }
            FrameKind::Bytes | FrameKind::Held => at.offset += payload.len() as u64,
            _ => {}
        }
        holds = header.kind == FrameKind::Held;
        at = Tail { end, chain, synced: at.synced.max(header.synced), ..at };
        if !holds {
            valid = at;
        }
    }
}

/// Why there is no frame at the end of the valid ones; `None`: nothing that was acknowledged is there.
fn broken(file: &dyn File, id: UploadId, len: u64, at: &Tail) -> io::Result<Option<String>> {
    let Some(left) = len.checked_sub(at.end).filter(|left| *left >= HEADER) else {
        return Ok(None);
    };
    let mut bytes = [0; HEADER_SIZE];
    file.read_exact_at(&mut bytes, at.end)?;
    // Its payload is cut off.
    let is_short = Header::decode(&bytes, id, at.chain)
        .is_some_and(|(header, _)| u64::from(header.payload_size) > left - HEADER);
    if is_short { Ok(None) } else { fault(file, id, at, at.end..at.end + HEADER, at.end + 1) }
}

/// What is wrong with bytes of the frame at the end of the valid ones that do not match; `None`: they were not
/// acknowledged.
///
/// * `needed`: the frame was acknowledged if the file was on stable storage up to here.
fn fault(
    file: &dyn File,
    id: UploadId,
    at: &Tail,
    bytes: Range<u64>,
    needed: u64,
) -> io::Result<Option<String>> {
    let is_known = at.synced.max(synced_after(file, id, bytes.start)?) >= needed;
    if !is_known && has_unwritten(file, bytes)? {
        return Ok(None);
    }
    let found = format!("the frame at byte {} does not match its checksum", at.end);
    let offset = at.offset;
    Ok(Some(if is_known {
        format!(
            "{found}; what was acknowledged from offset {offset} on is lost and has to be sent again"
        )
    } else {
        format!(
            "{found}; unless power was lost while it was written, what was acknowledged from offset {offset} on is \
             lost; it has to be sent again"
        )
    }))
}

/// Whether what these bytes have of some sector is zero, as if it was never written.
fn has_unwritten(file: &dyn File, bytes: Range<u64>) -> io::Result<bool> {
    let mut from = bytes.start;
    while from < bytes.end {
        let end = (from / SECTOR + 1).saturating_mul(SECTOR).min(bytes.end);
        let mut bytes = vec![0; usize::try_from(end - from).unwrap_or_default()];
        file.read_exact_at(&mut bytes, from)?;
        if bytes.iter().all(|byte| *byte == 0) {
            return Ok(true);
        }
        from = end;
    }
    Ok(false)
}

/// The position up to which the file was on stable storage, as frames behind `from` say; 0 if there are none.
fn synced_after(file: &dyn File, id: UploadId, from: u64) -> io::Result<u64> {
    let (mut at, mut synced, len) = (from, 0, file.len()?);
    while let Some(left) = len.checked_sub(at).filter(|left| *left >= HEADER) {
        let size = usize::try_from(left).map_or(WINDOW, |left| left.min(WINDOW));
        let mut window = vec![0; size];
        file.read_exact_at(&mut window, at)?;
        for bytes in window.windows(HEADER_SIZE).filter(|bytes| bytes.starts_with(&MAGIC)) {
            let Some(header) = bytes.first_chunk::<HEADER_SIZE>() else { continue };
            synced =
                synced.max(Header::decode_anywhere(header, id).map_or(0, |header| header.synced));
        }
        // A header may begin in one window and end in the next.
        at += (size - (HEADER_SIZE - 1)) as u64;
    }
    Ok(synced)
}
