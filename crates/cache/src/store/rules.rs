//! Settings of all shards: the hash, compression, eviction.
//!
//! Everything except the hash can change while the store is used (`CONFIG SET`), so it is kept in
//! atomics or behind a lock that is held only briefly.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};

use parking_lot::RwLock;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::compress::Codec;
use super::entry;
use crate::glob;

/// Which keys are evicted first when the memory limit is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum Policy {
    /// S3-FIFO (Yang et al., SOSP 2023): keys used once are evicted soon, others stay.
    S3Fifo = 0,
    /// None: writes that need memory are refused. For data that must not be lost, such as a queue.
    #[default]
    NoEviction = 1,
    /// The least recently used of a sample.
    Lru = 2,
    /// The least recently used of a sample of keys with a deadline.
    VolatileLru = 3,
    /// The least often used of a sample.
    Lfu = 4,
    /// The least often used of a sample of keys with a deadline.
    VolatileLfu = 5,
    /// A random key.
    Random = 6,
    /// A random key with a deadline.
    VolatileRandom = 7,
    /// The key of a sample whose deadline is nearest.
    VolatileTtl = 8,
}

impl Policy {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::S3Fifo,
        Self::NoEviction,
        Self::Lru,
        Self::VolatileLru,
        Self::Lfu,
        Self::VolatileLfu,
        Self::Random,
        Self::VolatileRandom,
        Self::VolatileTtl,
    ];

    /// The name in the configuration, that of Redis where it has one.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::S3Fifo => "allkeys-s3fifo",
            Self::NoEviction => "noeviction",
            Self::Lru => "allkeys-lru",
            Self::VolatileLru => "volatile-lru",
            Self::Lfu => "allkeys-lfu",
            Self::VolatileLfu => "volatile-lfu",
            Self::Random => "allkeys-random",
            Self::VolatileRandom => "volatile-random",
            Self::VolatileTtl => "volatile-ttl",
        }
    }

    /// Parses the name of a policy.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|policy| {
            policy.as_str() == word || policy.as_str().strip_prefix("allkeys-") == Some(word)
        })
    }

    /// Whether only keys with a deadline may be evicted.
    pub(super) fn volatile(self) -> bool {
        matches!(
            self,
            Self::VolatileLru | Self::VolatileLfu | Self::VolatileRandom | Self::VolatileTtl
        )
    }
}

/// The rules; see the module.
#[derive(Debug)]
pub struct Rules {
    seed: u64,
    /// Maximum memory of everything in bytes; 0 for no limit.
    max_memory: AtomicUsize,
    policy: AtomicU8,
    codec: AtomicU8,
    /// Whether any pattern below is set.
    exceptions: AtomicBool,
    /// Patterns of keys whose values are never compressed.
    plain_keys: RwLock<Vec<Box<[u8]>>>,
}

impl Rules {
    /// Rules with this hash seed, and otherwise the defaults.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            max_memory: AtomicUsize::new(0),
            policy: AtomicU8::new(Policy::default() as u8),
            codec: AtomicU8::new(Codec::default() as u8),
            exceptions: AtomicBool::new(false),
            plain_keys: RwLock::new(Vec::new()),
        }
    }

    /// The hash of a key: XXH3 with this store's seed, so that no client can construct colliding
    /// keys.
    #[must_use]
    #[inline]
    pub fn hash(&self, key: &[u8]) -> u64 {
        xxh3_64_with_seed(key, self.seed)
    }

    /// The seed of the hash.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Maximum memory of everything in bytes; 0 for no limit.
    #[must_use]
    pub fn max_memory(&self) -> usize {
        self.max_memory.load(Ordering::Relaxed)
    }

    /// Sets [`Rules::max_memory`].
    pub fn set_max_memory(&self, bytes: usize) {
        self.max_memory.store(bytes, Ordering::Relaxed);
    }

    /// Which keys are evicted first.
    #[must_use]
    pub fn policy(&self) -> Policy {
        let code = self.policy.load(Ordering::Relaxed);
        Policy::ALL.get(usize::from(code)).copied().unwrap_or_default()
    }

    /// Sets [`Rules::policy`].
    pub fn set_policy(&self, policy: Policy) {
        self.policy.store(policy as u8, Ordering::Relaxed);
    }

    /// How values are compressed.
    #[must_use]
    pub fn codec(&self) -> Codec {
        match self.codec.load(Ordering::Relaxed) {
            0 => Codec::None,
            2 => Codec::Zstd,
            _ => Codec::Lz4,
        }
    }

    /// Sets [`Rules::codec`].
    pub fn set_codec(&self, codec: Codec) {
        self.codec.store(codec as u8, Ordering::Relaxed);
    }

    /// Sets the patterns of keys whose values are never compressed.
    pub fn set_plain_keys(&self, patterns: Vec<Box<[u8]>>) {
        self.exceptions.store(!patterns.is_empty(), Ordering::Relaxed);
        *self.plain_keys.write() = patterns;
    }

    /// The codec for the values of a key.
    pub(crate) fn codec_for(&self, key: &[u8]) -> Codec {
        if self.exceptions.load(Ordering::Relaxed)
            && self.plain_keys.read().iter().any(|pattern| glob::matches(pattern, key))
        {
            return Codec::None;
        }
        self.codec()
    }

    /// Whether entries are queued for eviction.
    #[inline]
    pub(super) fn keeps_queues(&self) -> bool {
        self.max_memory() > 0 && self.policy() == Policy::S3Fifo
    }

    #[inline]
    pub(super) fn notes_uses(&self) -> bool {
        self.max_memory() > 0
    }

    /// The initial value of a new entry's time of last use, if the policy needs one.
    ///
    /// For LRU it is seconds; for LFU minutes (upper 24 bits) and a logarithmic count (lower 8), as
    /// in Redis.
    #[inline]
    pub(super) fn touch(&self, now_ms: u64) -> Option<u32> {
        match self.policy() {
            Policy::Lru | Policy::VolatileLru => Some(seconds(now_ms)),
            Policy::Lfu | Policy::VolatileLfu => Some(minutes(now_ms) << 8 | LFU_FIRST),
            _ => None,
        }
    }

    pub(super) fn note_use(&self, held: &mut [u8], now_ms: u64) {
        match self.policy() {
            Policy::S3Fifo => {
                let uses = entry::uses(held);
                if uses < 3 {
                    entry::set_uses(held, uses + 1);
                }
            }
            Policy::Lru | Policy::VolatileLru => entry::set_touched(held, seconds(now_ms)),
            Policy::Lfu | Policy::VolatileLfu => {
                if let Some(touched) = entry::touched(held) {
                    let count = decayed(touched, now_ms);
                    // A count rises with a probability that decreases with its value.
                    let chance = 1 + u64::from(count.saturating_sub(LFU_FIRST)) * 10;
                    let draw =
                        (now_ms ^ u64::from(touched) << 7).wrapping_mul(0x9E37_79B9_7F4A_7C15);
                    let count = if (draw >> 33).is_multiple_of(chance) {
                        (count + 1).min(255)
                    } else {
                        count
                    };
                    entry::set_touched(held, minutes(now_ms) << 8 | count);
                }
            }
            _ => {}
        }
    }

    pub(super) fn idle_ms(&self, held: &[u8], now_ms: u64) -> Option<u64> {
        match self.policy() {
            Policy::Lru | Policy::VolatileLru => {
                let touched = entry::touched(held)?;
                Some(u64::from(seconds(now_ms).saturating_sub(touched)) * 1_000)
            }
            _ => None,
        }
    }

    pub(super) fn frequency(&self, held: &[u8]) -> u8 {
        match self.policy() {
            Policy::Lfu | Policy::VolatileLfu => {
                entry::touched(held).map_or(0, |touched| touched.to_le_bytes()[0])
            }
            _ => entry::uses(held),
        }
    }

    /// How likely an entry is evicted: the highest of a sample is.
    pub(super) fn reluctance(&self, held: &[u8], now_ms: u64) -> u64 {
        match self.policy() {
            Policy::Lru | Policy::VolatileLru => {
                u64::from(seconds(now_ms).saturating_sub(entry::touched(held).unwrap_or(0)))
            }
            Policy::Lfu | Policy::VolatileLfu => {
                u64::from(255 - entry::touched(held).map_or(0, |touched| decayed(touched, now_ms)))
            }
            Policy::VolatileTtl => u64::MAX - entry::deadline_ms(held).unwrap_or(u64::MAX),
            _ => 0,
        }
    }
}

/// Initial count of a new key, so that it is not evicted first.
const LFU_FIRST: u32 = 5;

fn seconds(now_ms: u64) -> u32 {
    u32::try_from(now_ms / 1_000).unwrap_or(u32::MAX)
}

fn minutes(now_ms: u64) -> u32 {
    u32::try_from((now_ms / 60_000) & 0x00FF_FFFF).unwrap_or(0)
}

/// A use count, reduced by one for every minute since.
fn decayed(touched: u32, now_ms: u64) -> u32 {
    (touched & 0xFF).saturating_sub(minutes(now_ms).saturating_sub(touched >> 8))
}
