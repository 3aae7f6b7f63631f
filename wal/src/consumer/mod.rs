//! Named consumers: readers that own a durable position.
//!
//! The position lives with the reader; the log knows only pins. What a consumer promises is the order of two calls: handle, then
//! commit ([`Delivery::AtLeastOnce`]), or commit, then handle ([`Delivery::AtMostOnce`]). A committed offset is written only
//! when everything below it is durable, so a consumer's file is a witness: a log that ends before it has lost data.

mod handle;
mod registry;

use std::sync::Arc;
use std::time::SystemTime;

use crate::codec::cursor::{Anchor, Cursor, NAME_MAX};
use crate::error::{Error, Result};
use crate::log::Log;
use crate::log::reader::{Reader, Visible};
use crate::offset::Offset;
use crate::options::{Delivery, Reset};

pub use handle::Consumer;
pub(crate) use registry::Consumers;
use registry::Registered;

/// Where a new consumer begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Start {
    /// At the first retained record: it replays all of history.
    #[default]
    Earliest,
    /// At the durable end: it sees only what comes.
    Latest,
    /// At this offset, which must be in the log.
    At(Offset),
}

/// A consumer as listed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConsumerInfo {
    /// Its name. Of a damaged consumer the name of its file, all that is left.
    pub name: String,
    /// The next record to hand it.
    pub committed: Offset,
    /// How many durable records it has not committed.
    pub lag: u64,
    /// How it was last opened.
    pub delivery: Delivery,
    /// What it does when its next record is gone.
    pub reset: Reset,
    /// When it last committed.
    pub committed_at: SystemTime,
    /// Why its position is lost, if it is.
    pub damaged: Option<String>,
}

/// Builds a [`Consumer`].
#[derive(Debug)]
#[must_use = "call `open`"]
pub struct ConsumerOptions {
    consumers: Arc<Consumers>,
    name: String,
    delivery: Delivery,
    start: Start,
    reset: Reset,
    protected: bool,
}

impl ConsumerOptions {
    pub(crate) fn new(consumers: Arc<Consumers>, name: &str) -> Self {
        Self {
            consumers,
            name: name.to_owned(),
            delivery: Delivery::default(),
            start: Start::default(),
            reset: Reset::default(),
            protected: false,
        }
    }

    /// What a crash does to a record that is being handled. Default: [`Delivery::AtLeastOnce`].
    pub fn delivery(mut self, delivery: Delivery) -> Self {
        self.delivery = delivery;
        self
    }

    /// Where the consumer begins if it does not exist yet. Default: [`Start::Earliest`].
    pub fn start(mut self, start: Start) -> Self {
        self.start = start;
        self
    }

    /// What it does when its next record is gone. Default: [`Reset::Fail`].
    pub fn on_out_of_range(mut self, reset: Reset) -> Self {
        self.reset = reset;
        self
    }

    /// Exempts the consumer from the bounds on lag ([`crate::Retention`]): it holds back what it needs, without limit. Takes
    /// effect when the consumer is created. Default: not.
    pub fn protected(mut self, protected: bool) -> Self {
        self.protected = protected;
        self
    }

    /// Opens the consumer, creating it where it does not exist.
    ///
    /// # Errors
    /// [`Error::ConsumerName`]; [`Error::ConsumerBusy`]; [`Error::ConsumerDamaged`] where its position is lost;
    /// [`Error::ConsumerDiverged`] where the log holds another record below its position; [`Error::OutOfRange`] for a
    /// [`Start::At`] outside of the log; [`Error::Io`].
    pub fn open(self) -> Result<Consumer> {
        self.check_name()?;
        let registered = self.consumers.find_or_create(&self)?;
        self.finish(registered)
    }

    /// Opens the consumer only if it exists.
    ///
    /// # Errors
    /// As [`ConsumerOptions::open`], and [`Error::UnknownConsumer`].
    pub fn open_existing(self) -> Result<Consumer> {
        self.check_name()?;
        let registered = self.consumers.find(&self.name)?;
        self.finish(registered)
    }

    fn check_name(&self) -> Result<()> {
        if self.consumers.log.is_closed() {
            return Err(Error::Closed);
        }
        match self.name.len() {
            1..=NAME_MAX => Ok(()),
            bytes => Err(Error::ConsumerName { bytes }),
        }
    }

    fn finish(self, registered: Arc<Registered>) -> Result<Consumer> {
        let log = &self.consumers.log;
        let mut state = registered.state.lock();
        if state.open {
            return Err(Error::ConsumerBusy { name: self.name });
        }
        log.check_anchor(&state.cursor)?;
        state.failed = None;
        state.file = None;
        state.cursor.delivery = self.delivery;
        state.cursor.reset = self.reset;
        state.open = true;
        let committed = state.cursor.committed;
        drop(state);
        Ok(Consumer {
            reader: Reader::anywhere(Arc::clone(log), committed, Visible::Durable),
            consumers: self.consumers,
            registered,
            delivery: self.delivery,
            reset: self.reset,
            told: false,
        })
    }
}

impl Log {
    /// What recognises the record below `offset`; `None` where that is not retained.
    fn anchor(self: &Arc<Self>, offset: Offset) -> Result<Option<Anchor>> {
        if offset <= self.start() {
            return Ok(None);
        }
        let mut reader = Reader::anywhere(Arc::clone(self), offset - 1, Visible::Durable);
        reader.ready()?;
        Ok(reader.anchor())
    }

    /// Whether the record below a committed offset is still the one that was committed.
    fn check_anchor(self: &Arc<Self>, cursor: &Cursor) -> Result<()> {
        let Some(anchor) = cursor.anchor else {
            return Ok(());
        };
        if cursor.committed <= self.start() {
            return Ok(());
        }
        if self.anchor(cursor.committed)? == Some(anchor) {
            return Ok(());
        }
        Err(Error::ConsumerDiverged {
            name: cursor.name.clone(),
            committed: cursor.committed,
        })
    }
}
