//! Integers and floats as text, read and written as Redis does.
