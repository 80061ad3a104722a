//! The HTTP front door for files and JSON documents: classify, deduplicate, decide, keep.
