//! Bytes taken apart, a piece at a time. Behind their end there are zeros.

pub struct Input<'a>(pub &'a [u8]);

impl<'a> Input<'a> {
    pub fn byte(&mut self) -> u8 {
        let (first, rest) = self.0.split_first().map_or((0, self.0), |(b, rest)| (*b, rest));
        self.0 = rest;
        first
    }

    pub fn u16(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    pub fn bytes(&mut self, len: usize) -> &'a [u8] {
        let (piece, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        piece
    }

    /// A number at which arithmetic goes wrong, or nearly one.
    pub fn edge(&mut self) -> u64 {
        let base = match self.byte() % 8 {
            0 => 0,
            1 => u64::from(u16::MAX),
            2 => u64::from(u32::MAX),
            3 => 1 << 31,
            4 => 1 << 62,
            5 => 1 << 63,
            6 => u64::MAX,
            _ => 4096,
        };
        let off = self.byte();
        if off < 128 {
            base.wrapping_add(u64::from(off))
        } else {
            base.wrapping_sub(u64::from(off - 127))
        }
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
