//! One function for each target. It panics where a promise is broken, and must not panic otherwise.

mod open_directory;
mod record_decoder;
mod store_checkpoint;
mod store_payload;

pub use open_directory::open_directory;
pub use record_decoder::record_decoder;
pub use store_checkpoint::store_checkpoint;
pub use store_payload::store_payload;

/// What a target is: any bytes in.
pub type Target = fn(&[u8]);

/// All of them, by name.
pub const ALL: [(&str, Target); 4] = [
    ("record_decoder", record_decoder),
    ("open_directory", open_directory),
    ("store_payload", store_payload),
    ("store_checkpoint", store_checkpoint),
];
