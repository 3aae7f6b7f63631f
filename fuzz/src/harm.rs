//! Harm to the files of a disk.

use wal::storage::sim::SimStorage;

use crate::input::Input;

/// Kinds of harm, as the third byte of a piece of it names them.
pub const KINDS: u8 = 8;

/// Does harm as `input` says, at most eight times: overwrites, flips, cuts, exchanges, copies, removes, puts in place a file of any
/// bytes, or sets a field to a number at which arithmetic goes wrong.
pub fn harm(disk: &SimStorage, input: &mut Input<'_>) {
    for _ in 0..8 {
        if input.is_empty() {
            return;
        }
        let names = disk.file_names();
        let Some(name) = names.get(usize::from(input.byte()) % names.len().max(1)).cloned() else {
            return;
        };
        let other = &names[usize::from(input.byte()) % names.len()];
        let mut content = disk.read_file(&name).unwrap_or_default();
        match input.byte() % KINDS {
            0 => {
                let pos = usize::from(input.u16());
                let len = usize::from(input.byte());
                overwrite(&mut content, pos, input.bytes(len));
            }
            1 => {
                let pos = usize::from(input.u16());
                if let Some(there) = content.get_mut(pos) {
                    *there ^= 1 << (input.byte() % 8);
                }
            }
            2 => content.truncate(usize::from(input.u16())),
            3 => {
                let theirs = disk.read_file(other).unwrap_or_default();
                disk.write_file(other, &content);
                content = theirs;
            }
            4 => {
                disk.remove_file(&name);
                continue;
            }
            5 => {
                // A piece of one file at another place: sound bytes where they do not belong.
                let theirs = disk.read_file(other).unwrap_or_default();
                let (from, to) = (usize::from(input.u16()), usize::from(input.u16()));
                let piece = theirs
                    .get(from..theirs.len().min(from + usize::from(input.u16())))
                    .unwrap_or_default();
                overwrite(&mut content, to, piece);
            }
            6 => {
                let len = usize::from(input.u16());
                content = input.bytes(len).to_vec();
            }
            _ => {
                let pos = usize::from(input.u16());
                let len = 1 << (input.byte() % 4);
                overwrite(&mut content, pos, &input.edge().to_le_bytes()[..len]);
            }
        }
        disk.write_file(&name, &content);
    }
}

/// Where the place ends before the bytes do, the rest of them is dropped.
fn overwrite(content: &mut [u8], pos: usize, bytes: &[u8]) {
    for (there, byte) in content.iter_mut().skip(pos).zip(bytes) {
        *there = *byte;
    }
}
