//! The map and how far it has come: what the log folds into.

use wal::Offset;

use crate::command;
use crate::error::{Error, Result};
use crate::map::Map;

/// The state of the store after the records `[0, applied)`. Cheap to clone: a clone is a snapshot.
#[derive(Debug, Clone, Default)]
pub(crate) struct State {
    pub(crate) map: Map,
    pub(crate) applied: Offset,
}

impl State {
    /// Applies the record at `offset`. The one way to change a map, for live writes and replay alike. A record that is not the next
    /// one is a bug of the caller, and is refused before it can do harm.
    pub(crate) fn apply(&mut self, offset: Offset, record: &[u8]) -> Result<()> {
        if offset != self.applied {
            let reason = format!("it was to be applied to the state at offset {}", self.applied);
            return Err(Error::NotAWrite { offset, reason });
        }
        // Decoded whole before anything changes, so that a bad record changes nothing.
        let command = command::decode(record).map_err(|reason| Error::NotAWrite { offset, reason })?;
        for op in &command.ops {
            match op.value() {
                Some(value) => drop(self.map.insert(op.key(), value)),
                None => drop(self.map.remove(op.key())),
            }
        }
        self.applied = offset + 1;
        Ok(())
    }

    /// Applies what `reader` has, up to `end`. Returns how many records that were, and their bytes.
    pub(crate) fn replay(&mut self, reader: &mut wal::Reader, end: Offset) -> Result<(u64, u64)> {
        let (mut records, mut bytes) = (0, 0);
        while self.applied < end {
            let Some(record) = reader.next()? else { break };
            self.apply(record.offset, record.bytes)?;
            records += 1;
            bytes += record.bytes.len() as u64;
        }
        Ok((records, bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{Command, Op, encode};

    fn put(key: &[u8], value: &[u8]) -> Vec<u8> {
        encode(&Command {
            namespace: 0,
            ops: vec![Op::Put { key, value }],
        })
    }

    #[test]
    fn k3_no_record_is_applied_twice_or_out_of_order() {
        let mut state = State::default();
        state.apply(0, &put(b"a", b"1")).unwrap();
        assert!(state.apply(0, &put(b"a", b"2")).is_err());
        assert!(state.apply(2, &put(b"a", b"2")).is_err());
        assert_eq!(state.map.get(b"a").unwrap().as_ref(), b"1");
        assert_eq!(state.applied, 1);
    }

    #[test]
    fn a_record_that_is_no_write_changes_nothing() {
        let mut state = State::default();
        assert!(matches!(
            state.apply(0, b"hello"),
            Err(Error::NotAWrite { offset: 0, .. })
        ));
        assert_eq!((state.map.len(), state.applied), (0, 0));
    }
}
