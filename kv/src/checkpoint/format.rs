//! The bytes of a checkpoint file: slices in, values out.
//!
//! ```text
//! header, 64 bytes                         block, repeated                        trailer, 64 bytes
//!  0  8  magic "KVCKPT1\n"                  0 u64 digest of 8..32                  0  8  magic "KVCKEND1"
//!  8 u16 version                            8 u32 payload bytes                    8 u64 blocks
//! 10 u16 0                                 12 u32 entries, at least 1             16 u64 entries
//! 12 u32 64                                16 u32 namespace, 0                    24 u64 bytes of keys and values
//! 16 16  log id                            20 u32 0                               32 u64 applied offset
//! 32 u64 applied offset S                  24 u64 digest of the payload           40 u64 length of the file
//! 40 u64 digest of record S - 1, or 0      32 …   payload: for each entry         48 u64 created, ms since 1970
//! 48 u64 created, ms since 1970                   u32 key bytes, u32 value bytes, 56 u64 digest of 0..56
//! 56 u64 digest of 0..56                          key, value
//! ```
//!
//! Keys rise strictly over the whole file. Digests are XXH3-64; those of blocks and trailer are seeded by the header's digest and their
//! own number, so that none can stand at another place or in another file.

use wal::Offset;

use xxhash::digest;

/// The digest used throughout, behind one name.
mod xxhash {
    use twox_hash::XxHash3_64;

    pub(super) fn digest(seed: u64, bytes: &[u8]) -> u64 {
        XxHash3_64::oneshot_with_seed(seed, bytes)
    }
}

pub(crate) const HEADER_LEN: usize = 64;
pub(crate) const BLOCK_HEADER_LEN: usize = 32;
pub(crate) const TRAILER_LEN: usize = 64;
/// The format version that this code writes, and the newest that it reads.
pub(crate) const VERSION: u16 = 1;
/// A block is begun anew when it has this many bytes; one large entry may make it larger.
pub(crate) const BLOCK_BYTES: usize = 256 << 10;
/// Most bytes of a block that is believed: one entry of the largest size.
const BLOCK_BYTES_MAX: usize = 2 << 30;
const MAGIC: &[u8; 8] = b"KVCKPT1\n";
const END_MAGIC: &[u8; 8] = b"KVCKEND1";

/// Why bytes are not what they should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FormatError {
    #[error("it has format version {0}, this version reads up to {VERSION}")]
    Version(u16),
    #[error("{0}")]
    Damaged(&'static str),
}

/// What a checkpoint is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) log: [u8; 16],
    /// The next record to apply.
    pub(crate) applied: Offset,
    /// Recognises record `applied - 1`; 0 where there is none.
    pub(crate) last_record: u64,
    pub(crate) created_ms: u64,
}

/// What a checkpoint holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) blocks: u64,
    pub(crate) entries: u64,
    pub(crate) bytes: u64,
}

/// Recognises a record.
pub(crate) fn record_digest(record: &[u8]) -> u64 {
    digest(0, record)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array_at(bytes, at))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array_at(bytes, at))
}

/// The caller has checked the length.
fn array_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

impl Header {
    pub(crate) fn encode(&self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        put(&mut bytes, 0, MAGIC);
        put(&mut bytes, 8, &VERSION.to_le_bytes());
        bytes[12] = 64;
        put(&mut bytes, 16, &self.log);
        put(&mut bytes, 32, &self.applied.to_le_bytes());
        put(&mut bytes, 40, &self.last_record.to_le_bytes());
        put(&mut bytes, 48, &self.created_ms.to_le_bytes());
        let check = digest(0, &bytes[..56]);
        put(&mut bytes, 56, &check.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let bytes = bytes.get(..HEADER_LEN).ok_or(FormatError::Damaged("it is too short"))?;
        if bytes[..8] != MAGIC[..] {
            return Err(FormatError::Damaged("it does not begin like a checkpoint"));
        }
        // Magic, version, length and digest of the header stay where they are in every version.
        if u64_at(bytes, 56) != digest(0, &bytes[..56]) {
            return Err(FormatError::Damaged("its header's digest is wrong"));
        }
        match u16::from_le_bytes(array_at(bytes, 8)) {
            VERSION => {}
            0 => return Err(FormatError::Damaged("its version is 0")),
            newer => return Err(FormatError::Version(newer)),
        }
        Ok(Self {
            log: array_at(bytes, 16),
            applied: u64_at(bytes, 32),
            last_record: u64_at(bytes, 40),
            created_ms: u64_at(bytes, 48),
        })
    }

    /// Seeds the digests of block number `n`; the trailer is the block after the last.
    fn seed(&self, n: u64) -> u64 {
        u64_at(&self.encode(), 56).wrapping_add(n.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }
}

/// Collects entries into a block.
#[derive(Debug, Default)]
pub(crate) struct BlockBuilder {
    /// Room for the header, then the payload.
    bytes: Vec<u8>,
    entries: u32,
}

impl BlockBuilder {
    /// Adds an entry. Keys and values are below 4 GiB, which the limits of a write see to.
    pub(crate) fn add(&mut self, key: &[u8], value: &[u8]) {
        if self.bytes.is_empty() {
            self.bytes.resize(BLOCK_HEADER_LEN, 0);
        }
        for len in [key.len(), value.len()] {
            let len = u32::try_from(len).expect("bounded by the largest record");
            self.bytes.extend_from_slice(&len.to_le_bytes());
        }
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        self.entries += 1;
    }

    pub(crate) fn is_full(&self) -> bool {
        self.bytes.len() >= BLOCK_BYTES
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// The finished block, number `n` of the checkpoint. [`BlockBuilder::clear`] before the next.
    pub(crate) fn finish(&mut self, header: &Header, n: u64) -> &[u8] {
        let seed = header.seed(n);
        let (head, payload) = self.bytes.split_at_mut(BLOCK_HEADER_LEN);
        let len = u32::try_from(payload.len()).expect("bounded by the largest record");
        put(head, 8, &len.to_le_bytes());
        put(head, 12, &self.entries.to_le_bytes());
        put(head, 24, &digest(seed, payload).to_le_bytes());
        let check = digest(seed, &head[8..]);
        put(head, 0, &check.to_le_bytes());
        &self.bytes
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.entries = 0;
    }
}

/// A key and its value.
pub(crate) type Pair<'a> = (&'a [u8], &'a [u8]);

/// The header of a block.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BlockHeader {
    pub(crate) payload_len: usize,
    pub(crate) entries: u32,
    digest: u64,
    seed: u64,
}

impl BlockHeader {
    /// Decodes the header of block number `n`. `room` is what the file has left for its payload.
    pub(crate) fn decode(bytes: &[u8], header: &Header, n: u64, room: u64) -> Result<Self, FormatError> {
        let bytes = bytes
            .get(..BLOCK_HEADER_LEN)
            .ok_or(FormatError::Damaged("a block is cut short"))?;
        let seed = header.seed(n);
        if u64_at(bytes, 0) != digest(seed, &bytes[8..]) {
            return Err(FormatError::Damaged("the digest of a block's header is wrong"));
        }
        let payload_len = u32_at(bytes, 8) as usize;
        if payload_len as u64 > room || payload_len > BLOCK_BYTES_MAX {
            return Err(FormatError::Damaged("a block is longer than the file"));
        }
        if u32_at(bytes, 16) != 0 {
            return Err(FormatError::Damaged(
                "a block is of a namespace that this version does not know",
            ));
        }
        Ok(Self {
            payload_len,
            entries: u32_at(bytes, 12),
            digest: u64_at(bytes, 24),
            seed,
        })
    }

    /// Checks the payload and hands out its entries in order.
    pub(crate) fn entries<'a>(&self, payload: &'a [u8]) -> Result<Vec<Pair<'a>>, FormatError> {
        if digest(self.seed, payload) != self.digest {
            return Err(FormatError::Damaged("the digest of a block is wrong"));
        }
        let mut rest = payload;
        // The count is under the digest, but a bound costs nothing.
        let mut entries = Vec::with_capacity((self.entries as usize).min(payload.len() / 8));
        for _ in 0..self.entries {
            let (head, body) = rest.split_at_checked(8).ok_or(UNEVEN)?;
            let (key, body) = body.split_at_checked(u32_at(head, 0) as usize).ok_or(UNEVEN)?;
            let (value, body) = body.split_at_checked(u32_at(head, 4) as usize).ok_or(UNEVEN)?;
            entries.push((key, value));
            rest = body;
        }
        if rest.is_empty() { Ok(entries) } else { Err(UNEVEN) }
    }
}

const UNEVEN: FormatError = FormatError::Damaged("the entries of a block do not fill it");

/// Encodes the trailer of a file of `file_len` bytes, itself included.
pub(crate) fn encode_trailer(header: &Header, totals: &Totals, file_len: u64) -> [u8; TRAILER_LEN] {
    let mut bytes = [0; TRAILER_LEN];
    put(&mut bytes, 0, END_MAGIC);
    put(&mut bytes, 8, &totals.blocks.to_le_bytes());
    put(&mut bytes, 16, &totals.entries.to_le_bytes());
    put(&mut bytes, 24, &totals.bytes.to_le_bytes());
    put(&mut bytes, 32, &header.applied.to_le_bytes());
    put(&mut bytes, 40, &file_len.to_le_bytes());
    put(&mut bytes, 48, &header.created_ms.to_le_bytes());
    let check = digest(header.seed(totals.blocks), &bytes[..56]);
    put(&mut bytes, 56, &check.to_le_bytes());
    bytes
}

/// Decodes the last bytes of a file of `file_len` bytes.
pub(crate) fn decode_trailer(bytes: &[u8], header: &Header, file_len: u64) -> Result<Totals, FormatError> {
    let bytes = bytes.get(..TRAILER_LEN).ok_or(FormatError::Damaged("it has no end"))?;
    if bytes[..8] != END_MAGIC[..] {
        return Err(FormatError::Damaged("it does not end like a checkpoint"));
    }
    let totals = Totals {
        blocks: u64_at(bytes, 8),
        entries: u64_at(bytes, 16),
        bytes: u64_at(bytes, 24),
    };
    let sound = u64_at(bytes, 56) == digest(header.seed(totals.blocks), &bytes[..56])
        && u64_at(bytes, 32) == header.applied
        && u64_at(bytes, 40) == file_len;
    if sound {
        Ok(totals)
    } else {
        Err(FormatError::Damaged("its end does not belong to its beginning"))
    }
}

/// The name of the checkpoint at `applied`.
pub(crate) fn file_name(applied: Offset) -> String {
    format!("checkpoint-{applied:020}.kv")
}

/// The applied offset out of a checkpoint's file name; `None` for any other name.
pub(crate) fn parse_file_name(name: &str) -> Option<Offset> {
    let applied = name.strip_prefix("checkpoint-")?.strip_suffix(".kv")?.parse().ok()?;
    (file_name(applied) == name).then_some(applied)
}
