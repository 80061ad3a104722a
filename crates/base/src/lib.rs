//! The ground floor: file systems real and simulated, clock, checksums, sizes, durability.
