//! A segmented append-only log with group commit and torn-write recovery.
