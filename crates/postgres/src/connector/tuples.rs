//! Parsing tuples of binary COPY: their ends and their fields.

use std::ops::Range;

use forebay_sdk::connector::Result;
use forebay_sdk::error::ConnectorError;

/// A tuple in a sequence.
#[derive(Debug, Clone)]
pub(super) struct Tuple {
    /// Its bytes.
    pub(super) bytes: Range<usize>,
}

fn broken() -> ConnectorError {
    ConnectorError::data("tuples of binary COPY", "the data ends inside a tuple")
}

fn take<const N: usize>(bytes: &[u8], at: &mut usize) -> Option<[u8; N]> {
    let taken = bytes.get(*at..)?.first_chunk::<N>()?;
    *at += N;
    Some(*taken)
}

/// The fields of the tuple at `at`, which is advanced past it. `None` is NULL.
fn fields<'a>(bytes: &'a [u8], at: &mut usize, into: &mut Vec<Option<&'a [u8]>>) -> Option<()> {
    let count = i16::from_be_bytes(take(bytes, at)?);
    for _ in 0..count {
        let length = i32::from_be_bytes(take(bytes, at)?);
        let Ok(length) = usize::try_from(length) else {
            into.push(None);
            continue;
        };
        let end = at.checked_add(length)?;
        into.push(Some(bytes.get(*at..end)?));
        *at = end;
    }
    Some(())
}

/// The position of each tuple.
pub(super) fn split(bytes: &[u8]) -> Result<Vec<Tuple>> {
    let (mut tuples, mut at, mut ignored) = (Vec::new(), 0, Vec::new());
    while at < bytes.len() {
        let begin = at;
        ignored.clear();
        fields(bytes, &mut at, &mut ignored).ok_or_else(broken)?;
        tuples.push(Tuple { bytes: begin..at });
    }
    Ok(tuples)
}

/// The fields of all tuples, in sequence.
pub(super) fn all_fields(bytes: &[u8]) -> Result<Vec<Option<&[u8]>>> {
    let (mut all, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        fields(bytes, &mut at, &mut all).ok_or_else(broken)?;
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tuples_are_found_and_a_cut_one_is_an_error() {
        let two = [&[0, 2, 0, 0, 0, 1, 7, 255, 255, 255, 255][..], &[0, 1, 0, 0, 0, 0]].concat();
        let tuples = split(&two).unwrap();
        assert_eq!(tuples.iter().map(|t| t.bytes.clone()).collect::<Vec<_>>(), [0..11, 11..17]);
        assert_eq!(all_fields(&two).unwrap(), [Some(&[7][..]), None, Some(&[])]);
        for end in [1, 5, 6, 10, 12, 16] {
            assert!(split(&two[..end]).is_err(), "{end}");
        }
    }
}
