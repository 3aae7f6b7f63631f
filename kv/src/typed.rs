//! A view of part of a store as values of a serde type.

use std::marker::PhantomData;

use serde::Serialize;
use serde::de::DeserializeOwned;
use wal::Offset;

use crate::batch::Batch;
use crate::command;
use crate::error::{Error, Result};
use crate::snapshot::Snapshot;
use crate::store::Store;

/// The keys of a [`Store`] under a prefix, with values of type `T`.
///
/// Values are encoded with bincode 1.3, behind one byte that names the encoding. As with any such encoding, a type may not change its
/// shape under stored values: put a version into the prefix, or make `T` an enum.
#[derive(Debug, Clone)]
pub struct Typed<T> {
    store: Store,
    prefix: Vec<u8>,
    value: PhantomData<fn() -> T>,
}

impl<T: Serialize + DeserializeOwned> Typed<T> {
    pub(crate) fn new(store: Store, prefix: &[u8]) -> Self {
        Self {
            store,
            prefix: prefix.to_vec(),
            value: PhantomData,
        }
    }

    fn key(&self, key: &[u8]) -> Vec<u8> {
        [&self.prefix, key].concat()
    }

    /// The value of `key`.
    ///
    /// # Errors
    /// [`Error::Value`] where the stored bytes are no `T`.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<T>> {
        self.store
            .get(self.key(key.as_ref()))?
            .map(|bytes| decode(&bytes))
            .transpose()
    }

    /// Sets `key` to `value`.
    ///
    /// # Errors
    /// [`Error::Value`] where `value` cannot be encoded; else as [`Store::put`].
    pub fn put(&self, key: impl AsRef<[u8]>, value: &T) -> Result<Offset> {
        self.store.put(self.key(key.as_ref()), encode(value)?)
    }

    /// Removes `key`.
    ///
    /// # Errors
    /// As [`Store::delete`].
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<Offset> {
        self.store.delete(self.key(key.as_ref()))
    }

    /// Adds "set `key` to `value`" to a batch, which may hold changes of other views too.
    ///
    /// # Errors
    /// [`Error::Value`].
    pub fn put_into(&self, batch: &mut Batch, key: impl AsRef<[u8]>, value: &T) -> Result<()> {
        batch.put(self.key(key.as_ref()), encode(value)?);
        Ok(())
    }

    /// Sets `key` to what `update` makes of its value, atomically; see [`Store::fetch_and_update`]. Returns the value before.
    ///
    /// # Errors
    /// [`Error::Value`], and then nothing is changed; else as [`Store::put`].
    pub fn update(&self, key: impl AsRef<[u8]>, mut update: impl FnMut(Option<T>) -> Option<T>) -> Result<Option<T>> {
        let key = self.key(key.as_ref());
        let mut before = self.store.get(&key)?;
        loop {
            let after = update(before.as_deref().map(decode).transpose()?);
            let after = after.as_ref().map(encode).transpose()?;
            match self.store.compare_and_swap(&key, before.as_deref(), after.as_deref())? {
                crate::Swap::Done(_) => return before.as_deref().map(decode).transpose(),
                crate::Swap::Found(current) => before = current,
            }
        }
    }

    /// All entries, by key, of one instant. Keys come without the prefix.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Result<(Vec<u8>, T)>> + use<T> {
        self.iter_at(&self.store.snapshot())
    }

    /// As [`Typed::iter`], of the instant that `snapshot` shows.
    pub fn iter_at(&self, snapshot: &Snapshot) -> impl DoubleEndedIterator<Item = Result<(Vec<u8>, T)>> + use<T> {
        let skip = self.prefix.len();
        snapshot
            .prefix(&self.prefix)
            .map(move |(key, value)| Ok((key[skip..].to_vec(), decode(&value)?)))
    }
}

fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>> {
    command::encode_value(value).map_err(|reason| Error::Value {
        what: "encoded",
        reason,
    })
}

fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    command::decode_value(bytes).map_err(|reason| Error::Value {
        what: "decoded",
        reason,
    })
}
