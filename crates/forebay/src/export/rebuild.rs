//! Splits the canonical leaf and rebuilds it.
//!
//! A leaf ends with its attributes; everything before them follows from the columns. So a row
//! stores the attributes' bytes unchanged, and the leaf is the encoded columns followed by those
//! bytes.

use anyhow::Context as _;
use forebay_events::event::Event;
use forebay_events::format::leaf;

/// Appends the leaf of an event with these columns to `out`.
///
/// # Errors
/// The columns are not those of an event.
pub(crate) fn leaf_of(
    event: &Event<'_>,
    attributes: &[u8],
    out: &mut Vec<u8>,
) -> anyhow::Result<()> {
    leaf::rebuild(event, attributes, out).context("the columns are not those of an event")
}

/// Returns the bytes of the attributes at the end of a leaf.
///
/// # Errors
/// The leaf differs from the encoding of its event, which a stored one never does.
pub(crate) fn attributes_of<'a>(leaf: &'a [u8], event: &Event<'_>) -> anyhow::Result<&'a [u8]> {
    if event.attributes.is_empty() {
        return Ok(&[]);
    }
    let mut front = Vec::with_capacity(leaf.len());
    leaf_of(event, &[], &mut front)?;
    leaf.strip_prefix(front.as_slice()).context("the stored bytes are not canonical")
}
