//! The collections a key may hold: pure data, no locks, no clock, no randomness of their own.
