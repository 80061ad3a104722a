//! Text: in which encoding it is, and what it is.
//!
//! UTF-8 without controls is text before any signature is looked for. Text in another encoding is
//! recognised by a byte order mark, or because nothing else fits and no byte is a control.

use std::borrow::Cow;
use std::io::Cursor;

use file_format::FileFormat;

use super::{Category, Classified, by_extension, media_type};
use crate::names::FileName;

/// Bytes examined for a beginning.
const START_SIZE: usize = 1_024;

/// Beginnings of texts that are documents or data of a known type.
const STARTS: [(&[u8], &str); 16] = [
    (b"%PDF-", "application/pdf"),
    (b"{\\rtf", "application/rtf"),
    (b"%!PS-Adobe-", "application/postscript"),
    (b"%!PS", "application/postscript"),
    (b"-----BEGIN PGP MESSAGE-----", "application/pgp-encrypted"),
    (b"-----BEGIN PGP SIGNATURE-----", "application/pgp-signature"),
    (b"-----BEGIN PGP PUBLIC KEY BLOCK-----", "application/pgp-keys"),
    (b"-----BEGIN PGP PRIVATE KEY BLOCK-----", "application/pgp-keys"),
    (b"-----BEGIN CERTIFICATE-----", "application/x-x509-ca-cert"),
    (b"BEGIN:VCARD", "text/vcard"),
    (b"BEGIN:VCALENDAR", "text/calendar"),
    (b"WEBVTT", "text/vtt"),
    (b"Windows Registry Editor Version ", "text/x-ms-regedit"),
    (b"REGEDIT4", "text/x-ms-regedit"),
    (b"#EXTM3U", "application/vnd.apple.mpegurl"),
    (b"d8:announce", "application/x-bittorrent"),
];

/// Interpreters named in the first line of a script, without version.
const INTERPRETERS: [(&str, &str); 18] = [
    ("sh", "text/x-shellscript"),
    ("bash", "text/x-shellscript"),
    ("dash", "text/x-shellscript"),
    ("zsh", "text/x-shellscript"),
    ("ksh", "text/x-shellscript"),
    ("ash", "text/x-shellscript"),
    ("fish", "text/x-shellscript"),
    ("python", "text/x-python"),
    ("perl", "text/x-perl"),
    ("ruby", "text/x-ruby"),
    ("node", "application/javascript"),
    ("deno", "application/javascript"),
    ("php", "text/x-php"),
    ("lua", "text/x-lua"),
    ("awk", "text/x-awk"),
    ("gawk", "text/x-awk"),
    ("tclsh", "text/x-tcl"),
    ("wish", "text/x-tcl"),
];

/// Returns whether bytes are UTF-8 without controls; a character cut at their end is allowed.
#[must_use]
pub fn is_utf8(head: &[u8]) -> bool {
    utf8(head).is_some()
}

/// The text of UTF-8, without its byte order mark.
pub(super) fn utf8(head: &[u8]) -> Option<&[u8]> {
    let valid = match std::str::from_utf8(head) {
        Ok(_) => true,
        Err(error) => {
            error.error_len().is_none() && head.len() - error.valid_up_to() < 4 && head.len() > 3
        }
    };
    let text = valid && !has_control(head);
    text.then(|| head.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(head))
}

fn is_control(byte: u8) -> bool {
    byte < 0x20 && !matches!(byte, 0x07..=0x0A | 0x0C | 0x0D | 0x1B) || byte == 0x7F
}

/// Whether any byte is a control. Every byte of a block is looked at, so that the compiler can compare
/// many at once: byte by byte this was an eighth of the processor time of a small text upload.
fn has_control(bytes: &[u8]) -> bool {
    let (blocks, rest) = bytes.as_chunks::<64>();
    let in_block = |block: &[u8; 64]| {
        block.iter().fold(0, |found, &byte| found | u8::from(is_control(byte))) != 0
    };
    blocks.iter().any(in_block) || rest.iter().copied().any(is_control)
}

/// Text in UTF-16, UTF-32 or an encoding of single bytes, decoded. Bytes above 0x7F of the latter
/// are taken for Latin-1: only what is ASCII matters.
pub(super) fn other(head: &[u8]) -> Option<Cow<'_, str>> {
    if let Some(rest) = head.strip_prefix(b"\xFF\xFE\0\0") {
        return utf32(rest, u32::from_le_bytes);
    }
    if let Some(rest) = head.strip_prefix(b"\0\0\xFE\xFF") {
        return utf32(rest, u32::from_be_bytes);
    }
    if let Some(rest) = head.strip_prefix(b"\xFF\xFE") {
        return utf16(rest, u16::from_le_bytes);
    }
    if let Some(rest) = head.strip_prefix(b"\xFE\xFF") {
        return utf16(rest, u16::from_be_bytes);
    }
    if head.contains(&0) {
        return without_mark(head);
    }
    // Bytes at random end here after a few: they have controls.
    if has_control(head) {
        return None;
    }
    let above = head.iter().filter(|&&byte| byte > 0x7F).count();
    if head.len() < 64 && above * 2 > head.len() {
        return None;
    }
    Some(head.iter().map(|&byte| char::from(byte)).collect::<String>().into())
}

/// Text in UTF-16 without a byte order mark: mostly ASCII shows which half of each unit is zero.
fn without_mark(head: &[u8]) -> Option<Cow<'_, str>> {
    let (pairs, _) = head.as_chunks::<2>();
    let mut zeros = memchr::memchr_iter(0, pairs.as_flattened());
    let half = zeros.next()? % 2;
    let mut count = 1;
    for zero in zeros {
        if zero % 2 != half {
            return None;
        }
        count += 1;
    }
    if pairs.len() < 4 || count <= pairs.len() * 3 / 4 {
        return None;
    }
    utf16(head, if half == 1 { u16::from_le_bytes } else { u16::from_be_bytes })
}

fn utf16(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> Option<Cow<'static, str>> {
    let (units, _) = bytes.as_chunks::<2>();
    let mut text = String::with_capacity(units.len());
    let mut decoded = char::decode_utf16(units.iter().map(|&pair| unit(pair))).peekable();
    while let Some(character) = decoded.next() {
        match character {
            Ok(character) if is_text(character) => text.push(character),
            // Half a pair, cut at the end.
            Err(_) if decoded.peek().is_none() => {}
            _ => return None,
        }
    }
    Some(text.into())
}

fn utf32(bytes: &[u8], unit: fn([u8; 4]) -> u32) -> Option<Cow<'static, str>> {
    let (units, _) = bytes.as_chunks::<4>();
    let characters = units.iter().map(|&four| char::from_u32(unit(four)).filter(|c| is_text(*c)));
    characters.collect::<Option<String>>().map(Cow::Owned)
}

fn is_text(character: char) -> bool {
    !u8::try_from(character).is_ok_and(is_control) && !matches!(character, '\u{FFFE}' | '\u{FFFF}')
}

/// What a text is.
///
/// * `body`: its beginning as UTF-8, without a byte order mark.
pub(super) fn classify(body: &[u8], name: &FileName) -> Classified {
    let body = body.trim_ascii_start();
    let start = body.get(..START_SIZE).unwrap_or(body);
    let mime = by_markup(start)
        .or_else(|| by_start(start))
        .or_else(|| by_braces(body, name))
        .or_else(|| by_name(name))
        .or_else(|| by_shape(start));
    match mime {
        // A name alone makes no JSON.
        Some("application/json") if !matches!(body.first(), Some(b'{' | b'[')) => PLAIN,
        Some(mime) => Classified::of(mime),
        None => PLAIN,
    }
}

const PLAIN: Classified = Classified { mime: "text/plain", category: Category::Text };

/// Markup that a browser could run is found whatever the name says.
fn by_markup(start: &[u8]) -> Option<&'static str> {
    let is_xml = start.starts_with(b"<?xml");
    if starts_with_tag(start, b"<svg") || is_xml && contains(start, b"<svg") {
        return Some("image/svg+xml");
    }
    if starts_with_tag(start, b"<!doctype html") || starts_with_tag(start, b"<html") {
        return Some("text/html");
    }
    if is_xml && contains(start, b"<html") {
        return Some("application/xhtml+xml");
    }
    None
}

fn by_start(start: &[u8]) -> Option<&'static str> {
    let (_, mime) = STARTS.iter().find(|(known, _)| start.starts_with(known))?;
    let first = start.split(|&byte| byte == b'\n').next().unwrap_or_default();
    Some(if *mime == "application/postscript" && contains(first, b"EPSF") {
        "image/x-eps"
    } else {
        mime
    })
}

fn by_braces(body: &[u8], name: &FileName) -> Option<&'static str> {
    if !matches!(body.first(), Some(b'{' | b'[')) {
        return None;
    }
    match name.extension().as_deref() {
        Some("ndjson" | "jsonl") => Some("application/x-ndjson"),
        Some("json" | "geojson" | "webmanifest" | "map" | "har" | "ipynb") => {
            Some("application/json")
        }
        _ if !looks_like_json(body) => None,
        None => Some("application/json"),
        // A name of a binary type says nothing of a text.
        Some(_) => match by_extension(name) {
            Some(mime) if !is_textual(mime) => Some("application/json"),
            _ => None,
        },
    }
}

fn by_name(name: &FileName) -> Option<&'static str> {
    by_extension(name).filter(|mime| is_textual(mime) && *mime != PLAIN.mime)
}

/// What only the contents show, once the name did not.
fn by_shape(start: &[u8]) -> Option<&'static str> {
    if start.starts_with(b"<?xml") {
        let found = media_type(FileFormat::from_reader(Cursor::new(start)).ok()?);
        return Some(if is_textual(found) || found.starts_with("model/") {
            found
        } else {
            "text/xml"
        });
    }
    if start.starts_with(b"solid ") && contains(start, b"facet") {
        return Some("model/stl");
    }
    let line = start.strip_prefix(b"#!")?;
    let line = line.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let mut words = std::str::from_utf8(line).ok()?.split_ascii_whitespace();
    let program = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
    let mut interpreter = program(words.next()?);
    if interpreter == "env" {
        // Options and assignments come before the program.
        interpreter = program(words.find(|word| !word.starts_with('-') && !word.contains('='))?);
    }
    let interpreter = interpreter.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    INTERPRETERS.iter().find(|(known, _)| *known == interpreter).map(|(_, mime)| *mime)
}

/// A first quoted key or an array's first value is enough to distinguish JSON from other text in
/// braces.
fn looks_like_json(body: &[u8]) -> bool {
    let rest = body.get(1..).unwrap_or_default().trim_ascii_start();
    match (body.first(), rest.first()) {
        (Some(b'{'), Some(b'"' | b'}')) => true,
        (Some(b'['), Some(b'{' | b'[' | b'"' | b']')) => true,
        (Some(b'['), Some(b)) => b.is_ascii_digit(),
        _ => false,
    }
}

fn starts_with_tag(start: &[u8], tag: &[u8]) -> bool {
    start.get(..tag.len()).is_some_and(|s| s.eq_ignore_ascii_case(tag))
}

fn contains(haystack: &[u8], needle: &[u8]) -> bool {
    haystack.windows(needle.len()).any(|window| window.eq_ignore_ascii_case(needle))
}

pub(super) fn is_textual(mime: &str) -> bool {
    mime.starts_with("text/")
        || mime.ends_with("+xml") && mime != "image/svg+xml"
        || mime.ends_with("+json")
        || matches!(
            mime,
            "application/json"
                | "application/javascript"
                | "application/toml"
                | "application/x-sh"
                | "application/xml"
                | "application/sql"
                | "application/x-yaml"
                | "application/x-tex"
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mime(bytes: &[u8], name: &str) -> &'static str {
        super::super::classify(bytes, &FileName::parse(name).unwrap()).mime
    }

    #[test]
    fn a_control_is_found_wherever_it_is() {
        for size in [1, 2, 63, 64, 65, 127, 128, 129, 200] {
            assert!(is_utf8(&vec![b'a'; size]), "{size}");
            for at in 0..size {
                for control in [0, 6, 0x0B, 0x0E, 0x1A, 0x1C, 0x1F, 0x7F] {
                    let mut bytes = vec![b'a'; size];
                    bytes[at] = control;
                    assert!(!is_utf8(&bytes), "{control} at {at} of {size}");
                }
            }
        }
    }

    fn encoded(text: &str) -> Vec<(&'static str, Vec<u8>)> {
        let utf16 = |mark: bool, bytes: fn(u16) -> [u8; 2]| {
            let mark = mark.then_some(0xFEFF);
            mark.into_iter().chain(text.encode_utf16()).flat_map(bytes).collect::<Vec<u8>>()
        };
        let utf32 = |bytes: fn(u32) -> [u8; 4]| {
            let marked = ['\u{FEFF}'].into_iter().chain(text.chars());
            marked.flat_map(|character| bytes(u32::from(character))).collect::<Vec<u8>>()
        };
        vec![
            ("UTF-16LE", utf16(true, u16::to_le_bytes)),
            ("UTF-16BE", utf16(true, u16::to_be_bytes)),
            ("UTF-16LE without mark", utf16(false, u16::to_le_bytes)),
            ("UTF-16BE without mark", utf16(false, u16::to_be_bytes)),
            ("UTF-32LE", utf32(u32::to_le_bytes)),
            ("UTF-32BE", utf32(u32::to_be_bytes)),
        ]
    }

    #[test]
    fn text_is_text_in_every_encoding() {
        let csv = "name;city\nJürgen;Köln\nZoë;Liège\n";
        for (encoding, bytes) in encoded(csv) {
            assert_eq!(mime(&bytes, "a.csv"), "text/csv", "{encoding}");
            assert_eq!(mime(&bytes, "a"), "text/plain", "{encoding}");
            assert_eq!(mime(&bytes[..bytes.len() - 1], "a"), "text/plain", "{encoding}, cut");
        }
        for (encoding, bytes) in encoded("<?xml version=\"1.0\"?><a>ü</a>") {
            assert_eq!(mime(&bytes, "a"), "text/xml", "{encoding}");
        }
        for (encoding, bytes) in encoded("<html><script>alert(1)</script>") {
            assert_eq!(mime(&bytes, "a.txt"), "text/html", "{encoding}");
        }
        let latin: Vec<u8> = csv.chars().map(|c| u8::try_from(c).unwrap()).collect();
        assert_eq!(mime(&latin, "a.csv"), "text/csv");
        assert_eq!(mime(&latin, "a"), "text/plain");
        // Windows-1251.
        let cyrillic = b"\xcf\xf0\xe8\xe2\xe5\xf2, \xec\xe8\xf0. ".repeat(8);
        assert_eq!(mime(&cyrillic, "a"), "text/plain");
        assert_eq!(mime(&[0xEF, 0xBB, 0xBF, b'a'], "a"), "text/plain");
    }

    #[test]
    fn bytes_with_controls_or_too_few_are_not_text() {
        for bytes in [&b"ab\x01cd"[..], b"\xff\xfe\x00\xd8\x01\x00", b"\xe9\xe8\xe7", b"a\0b\0c"] {
            assert_eq!(mime(bytes, "a"), "application/octet-stream", "{bytes:?}");
        }
    }

    #[test]
    fn scripts_are_of_the_language_of_their_interpreter() {
        for (line, expected) in [
            ("#!/bin/sh", "text/x-shellscript"),
            ("#! /usr/bin/env bash", "text/x-shellscript"),
            ("#!/usr/bin/python3.11 -u", "text/x-python"),
            ("#!/usr/bin/env -S LANG=C python3 -u", "text/x-python"),
            ("#!/usr/local/bin/perl -w", "text/x-perl"),
            ("#!/usr/bin/env node", "application/javascript"),
            ("#!/usr/bin/php", "text/x-php"),
            ("#!/opt/special", "text/plain"),
            ("#!", "text/plain"),
        ] {
            assert_eq!(mime(format!("{line}\nx = 1\n").as_bytes(), "tool"), expected, "{line}");
        }
        assert_eq!(mime(b"#!/usr/bin/python\n", "a.py"), "text/x-python");
        assert_eq!(mime(b"#!/usr/bin/python\n", "a.css"), "text/css");
    }

    #[test]
    fn documents_that_are_text_are_known_by_their_beginning() {
        for (bytes, expected) in [
            (&b"{\\rtf1\\ansi}"[..], "application/rtf"),
            (b"%!PS-Adobe-3.0\n", "application/postscript"),
            (b"%!PS-Adobe-3.0 EPSF-3.0\n", "image/x-eps"),
            (b"-----BEGIN PGP MESSAGE-----\n", "application/pgp-encrypted"),
            (b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n", "application/pgp-keys"),
            (b"BEGIN:VCARD\r\n", "text/vcard"),
            (b"WEBVTT", "text/vtt"),
            (b"<?xml version=\"1.0\"?><a/>", "text/xml"),
            (b"<?xml version=\"1.0\"?><!DOCTYPE html><html/>", "application/xhtml+xml"),
            (b"solid cube\n facet normal 0 0 1\n", "model/stl"),
            (b"[1, 2]", "application/json"),
        ] {
            assert_eq!(mime(bytes, "a"), expected);
        }
        assert_eq!(mime(b"{\"a\":1}", "a.webp"), "application/json");
        assert_eq!(mime(b"{\"a\":1}", "a.md"), "text/markdown");
    }
}
