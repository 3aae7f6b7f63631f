//! The record decoder. Any bytes: an answer or an error, and what is decoded encodes to the same bytes. Sound frames: they decode to what was
//! encoded, and any change is seen.

#![no_main]

use fuzz::Input;
use libfuzzer_sys::fuzz_target;
use wal::inspect::{decode_frame, encode_frame};

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let mode = input.byte();
    let log = [input.byte(); 16];
    let generation = u64::from(input.byte()) + 1;
    let pos = 4096 + u64::from(input.byte()) * 8;
    if mode % 2 == 0 {
        if let Ok(frame) = decode_frame(input.0, &log, generation, pos) {
            assert!(frame.len <= input.0.len() as u64, "a frame longer than its bytes");
            if frame.count > 0 {
                let records: Vec<&[u8]> = frame.records().collect();
                let again = encode_frame(&records, frame.base_offset, frame.durable_end, &log, generation, pos);
                let again = again.expect("what was decoded can be encoded");
                let covered = 32 + frame.payload.len();
                assert_eq!(again[..covered], input.0[..covered], "decoding and encoding differ");
            }
        }
        return;
    }
    let base = u64::from(input.u16());
    let durable = base.saturating_sub(u64::from(input.byte()));
    let (at, change) = (usize::from(input.u16()), input.byte());
    let mut records = Vec::new();
    while !input.is_empty() && records.len() < 50 {
        let len = usize::from(input.byte());
        records.push(input.bytes(len));
    }
    let Some(mut bytes) = encode_frame(&records, base, durable, &log, generation, pos) else {
        assert!(records.is_empty(), "a small frame was refused");
        return;
    };
    let frame = decode_frame(&bytes, &log, generation, pos).expect("what was encoded decodes");
    assert!(frame.records().eq(records.iter().copied()));
    assert_eq!((frame.base_offset, frame.durable_end), (base, durable));
    let covered = 32 + frame.payload.len();
    if change != 0 {
        bytes[at % covered] ^= change;
        assert!(decode_frame(&bytes, &log, generation, pos).is_err(), "a change went unnoticed");
    }
});
