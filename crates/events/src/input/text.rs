//! Texts of records for the short fields of an event.

use std::borrow::Cow;

pub(super) use crate::event::addresses::address;
use crate::format::leaf::TEXT_SIZE_MAX;

/// Returns the text if it fits an event's field; otherwise it stays only in the raw bytes.
pub(super) fn fitting(text: Cow<'_, str>) -> Cow<'_, str> {
    if fits(&text) { text } else { Cow::Borrowed("") }
}

/// Returns bytes as such a text; `None` also if they are not UTF-8.
pub(super) fn fitting_bytes(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).ok().filter(|text| fits(text)).unwrap_or_default()
}

fn fits(text: &str) -> bool {
    text.len() <= TEXT_SIZE_MAX && !text.bytes().any(|byte| byte < 0x20 || byte == 0x7f)
}
