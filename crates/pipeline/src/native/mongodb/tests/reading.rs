//! What is particular to reading.

use super::*;
