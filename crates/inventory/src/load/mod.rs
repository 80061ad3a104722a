//! Generated inventories for tests and benchmarks: reproducible from a seed, in five shapes.
//!
//! Objects are in random order, as in a real inventory: object `i` is derived from a hash of `i`.

mod source;
mod write;

pub use source::MadeUpSource;
pub use write::{Format, Layout, WriteError};

use crate::object::Month;

/// The shape of a generated inventory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Few prefixes, many levels, a hundred objects in each: logs by service, day and hour.
    DeepNarrow,
    /// Hardly one object per prefix, two levels: the files of very many users of many tenants.
    WideShallow,
    /// Twenty children per prefix, four levels.
    Balanced,
    /// A mixture, as in real buckets: logs, a data lake, backups, user media.
    S3Realistic,
    /// One prefix per object, all of them siblings.
    WideSingleLevel,
}

/// A generated object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MadeUp {
    /// Bytes.
    pub size: u64,
    /// The name of its class.
    pub class: &'static str,
    /// When it was last modified, milliseconds since 1970.
    pub modified_ms: i64,
}

impl MadeUp {
    /// The month in which it was last modified.
    #[must_use]
    pub fn month(&self) -> Month {
        Month::from_unix_ms(self.modified_ms)
    }
}

/// A generated inventory.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// Its shape.
    pub shape: Shape,
    /// The seed, which distinguishes it from others of its shape.
    pub seed: u64,
}

const CLASSES: [&str; 5] = ["STANDARD", "STANDARD_IA", "GLACIER", "GLACIER_IR", "DEEP_ARCHIVE"];
/// 2021-01-01.
const FIRST_MS: u64 = 1_609_459_200_000;
const MS_PER_YEAR: u64 = 365 * 86_400_000;
/// Tenants of the wide shape, and the users each may have.
const TENANTS: u64 = 5_000;
const USERS: u64 = 1_000;
/// Services and days of the deep shape.
const SERVICES: u64 = 3;
const DAYS: u64 = 270;

/// Mixes the bits of a number.
fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ mixed >> 31
}

impl Shape {
    /// All shapes.
    pub const ALL: [Self; 5] = [
        Self::DeepNarrow,
        Self::WideShallow,
        Self::Balanced,
        Self::S3Realistic,
        Self::WideSingleLevel,
    ];

    /// The shape with a name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|shape| shape.name() == name)
    }

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::DeepNarrow => "deep_narrow",
            Self::WideShallow => "wide_shallow",
            Self::Balanced => "balanced",
            Self::S3Realistic => "s3_realistic",
            Self::WideSingleLevel => "wide_single_level",
        }
    }
}

impl Load {
    /// Object number `i`; its key replaces the contents of `key`.
    pub fn object(&self, i: u64, key: &mut Vec<u8>) -> MadeUp {
        let mixed = mix(i ^ mix(self.seed));
        key.clear();
        self.shape.put_dir(mixed, i, key);
        // Seven digits while they are sufficient to distinguish objects.
        put_number(key, b"part-", i, 10, if i < 10_000_000 { 7 } else { 16 });
        key.extend_from_slice(b".parquet");
        let more = mix(mixed);
        // Sizes from a few bytes to a gigabyte, most of them around a megabyte.
        let bits = 6 + (more & 15) + (more >> 4 & 7) + (more >> 7 & 3);
        let size = (more >> 9) & ((1 << bits) - 1);
        let class = match more >> 40 & 63 {
            0..32 => CLASSES[0],
            32..48 => CLASSES[1],
            48..56 => CLASSES[2],
            56..61 => CLASSES[3],
            _ => CLASSES[4],
        };
        let modified = FIRST_MS + mix(more) % (4 * MS_PER_YEAR);
        MadeUp { size, class, modified_ms: modified.cast_signed() }
    }
}

impl Shape {
    /// Appends the directory of an object.
    fn put_dir(self, mixed: u64, i: u64, key: &mut Vec<u8>) {
        match self {
            Self::WideShallow => {
                let user = mixed % (TENANTS * USERS);
                put_number(key, b"tenant-", user / USERS, 10, 5);
                put_number(key, b"/user-", mix(user), 16, 8);
            }
            Self::DeepNarrow => put_log(mixed, SERVICES, DAYS, key),
            Self::Balanced => {
                for level in 0..3 {
                    put_number(key, b"/branch-" as &[u8], (mixed >> (8 * level)) % 20, 10, 2);
                }
                put_number(key, b"/leaf-", (mixed >> 32) % 20, 10, 2);
                key.remove(0);
            }
            Self::WideSingleLevel => put_number(key, b"item-", mix(i), 16, 10),
            Self::S3Realistic => match mixed >> 60 {
                0..5 => {
                    key.extend_from_slice(b"logs/");
                    put_log(mixed, 40, 365, key);
                }
                5..9 => {
                    put_number(key, b"lake/table=", mixed % 300, 10, 4);
                    put_number(key, b"/dt=2024-", (mixed >> 16) % 12 + 1, 10, 2);
                    put_number(key, b"-", (mixed >> 24) % 28 + 1, 10, 2);
                    put_number(key, b"/bucket=", (mixed >> 32) % 16, 10, 2);
                }
                9..11 => {
                    put_number(key, b"backups/host-", mixed % 2_000, 10, 4);
                    put_number(key, b"/week-", (mixed >> 16) % 52, 10, 2);
                }
                _ => {
                    let user = mixed % 400_000;
                    put_number(key, b"media/", user % 256, 16, 2);
                    put_number(key, b"/", mix(user), 16, 8);
                    key.extend_from_slice(if mixed >> 59 & 1 == 0 {
                        b"/photos"
                    } else {
                        b"/clips"
                    });
                }
            },
        }
        key.push(b'/');
    }
}

fn put_log(mixed: u64, services: u64, days: u64, key: &mut Vec<u8>) {
    let day = (mixed >> 20) % days;
    put_number(key, b"service-", mixed % services, 10, 3);
    put_number(key, b"/year=", 2021 + day / 365, 10, 4);
    put_number(key, b"/month=", day % 365 / 31 + 1, 10, 2);
    put_number(key, b"/day=", day % 365 % 31 + 1, 10, 2);
    put_number(key, b"/hour=", (mixed >> 40) % 24, 10, 2);
}

/// Appends a word and the last `digits` digits of a number.
fn put_number(key: &mut Vec<u8>, word: &[u8], number: u64, base: u64, digits: usize) {
    key.extend_from_slice(word);
    let start = key.len();
    let mut rest = number;
    for _ in 0..digits {
        key.push(b"0123456789abcdef"[usize::try_from(rest % base).unwrap_or(0)]);
        rest /= base;
    }
    if let Some(digits) = key.get_mut(start..) {
        digits.reverse();
    }
}

#[cfg(test)]
mod tests;
