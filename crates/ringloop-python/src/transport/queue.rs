//! Bytes to be sent, in the order of their writes.
//!
//! Owns: the buffers and their count. Called by: the writing side of streams, pipes and TLS. Each
//! buffer holds at least one byte.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io::{self, IoSlice};

use pyo3::prelude::*;
use ringloop::buf::SendBuf;

use crate::ffi;
use crate::limits;

/// The queue of one transport.
#[derive(Default)]
pub(crate) struct SendQueue {
    bufs: RefCell<VecDeque<SendBuf>>,
    bytes: Cell<usize>,
}

impl SendQueue {
    /// How many bytes it holds.
    pub fn size(&self) -> usize {
        self.bytes.get()
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.get() == 0
    }

    /// How many buffers it holds.
    pub fn count(&self) -> usize {
        self.bufs.borrow().len()
    }

    /// Appends buffers.
    ///
    /// # Errors
    /// `MemoryError`; nothing is queued then.
    pub fn push(&self, bufs: impl Iterator<Item = SendBuf>) -> PyResult<()> {
        let mut queue = self.bufs.borrow_mut();
        let (least, most) = bufs.size_hint();
        queue.try_reserve(most.unwrap_or(least)).map_err(ffi::no_memory)?;
        let mut added = 0;
        for buf in bufs {
            added += buf.len();
            queue.push_back(buf);
        }
        self.bytes.set(self.bytes.get() + added);
        Ok(())
    }

    /// Puts back what was taken and not sent.
    pub fn push_front(&self, buf: SendBuf) {
        self.bytes.set(self.bytes.get() + buf.len());
        self.bufs.borrow_mut().push_front(buf);
    }

    pub fn pop_front(&self) -> Option<SendBuf> {
        let buf = self.bufs.borrow_mut().pop_front()?;
        self.bytes.set(self.bytes.get() - buf.len());
        Some(buf)
    }

    /// Takes the first `count` buffers.
    pub fn take(&self, count: usize) -> Vec<SendBuf> {
        let taken: Vec<SendBuf> = self.bufs.borrow_mut().drain(..count).collect();
        let bytes: usize = taken.iter().map(SendBuf::len).sum();
        self.bytes.set(self.bytes.get() - bytes);
        taken
    }

    /// Takes everything as one buffer; `None` without memory for it.
    pub fn take_joined(&self) -> Option<SendBuf> {
        let whole = joined(self.bufs.borrow_mut().make_contiguous()).ok()?;
        self.clear();
        Some(whole)
    }

    /// Drops `count` sent bytes.
    pub fn advance(&self, mut count: usize) {
        let mut queue = self.bufs.borrow_mut();
        self.bytes.set(self.bytes.get().saturating_sub(count));
        while let Some(front) = queue.front_mut() {
            let len = front.len();
            if count < len {
                front.advance(count);
                return;
            }
            count -= len;
            queue.pop_front();
        }
    }

    /// Drops everything, outside the borrow.
    pub fn clear(&self) {
        let queue = self.bufs.take();
        self.bytes.set(0);
        drop(queue);
    }

    /// Makes system calls until everything is sent or one fails: `one` for a single buffer, `several`
    /// for the front of the queue. With `keeps_messages`, each buffer is a call.
    pub fn send(
        &self,
        keeps_messages: bool,
        one: impl Fn(&[u8]) -> io::Result<usize>,
        several: impl Fn(&[IoSlice<'_>]) -> io::Result<usize>,
    ) -> io::Result<()> {
        while !self.is_empty() {
            let queue = self.bufs.borrow();
            let sent = if queue.len() == 1 || keeps_messages {
                one(queue[0].as_slice())
            } else {
                let front = queue.iter().take(limits::WRITE_VECTOR_MAX);
                several(&front.map(|buf| IoSlice::new(buf.as_slice())).collect::<Vec<_>>())
            };
            drop(queue);
            match sent {
                Ok(count) => self.advance(count),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// One buffer with the bytes of all.
pub(crate) fn joined(bufs: &[SendBuf]) -> PyResult<SendBuf> {
    let mut bytes = Vec::new();
    let len = bufs.iter().map(SendBuf::len).sum();
    bytes.try_reserve_exact(len).map_err(ffi::no_memory)?;
    for buf in bufs {
        bytes.extend_from_slice(buf.as_slice());
    }
    Ok(bytes.into())
}
