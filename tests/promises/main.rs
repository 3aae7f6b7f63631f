//! The promises of the contract, one by one. Each test's name begins with the promise that it holds the code to; each was seen to
//! fail with the code that keeps it taken out.

mod crash;
mod kv;
mod log;
