//! Times in forms that one product has, recognised by what surrounds them.
//!
//! | product | form |
//! |---|---|
//! | Cisco IOS XR | `RP/0/RSP0/CPU0:Jul 14 15:00:00.123 UTC: ` |
//! | uWSGI | `[pid: 1\|app: 0\|req: 1/1] ... {40 vars in 600 bytes} [Fri Jul 14 15:00:00 2017] ` |
//! | Zabbix | `1234:20170714:150000.123 ` |
//! | Configuration Manager | `<![LOG[...]LOG]!><time="15:00:00.123-120" date="07-14-2017" ` |
//! | WebLogic | `####<Jul 14, 2017 3:00:00,123 PM UTC> <...` with the milliseconds in the tenth field |
//! | Db2 | `2017-07-14-15.00.00.123456+120 ` |
//! | MySQL up to 5.6 | `170714 15:00:00 [Note] ` |
//! | Spark, Hadoop | `17/07/14 15:00:00 INFO `, `170714 150000 148 INFO ` |
//! | Android's logcat | `07-14 15:00:00.123  1702  2395 D Tag: `, `07-14 15:00:00.123 D/Tag( 1702): ` |
//! | daemontools, runit | `@40000000596891300754d4c0 `, TAI64N |
//! | WMI | `20170714150000.123456+120`, a field |
//! | spreadsheets | `7/14/17 15:00`, a field |

use super::{Cursor, SECOND, Unit, When, civil, epoch, written};

/// Maximum number of bytes before the time of a line, where a name or a request precedes it.
const LEAD_MAX: usize = 2_048;
/// Levels as Log4j writes them.
const LEVELS: [&[u8]; 6] = [b"INFO", b"WARN", b"ERROR", b"DEBUG", b"TRACE", b"FATAL"];
/// Labels of TAI64 begin with 2 to the 62nd, and daemontools adds ten seconds to the time.
const TAI_S: u64 = (1 << 62) + 10;

/// Parses the time of a line of one of these products; returns what follows it.
pub(in crate::input) fn own(line: &[u8], now_ms: i64) -> Option<(When, &[u8])> {
    match line {
        [b'R', b'P', b'/', ..] | [b'L', b'C', b'/', ..] => ios_xr(line, now_ms),
        [b'[', b'p', b'i', b'd', b':', ..] => uwsgi(line),
        [b'<', b'!', b'[', b'L', b'O', b'G', b'[', ..] => configuration_manager(line),
        [b'#', b'#', b'#', b'#', b'<', ..] => weblogic(line),
        [b'@', ..] => tai(line),
        [b'0'..=b'9' | b' ', ..] => {
            let mut cursor = Cursor { rest: line };
            let when = match (cursor.digits(), line.get(2)) {
                (2, Some(b'-')) => logcat(&mut cursor, now_ms)?,
                (4, _) if line.get(10) == Some(&b'-') => db2(&mut cursor)?,
                (6, _) => mysql(&mut cursor).or_else(|| hadoop(&mut Cursor { rest: line }))?,
                (2, Some(b'/')) => spark(&mut cursor)?,
                _ => zabbix(&mut cursor)?,
            };
            Some((when, cursor.rest))
        }
        _ => None,
    }
}

fn ios_xr(line: &[u8], now_ms: i64) -> Option<(When, &[u8])> {
    const NODE_SIZE_MAX: usize = 40;
    let node = line.iter().take(NODE_SIZE_MAX).position(|byte| *byte == b':')?;
    let (node, rest) = line.split_at_checked(node + 1)?;
    if node.contains(&b' ') {
        return None;
    }
    let mut cursor = Cursor { rest };
    let when = written::read(&mut cursor, Some(now_ms))?;
    cursor.spaces();
    cursor.eat(b':').then_some((when, cursor.rest))
}

fn uwsgi(line: &[u8]) -> Option<(When, &[u8])> {
    let start = line.get(..LEAD_MAX).unwrap_or(line);
    let mark = b" bytes} [";
    let time = memchr::memmem::find(start, mark)? + mark.len();
    let mut cursor = Cursor { rest: line.get(time..)? };
    let when = written::read(&mut cursor, None)?;
    cursor.eat(b']').then_some((when, cursor.rest))
}

/// The bias is in minutes and leads from the time to UTC. The text is the sender's, so the last mark
/// counts.
fn configuration_manager(line: &[u8]) -> Option<(When, &[u8])> {
    let mark = b"]LOG]!><time=\"";
    let time = memchr::memmem::rfind(line, mark)? + mark.len();
    let mut cursor = Cursor { rest: line.get(time..)? };
    let clock = cursor.clock()?;
    let bias = minutes(&mut cursor)?;
    cursor.rest = cursor.rest.strip_prefix(b"\" date=\"")?;
    let month = cursor.number(1, 2)?;
    let day = cursor.eat(b'-').then(|| cursor.number(1, 2))??;
    let year = cursor.eat(b'-').then(|| cursor.number(4, 4))??;
    let ns = civil((year, month, day), clock, -bias)?;
    Some((When::exact(ns).plausible()?, b""))
}

fn weblogic(line: &[u8]) -> Option<(When, &[u8])> {
    let start = line.get(..LEAD_MAX).unwrap_or(line);
    let time = start.strip_prefix(b"####<")?;
    let mut cursor = Cursor { rest: time };
    let when = written::read(&mut cursor, None).filter(|_| cursor.rest.starts_with(b"> <"));
    let mut fields = std::str::from_utf8(start).ok()?.split("> <");
    let exact = fields.nth(9).filter(|field| field.len() == 13);
    let exact = exact.and_then(|field| epoch(field, Unit::Guess)).map(When::exact);
    let end = memchr::memchr(b'>', time)?;
    Some((exact.or(when)?, time.get(end + 1..)?))
}

fn db2(cursor: &mut Cursor<'_>) -> Option<When> {
    let year = cursor.number(4, 4)?;
    let month = cursor.eat(b'-').then(|| cursor.number(2, 2))??;
    let day = cursor.eat(b'-').then(|| cursor.number(2, 2))??;
    let hour = cursor.eat(b'-').then(|| cursor.number(2, 2))?.filter(|hour| *hour < 24)?;
    let minute = cursor.eat(b'.').then(|| cursor.number(2, 2))?.filter(|minute| *minute < 60)?;
    let second = cursor.eat(b'.').then(|| cursor.number(2, 2))?.filter(|second| *second < 60)?;
    let nanos = cursor.eat(b'.').then(|| cursor.fraction())??;
    let offset = minutes(cursor)?;
    let clock = i128::from(hour * 3_600 + minute * 60 + second) * SECOND + i128::from(nanos);
    let ns = civil((year, month, day), clock, offset)?;
    cursor.rest.starts_with(b" ").then_some(When::exact(ns))?.plausible()
}

fn mysql(cursor: &mut Cursor<'_>) -> Option<When> {
    let date = (2000 + cursor.number(2, 2)?, cursor.number(2, 2)?, cursor.number(2, 2)?);
    if !cursor.spaces() {
        return None;
    }
    let ns = civil(date, cursor.clock()?, 0)?;
    cursor.rest.starts_with(b" [").then_some(When { ns, zoned: false })?.plausible()
}

/// Hadoop before it wrote the time as Spark does: the number after the time is the thread's.
fn hadoop(cursor: &mut Cursor<'_>) -> Option<When> {
    let date = (2000 + cursor.number(2, 2)?, cursor.number(2, 2)?, cursor.number(2, 2)?);
    if !cursor.eat(b' ') || cursor.digits() != 6 {
        return None;
    }
    let when = digits(cursor, date)?;
    let mut level = *cursor;
    let threaded = level.eat(b' ') && level.number(1, 10).is_some() && level.eat(b' ');
    (threaded && LEVELS.contains(&level.word())).then_some(when)
}

/// A month and a day, and after the time the process, the thread and the letter of a level, or the
/// letter before the tag.
fn logcat(cursor: &mut Cursor<'_>, now_ms: i64) -> Option<When> {
    let month = cursor.number(2, 2)?;
    let day = cursor.eat(b'-').then(|| cursor.number(2, 2))??;
    if !cursor.eat(b' ') || cursor.digits() != 2 {
        return None;
    }
    let clock = cursor.clock()?;
    let mut after = *cursor;
    let separate = after.spaces();
    let numbered = after.number(1, 10).is_some();
    if numbered && !(after.spaces() && after.number(1, 10).is_some() && after.spaces()) {
        return None;
    }
    after.eat_any(b"VDIWEFAS")?;
    let bounded = if numbered { after.eat(b' ') } else { after.eat(b'/') };
    let ns = super::without_year(month, day, clock, 0, now_ms)?;
    (separate && bounded).then_some(When { ns, zoned: false })?.plausible()
}

fn spark(cursor: &mut Cursor<'_>) -> Option<When> {
    let year = 2000 + cursor.number(2, 2)?;
    let month = cursor.eat(b'/').then(|| cursor.number(2, 2))??;
    let day = cursor.eat(b'/').then(|| cursor.number(2, 2))??;
    let clock = cursor.eat(b' ').then(|| cursor.clock())??;
    let mut level = *cursor;
    let known = level.spaces() && LEVELS.contains(&level.word());
    let ns = civil((year, month, day), clock, 0)?;
    known.then_some(When { ns, zoned: false })?.plausible()
}

fn zabbix(cursor: &mut Cursor<'_>) -> Option<When> {
    cursor.spaces();
    cursor.number(1, 7)?;
    if !cursor.eat(b':') || cursor.digits() != 8 {
        return None;
    }
    let date = (cursor.number(4, 4)?, cursor.number(2, 2)?, cursor.number(2, 2)?);
    if !cursor.eat(b':') || cursor.digits() != 6 {
        return None;
    }
    let when = digits(cursor, date)?;
    cursor.rest.starts_with(b" ").then_some(when)
}

fn tai(line: &[u8]) -> Option<(When, &[u8])> {
    let (label, rest) = line.get(1..)?.split_at_checked(24)?;
    if rest.first().is_some_and(|next| *next != b' ') {
        return None;
    }
    let label = std::str::from_utf8(label).ok()?;
    let number = |digits: &str| u64::from_str_radix(digits, 16).ok();
    let seconds = number(label.get(..16)?)?.checked_sub(TAI_S)?;
    let nanos = number(label.get(16..)?).filter(|nanos| *nanos < 1_000_000_000)?;
    let ns = i128::from(seconds) * SECOND + i128::from(nanos);
    Some((When::exact(i64::try_from(ns).ok()?).plausible()?, rest))
}

/// Parses a field as WMI writes it: digits, six of a fraction, and an offset in minutes.
pub(super) fn dmtf(text: &str) -> Option<When> {
    let [.., b'.', _, _, _, _, _, _, b'+' | b'-', _, _, _] = text.as_bytes() else { return None };
    let mut cursor = Cursor { rest: text.as_bytes() };
    if cursor.digits() != 14 {
        return None;
    }
    let date = (cursor.number(4, 4)?, cursor.number(2, 2)?, cursor.number(2, 2)?);
    let local = digits(&mut cursor, date)?;
    let offset = minutes(&mut cursor)?;
    let ns = i128::from(local.ns) - i128::from(offset) * SECOND;
    cursor.rest.is_empty().then_some(When::exact(i64::try_from(ns).ok()?))?.plausible()
}

/// Parses a field as a spreadsheet in American English writes it, `7/14/17 15:00`. The day must be one
/// that no month has.
pub(in crate::input) fn spreadsheet(field: &[u8]) -> Option<When> {
    let mut cursor = Cursor { rest: field };
    let month = cursor.number(1, 2)?;
    let day = cursor.eat(b'/').then(|| cursor.number(1, 2))?.filter(|day| *day > 12)?;
    let year = 2000 + cursor.eat(b'/').then(|| cursor.number(2, 2))??;
    let clock = cursor.eat(b' ').then(|| cursor.clock())??;
    let ns = civil((year, month, day), clock, 0).filter(|_| cursor.rest.is_empty())?;
    When { ns, zoned: false }.plausible()
}

/// A time of day as six digits, with a fraction.
fn digits(cursor: &mut Cursor<'_>, date: (i64, i64, i64)) -> Option<When> {
    let ns = written::compact(cursor, date)?.time(0, None)?;
    When { ns, zoned: false }.plausible()
}

/// A sign and three digits: minutes, returned as seconds.
fn minutes(cursor: &mut Cursor<'_>) -> Option<i64> {
    let sign = if cursor.eat_any(b"+-")? == b'+' { 1 } else { -1 };
    if cursor.digits() != 3 {
        return None;
    }
    Some(sign * cursor.number(3, 3).filter(|minutes| *minutes <= 14 * 60)? * 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2023-10-11T15:00:00Z.
    const THREE_PM: i64 = 1_697_036_400_000_000_000;
    const MILLIS: i64 = 123_000_000;
    const HOUR: i64 = 3_600_000_000_000;

    #[test]
    fn a_time_is_read_in_the_form_of_its_product() {
        for (line, ns, zoned) in [
            ("RP/0/RSP0/CPU0:Oct 11 15:00:00.123 UTC: config[65701]: %A-5-B : c", MILLIS, true),
            ("LC/0/0/CPU0:2023 Oct 11 15:00:00.123 : ifmgr[204]: %A-3-B : c", MILLIS, false),
            (
                "[pid: 1|app: 0|req: 1/1] 127.0.0.1 () {40 vars in 600 bytes} \
                 [Wed Oct 11 15:00:00 2023] GET / => generated 12 bytes",
                0,
                false,
            ),
            ("  1234:20231011:150000.123 starting agent", MILLIS, false),
            (
                "<![LOG[a ]LOG]!><time=\"1:00:00.000+000\" date=\"01-02-2003\"]LOG]!>\
                 <time=\"15:00:00.123-120\" date=\"10-11-2023\" component=\"C\">",
                MILLIS - 2 * HOUR,
                true,
            ),
            ("####<Oct 11, 2023 3:00:00,123 PM UTC> <Info> <Server>", MILLIS, true),
            (
                "####<Oct 11, 2023 5:00:00 PM IST> <Info> <S> <h> <A> <m> <> <> <> \
                 <1697036400123> <BEA-000000> <text>",
                MILLIS,
                true,
            ),
            ("2023-10-11-15.00.00.123000+120 I1A1234 LEVEL: Info", MILLIS - 2 * HOUR, true),
            ("231011 15:00:00 [Note] mysqld: ready", 0, false),
            ("231011  3:00:00 [Note] mysqld: ready", -12 * HOUR, false),
            ("23/10/11 15:00:00 INFO SparkContext: Running", 0, false),
            ("231011 150000 148 INFO dfs.DataNode: received", 0, false),
            ("10-11 15:00:00.123  1702  2395 D WindowManager: text", MILLIS, false),
            ("10-11 15:00:00.123 W/ActivityManager( 1702): text", MILLIS, false),
            ("@400000006526b87a0754d4c0 starting delivery", MILLIS, true),
        ] {
            let found = own(line.as_bytes(), 1_700_000_000_000).map(|(when, _)| when);
            assert_eq!(found, Some(When { ns: THREE_PM + ns, zoned }), "{line}");
        }
        let wmi = |text: &str| dmtf(text).map(|when| (when.ns - THREE_PM, when.zoned));
        assert_eq!(wmi("20231011150000.123000+120"), Some((MILLIS - 2 * HOUR, true)));
        assert_eq!(wmi("20231011150000.123000-000"), Some((MILLIS, true)));
        let two_days_later = When { ns: THREE_PM + 2 * 24 * HOUR, zoned: false };
        assert_eq!(spreadsheet(b"10/13/23 15:00"), Some(two_days_later));
    }

    #[test]
    fn what_is_in_no_such_form_is_left_to_others() {
        for line in [
            "",
            "@",
            "RP/",
            "RP/0 /CPU0:Oct 11 15:00:00 UTC: x",
            "23/10/11 15:00:00 ready",
            "23/13/11 15:00:00 INFO x",
            "231011 15:00:00 ready",
            "231011 150000 148 ready",
            "231011 150000 INFO ready",
            "231311 150000 148 INFO x",
            "231011 156000 148 INFO x",
            "10-11 15:00:00.123 ready",
            "10-11 15:00:00.123 1702 D Tag: x",
            "10-11 15:00:00.123 1702 2395 Dump",
            "10-11 15:00:00.123D/Tag( 1702): x",
            "13-11 15:00:00.123  1702  2395 D Tag: x",
            "1234:20231311:150000.123 x",
            "12345678:20231011:150000.123 x",
            "2023-10-11-24.00.00.123456+120 x",
            "2023-10-11-15.00.00.123456+0200 x",
            "@400000006526b87a0754d4c x",
            "@400000006526b87affffffff x",
            "@000000000000000000000000 x",
            "<![LOG[x]LOG]!><time=\"15:00:00.123\" date=\"10-11-2023\">",
            "<![LOG[x]LOG]!><time=\"15:00:00.123+000\" date=\"2023-10-11\">",
            "####<soon> <Info>",
            "[pid: 1] {1 vars in 2 bytes} [soon]",
        ] {
            assert_eq!(
                own(line.as_bytes(), 1_700_000_000_000).map(|(when, _)| when),
                None,
                "{line}"
            );
        }
        for text in ["20231011150000.123456+0120", "20231011150000.12345+120", "é.123456+120", ""]
        {
            assert_eq!(dmtf(text), None, "{text}");
        }
        for field in ["10/11/23 15:00", "13/14/23 15:00", "10/13/2023 15:00", "10/13/23", ""] {
            assert_eq!(spreadsheet(field.as_bytes()), None, "{field}");
        }
    }
}
