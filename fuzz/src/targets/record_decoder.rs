use wal::inspect::{decode_frame, encode_frame};

use crate::input::Input;
use crate::seal;

/// The record decoder. The first byte chooses: any bytes as they are, or with their sums put right, give an answer or an error, and what is
/// decoded encodes to the same bytes; sound frames decode to what was encoded, and any change is seen.
pub fn record_decoder(data: &[u8]) {
    let mut input = Input(data);
    let mode = input.byte();
    let log = [input.byte(); 16];
    let generation = u64::from(input.byte()) + 1;
    let pos = 4096 + u64::from(input.byte()) * 8;
    match mode % 3 {
        0 => decodes_or_not(input.0, &log, generation, pos),
        1 => decodes_what_was_encoded(&mut input, &log, generation, pos),
        _ => {
            let mut bytes = input.0.to_vec();
            seal::frame(&mut bytes, &log, generation, pos);
            decodes_or_not(&bytes, &log, generation, pos);
        }
    }
}

fn decodes_or_not(bytes: &[u8], log: &[u8; 16], generation: u64, pos: u64) {
    let Ok(frame) = decode_frame(bytes, log, generation, pos) else {
        return;
    };
    assert!(frame.len <= bytes.len() as u64, "a frame longer than its bytes");
    assert_eq!(frame.records().count(), usize::from(frame.count));
    if frame.count > 0 {
        let records: Vec<&[u8]> = frame.records().collect();
        let again = encode_frame(&records, frame.base_offset, frame.durable_end, log, generation, pos);
        let again = again.expect("what was decoded can be encoded");
        let covered = 32 + frame.payload.len();
        assert_eq!(again[..covered], bytes[..covered], "decoding and encoding differ");
    }
}

fn decodes_what_was_encoded(input: &mut Input<'_>, log: &[u8; 16], generation: u64, pos: u64) {
    let base = u64::from(input.u16());
    let durable = base.saturating_sub(u64::from(input.byte()));
    let (at, change) = (usize::from(input.u16()), input.byte());
    let mut records = Vec::new();
    while !input.is_empty() && records.len() < 50 {
        let len = usize::from(input.byte());
        records.push(input.bytes(len));
    }
    let Some(mut bytes) = encode_frame(&records, base, durable, log, generation, pos) else {
        assert!(records.is_empty(), "a small frame was refused");
        return;
    };
    let frame = decode_frame(&bytes, log, generation, pos).expect("what was encoded decodes");
    assert!(frame.records().eq(records.iter().copied()));
    assert_eq!((frame.base_offset, frame.durable_end), (base, durable));
    let covered = 32 + frame.payload.len();
    if change != 0 {
        bytes[at % covered] ^= change;
        assert!(
            decode_frame(&bytes, log, generation, pos).is_err(),
            "a change went unnoticed"
        );
    }
}
