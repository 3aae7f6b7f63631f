//! A deterministic disk for crash and fault tests.
