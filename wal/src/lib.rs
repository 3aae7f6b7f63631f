//! A segmented append-only log.
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod storage;
