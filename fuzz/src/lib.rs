//! What the fuzz targets do, apart from the fuzzer that drives them, so that a plain test replays their corpus on any compiler.
//!
//! [`targets`] has one function for each. They build on sound [`disks`], the [`harm`] that an input says, and a [`seal`] that puts the sums
//! right behind it, so that what lies behind a checksum is reached as well.

pub mod disks;
pub mod harm;
pub mod input;
pub mod seal;
pub mod targets;

#[cfg(test)]
mod replay;
