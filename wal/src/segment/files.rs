//! Open files of segments, a bounded number of them: a log may have more segments than a process may have descriptors.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Weak};

use crate::storage::{Access, Storage, StorageFile};
use crate::threads::Mutex;

/// How many are kept open although nobody uses them.
const KEPT_OPEN: usize = 64;

/// The files of one log's segments.
#[derive(Debug)]
pub(crate) struct Files {
    pub(crate) storage: Arc<dyn Storage>,
    /// The last ones that were opened. Others stay open for as long as somebody reads them.
    recent: Mutex<VecDeque<Arc<dyn StorageFile>>>,
}

/// A file that may be open.
#[derive(Debug, Default)]
pub(crate) struct Slot(Mutex<Option<Weak<dyn StorageFile>>>);

impl Files {
    pub(crate) fn new(storage: Arc<dyn Storage>) -> Self {
        Self {
            storage,
            recent: Mutex::default(),
        }
    }

    /// The file `name`, opened for reading unless the slot still has it.
    pub(crate) fn open(&self, name: &str, slot: &Slot) -> io::Result<Arc<dyn StorageFile>> {
        let mut slot = slot.0.lock();
        if let Some(file) = slot.as_ref().and_then(Weak::upgrade) {
            return Ok(file);
        }
        let file = self.with_room(|| self.storage.open(name, Access::Read))?;
        *slot = Some(Arc::downgrade(&file));
        let mut recent = self.recent.lock();
        if recent.len() == KEPT_OPEN {
            recent.pop_front();
        }
        recent.push_back(Arc::clone(&file));
        Ok(file)
    }

    /// Opens a file. Where that fails, descriptors may have run out: those that are only kept are closed, and it is tried once more.
    pub(crate) fn with_room(
        &self,
        open: impl Fn() -> io::Result<Arc<dyn StorageFile>>,
    ) -> io::Result<Arc<dyn StorageFile>> {
        open().or_else(|e| {
            let hopeless = matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied);
            let kept = if hopeless {
                VecDeque::new()
            } else {
                std::mem::take(&mut *self.recent.lock())
            };
            if kept.is_empty() {
                return Err(e);
            }
            drop(kept);
            open()
        })
    }

    /// Keeps the slot's file open no longer. A removed file takes its space for as long as it is open.
    pub(crate) fn forget(&self, slot: &Slot) {
        let Some(file) = slot.0.lock().take().and_then(|file| file.upgrade()) else {
            return;
        };
        self.recent.lock().retain(|kept| !Arc::ptr_eq(kept, &file));
    }
}

impl Slot {
    /// Takes in a file that somebody else keeps open.
    pub(crate) fn set(&self, file: &Arc<dyn StorageFile>) {
        *self.0.lock() = Some(Arc::downgrade(file));
    }
}
