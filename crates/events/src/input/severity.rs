//! Maps the words and numbers of severities in the sources to the scale of OCSF.

use crate::event::Severity;

/// Words for a severity, in lower case.
const WORDS: &[(&str, Severity)] = &[
    ("info", Severity::Informational),
    ("informational", Severity::Informational),
    ("information", Severity::Informational),
    ("debug", Severity::Informational),
    ("trace", Severity::Informational),
    ("verbose", Severity::Informational),
    ("ok", Severity::Informational),
    ("notice", Severity::Low),
    ("low", Severity::Low),
    ("warn", Severity::Medium),
    ("warning", Severity::Medium),
    ("medium", Severity::Medium),
    ("moderate", Severity::Medium),
    ("error", Severity::High),
    ("err", Severity::High),
    ("high", Severity::High),
    ("severe", Severity::High),
    ("important", Severity::High),
    ("critical", Severity::Critical),
    ("crit", Severity::Critical),
    ("very-high", Severity::Critical),
    ("very high", Severity::Critical),
    ("alert", Severity::Critical),
    ("fatal", Severity::Fatal),
    ("emerg", Severity::Fatal),
    ("emergency", Severity::Fatal),
    ("panic", Severity::Fatal),
    ("other", Severity::Other),
];

/// Returns the severity of a word.
pub(super) fn word(word: &str) -> Option<Severity> {
    let word = word.trim_ascii();
    WORDS.iter().find(|(known, _)| known.eq_ignore_ascii_case(word)).map(|(_, severity)| *severity)
}

/// Whether a word for a severity is a plain word of messages, too: only in a field or in brackets it is one.
pub(super) fn is_plain(word: &str) -> bool {
    const PLAIN: [&str; 8] =
        ["ok", "low", "medium", "moderate", "high", "important", "other", "very high"];
    PLAIN.iter().any(|plain| plain.eq_ignore_ascii_case(word))
}

/// Syslog's severities, 0 (emergency) to 7 (debug).
pub(super) fn syslog(code: u8) -> Severity {
    match code {
        0 => Severity::Fatal,
        1 | 2 => Severity::Critical,
        3 => Severity::High,
        4 => Severity::Medium,
        5 => Severity::Low,
        _ => Severity::Informational,
    }
}

/// The scale of CEF and LEEF, 0 to 10, or CEF's words for it.
pub(super) fn zero_to_ten(text: &str) -> Severity {
    match text.trim_ascii().parse::<u8>() {
        Ok(0..=3) => Severity::Low,
        Ok(4..=6) => Severity::Medium,
        Ok(7..=8) => Severity::High,
        Ok(9..=10) => Severity::Critical,
        Ok(_) => Severity::Unknown,
        Err(_) => word(text).unwrap_or_default(),
    }
}

/// Suricata's `alert.severity`: 1 is the worst.
pub(super) fn suricata(code: &str) -> Severity {
    match code {
        "1" => Severity::High,
        "2" => Severity::Medium,
        "3" => Severity::Low,
        "4" => Severity::Informational,
        _ => Severity::Unknown,
    }
}

/// The levels of Windows events, 1 (critical) to 5 (verbose); 0 is what the provider always logs.
pub(super) fn windows(level: &str) -> Option<Severity> {
    Some(match level {
        "1" => Severity::Critical,
        "2" => Severity::High,
        "3" => Severity::Medium,
        "0" | "4" | "5" => Severity::Informational,
        _ => return None,
    })
}

/// PostgreSQL's own levels, before a colon (manual, "Message Severity Levels").
pub(super) fn postgresql(word: &[u8]) -> Option<Severity> {
    match word {
        b"LOG:" | b"DEBUG1:" | b"DEBUG2:" | b"DEBUG3:" | b"DEBUG4:" | b"DEBUG5:" => {
            Some(Severity::Informational)
        }
        _ => None,
    }
}

/// `MongoDB`'s letters, in the field `s` of its log.
pub(super) fn mongodb(letter: &str) -> Option<Severity> {
    Some(match letter {
        "F" => Severity::Fatal,
        "E" => Severity::High,
        "W" => Severity::Medium,
        "I" | "D" | "D1" | "D2" | "D3" | "D4" | "D5" => Severity::Informational,
        _ => return None,
    })
}

/// `GuardDuty`'s numbers, with one digit after the point.
pub(super) fn guard_duty(number: &str) -> Option<Severity> {
    let whole = number.split_once('.').map_or(number, |(whole, _)| whole);
    Some(match whole.parse::<u8>().ok()? {
        1..=3 => Severity::Low,
        4..=6 => Severity::Medium,
        7..=8 => Severity::High,
        9..=10 => Severity::Critical,
        _ => return None,
    })
}

/// The level of a rule: Wazuh's numbers 0 to 16, by the limits of its dashboard, of which 0 to 3 are
/// events without relevance or authorized ones; or Sigma's words.
pub(super) fn rule(level: &str) -> Option<Severity> {
    match level.parse::<u8>() {
        Ok(0..=3) => Some(Severity::Informational),
        Ok(4..=6) => Some(Severity::Low),
        Ok(7..=11) => Some(Severity::Medium),
        Ok(12..=14) => Some(Severity::High),
        Ok(15..=16) => Some(Severity::Critical),
        Ok(_) => None,
        Err(_) => word(level),
    }
}

/// OpenTelemetry's numbers, 1 (trace) to 24 (fatal).
pub(super) fn telemetry(code: u8) -> Severity {
    match code {
        1..=12 => Severity::Informational,
        13..=16 => Severity::Medium,
        17..=20 => Severity::High,
        21..=24 => Severity::Fatal,
        _ => Severity::Unknown,
    }
}

/// OCSF's own numbers.
pub(super) fn ocsf(code: &str) -> Option<Severity> {
    code.parse().ok().and_then(Severity::from_code)
}

/// A word, a number of OCSF, or a level of loggers that count in tens (30 informational, 40
/// warning, 50 error, 60 fatal).
pub(super) fn any(text: &str) -> Option<Severity> {
    match text {
        "10" | "20" | "30" => Some(Severity::Informational),
        "40" => Some(Severity::Medium),
        "50" => Some(Severity::High),
        "60" => Some(Severity::Fatal),
        _ => ocsf(text).or_else(|| word(text)),
    }
}
