//! The Redis serialisation protocol: requests read, replies written.
