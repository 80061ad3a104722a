//! Glob patterns, as `KEYS` and `PSUBSCRIBE` match them.
