//! A reader of the parts of a civil time: numbers, month names, times of day, offsets.
//!
//! Invariant: every method that returns `None` for lack of a match leaves the caller to restore the
//! cursor, except [`Cursor::zone`], which consumes nothing unless it finds an offset.

use super::{FRACTION_DIGITS, SECOND};

/// Abbreviations of zones with one customary meaning, in hours. Those of North America are from
/// RFC 2822; ambiguous ones, such as IST and BST, are missing on purpose.
const ZONES: [(&[u8], i64); 26] = [
    (b"UTC", 0),
    (b"GMT", 0),
    (b"UT", 0),
    (b"WET", 0),
    (b"WEST", 1),
    (b"CET", 1),
    (b"MET", 1),
    (b"CEST", 2),
    (b"MEST", 2),
    (b"EET", 2),
    (b"EEST", 3),
    (b"MSK", 3),
    (b"EST", -5),
    (b"EDT", -4),
    (b"CDT", -5),
    (b"MST", -7),
    (b"MDT", -6),
    (b"PST", -8),
    (b"PDT", -7),
    (b"BRT", -3),
    (b"BRST", -2),
    (b"JST", 9),
    (b"KST", 9),
    (b"AEST", 10),
    (b"AEDT", 11),
    (b"NZST", 12),
];

/// Abbreviations with several meanings: a time before one of these is not known.
const AMBIGUOUS: [&[u8]; 9] =
    [b"IST", b"BST", b"CST", b"AST", b"ADT", b"GST", b"SST", b"AMT", b"ECT"];

/// A reader of the parts of a civil time.
#[derive(Debug, Clone, Copy)]
pub(in crate::input) struct Cursor<'a> {
    pub(in crate::input) rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    /// Number of digits at the front.
    pub(super) fn digits(&self) -> usize {
        self.rest.iter().take_while(|byte| byte.is_ascii_digit()).count()
    }

    /// A number of `least` to `most` digits.
    pub(in crate::input) fn number(&mut self, least: usize, most: usize) -> Option<i64> {
        let digits = self.rest.iter().take(most).take_while(|byte| byte.is_ascii_digit()).count();
        if digits < least {
            return None;
        }
        let (digits, rest) = self.rest.split_at_checked(digits)?;
        self.rest = rest;
        Some(digits.iter().fold(0, |sum, &digit| sum * 10 + i64::from(digit - b'0')))
    }

    /// Consumes the next byte if it is this one; returns whether it was.
    pub(in crate::input) fn eat(&mut self, byte: u8) -> bool {
        let found = self.rest.first() == Some(&byte);
        self.rest = self.rest.get(usize::from(found)..).unwrap_or_default();
        found
    }

    /// Consumes the next byte if it is one of these; returns it.
    pub(super) fn eat_any(&mut self, bytes: &[u8]) -> Option<u8> {
        let byte = *self.rest.first().filter(|byte| bytes.contains(byte))?;
        self.eat(byte);
        Some(byte)
    }

    /// Consumes spaces; returns whether there were any.
    pub(super) fn spaces(&mut self) -> bool {
        let mut found = false;
        while self.eat(b' ') {
            found = true;
        }
        found
    }

    /// The letters at the front.
    pub(super) fn word(&self) -> &'a [u8] {
        let letters = self.rest.iter().take_while(|byte| byte.is_ascii_alphabetic()).count();
        self.rest.get(..letters).unwrap_or_default()
    }

    /// Consumes this many bytes.
    pub(super) fn skip(&mut self, count: usize) {
        self.rest = self.rest.get(count..).unwrap_or_default();
    }

    /// Parses a month's English name, in full or its first letters, at least three.
    pub(in crate::input) fn month(&mut self) -> Option<i64> {
        const NAMES: [&str; 12] = [
            "january",
            "february",
            "march",
            "april",
            "may",
            "june",
            "july",
            "august",
            "september",
            "october",
            "november",
            "december",
        ];
        let start = self.rest.first_chunk::<3>()?.map(|byte| byte.to_ascii_lowercase());
        let month = match &start {
            b"jan" => 1,
            b"feb" => 2,
            b"mar" => 3,
            b"apr" => 4,
            b"may" => 5,
            b"jun" => 6,
            b"jul" => 7,
            b"aug" => 8,
            b"sep" => 9,
            b"oct" => 10,
            b"nov" => 11,
            b"dec" => 12,
            _ => return None,
        };
        let (word, name) = (self.word(), NAMES[month - 1].as_bytes());
        let known = name.get(..word.len()).is_some_and(|name| name.eq_ignore_ascii_case(word));
        if !known {
            return None;
        }
        self.skip(word.len());
        i64::try_from(month).ok()
    }

    /// Consumes a day of the week, `Wed` or `Wednesday,` and what separates it from a date.
    pub(super) fn weekday(&mut self) {
        let Some(start) = self.rest.first_chunk::<3>() else { return };
        let name: &[u8] = match &start.map(|byte| byte.to_ascii_lowercase()) {
            b"mon" => b"monday",
            b"tue" => b"tuesday",
            b"wed" => b"wednesday",
            b"thu" => b"thursday",
            b"fri" => b"friday",
            b"sat" => b"saturday",
            b"sun" => b"sunday",
            _ => return,
        };
        let word = self.word();
        if name.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word)) {
            self.skip(word.len());
            self.eat(b'.');
            self.eat(b',');
            self.spaces();
        }
    }

    /// Whether a fraction of a second is here, rather than a number that a comma separates from the time.
    pub(super) fn at_fraction(&self) -> bool {
        let digits = self.rest.iter().skip(1).take_while(|byte| byte.is_ascii_digit()).count();
        self.rest.first() == Some(&b'.') || (1..=FRACTION_DIGITS).contains(&digits)
    }

    /// Digits of a fraction of a second, in nanoseconds.
    pub(in crate::input) fn fraction(&mut self) -> Option<i64> {
        let digits = self.digits();
        let (fraction, rest) = self.rest.split_at_checked(digits)?;
        let nanos = fraction.iter().map(|digit| i64::from(digit - b'0'));
        let nanos = nanos.chain(std::iter::repeat(0)).take(FRACTION_DIGITS);
        let nanos = nanos.fold(0, |sum, digit| sum * 10 + digit);
        self.rest = rest;
        (digits > 0).then_some(nanos)
    }

    /// Parses `HH:mm:ss` and an optional fraction and `AM` or `PM`, in nanoseconds of the day; a
    /// leap second is the next one.
    pub(super) fn clock(&mut self) -> Option<i128> {
        let mut hour = self.number(1, 2).filter(|hour| *hour < 24)?;
        let minute = self.eat(b':').then(|| self.number(2, 2))?.filter(|minute| *minute < 60)?;
        let second =
            if self.eat(b':') { self.number(2, 2).filter(|second| *second <= 60)? } else { 0 };
        let nanos = match self.rest {
            [b'.' | b',', digit, ..] if digit.is_ascii_digit() && self.at_fraction() => {
                self.skip(1);
                self.fraction()?
            }
            // Some write the milliseconds after a colon.
            [b':', a, b, c, after @ ..]
                if [a, b, c].iter().all(|byte| byte.is_ascii_digit())
                    && !after.first().is_some_and(u8::is_ascii_digit) =>
            {
                self.skip(1);
                self.fraction()?
            }
            _ => 0,
        };
        let mut half = *self;
        half.spaces();
        let afternoon = match half.word() {
            word if word.eq_ignore_ascii_case(b"am") => Some(false),
            word if word.eq_ignore_ascii_case(b"pm") => Some(true),
            _ => None,
        };
        if let Some(afternoon) = afternoon {
            if !(1..=12).contains(&hour) {
                return None;
            }
            hour = hour % 12 + if afternoon { 12 } else { 0 };
            half.skip(2);
            *self = half;
        }
        Some(i128::from(hour * 3_600 + minute * 60 + second) * SECOND + i128::from(nanos))
    }

    /// Parses an offset in seconds, if one is here: `Z`, `+01:00`, `+0100`, `+01`, `UTC`, `GMT+2`,
    /// `CEST`, each also after spaces.
    pub(in crate::input) fn zone(&mut self) -> Option<i64> {
        let mut at = *self;
        let spaced = at.spaces();
        let offset = match at.rest {
            [b'Z' | b'z', ..] => {
                at.skip(1);
                0
            }
            [b'+' | b'-', ..] => at.signed(spaced)?,
            _ => {
                at.eat(b'(');
                let word = at.word();
                let (_, hours) = ZONES.iter().find(|(name, _)| *name == word)?;
                at.skip(word.len());
                let more = match (hours, at.rest) {
                    (0, [b'+' | b'-', digit, ..]) if digit.is_ascii_digit() => at.signed(false)?,
                    _ => 0,
                };
                at.eat(b')');
                hours * 3_600 + more
            }
        };
        let bounded = !at
            .rest
            .first()
            .is_some_and(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.'));
        if bounded {
            *self = at;
        }
        bounded.then_some(offset)
    }

    /// Whether an abbreviation with several meanings is here, also after spaces.
    pub(in crate::input) fn at_ambiguous_zone(&self) -> bool {
        let mut at = *self;
        at.spaces();
        at.eat(b'(');
        let word = at.word();
        at.skip(word.len());
        let bounded = !at
            .rest
            .first()
            .is_some_and(|next| next.is_ascii_alphanumeric() || matches!(next, b'_' | b'-' | b'.'));
        bounded && AMBIGUOUS.contains(&word)
    }

    /// Parses `+01:00`, `+0100` or `+1`; after a space two digits are those of an offset if nothing
    /// or a space follows, because they may be the beginning of a message.
    fn signed(&mut self, spaced: bool) -> Option<i64> {
        let sign = match self.eat_any(b"+-")? {
            b'+' => 1,
            _ => -1,
        };
        let hours = self.number(1, 2).filter(|hours| *hours < 24)?;
        let colon = self.eat(b':');
        let minutes = match self.number(2, 2) {
            Some(minutes) if minutes < 60 => minutes,
            None if !colon && (!spaced || self.rest.first().is_none_or(|next| *next == b' ')) => 0,
            _ => return None,
        };
        Some(sign * (hours * 3_600 + minutes * 60))
    }
}
