//! The bytes that a reader has received and its user has not read yet.
//!
//! Owns: the chunks. Called by: `reader` (what comes in) and `reading` (what is taken). Knows no transport.
//!
//! A chunk is a `bytes` object as the transport made it, so that a read that takes a whole one copies nothing. Small
//! chunks, and all of them once a separator is searched for, are joined in memory of our own, which grows by doubling:
//! each byte is copied in once.
//!
//! A `readexactly()` that waits for many bytes has its result made at once, and they are received into that
//! ([`Buffer::fill`]). Until it is full, or the wait ends, there are no chunks.
//!
//! Who reads the attribute `_buffer` gets a `bytearray` that *is* the buffer from then on, as in asyncio, until it is
//! empty and has no other reference.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::mem;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyByteArray;

use crate::ffi::{self, Filling, Obj, ObjCell, Raise as _};
use crate::limits;
use crate::transport::reader::Receive;

/// Received bytes, oldest first.
#[derive(Default)]
pub(super) struct Buffer {
    chunks: RefCell<Chunks>,
    /// The exposed `bytearray`.
    array: ObjCell,
}

#[derive(Default)]
struct Chunks {
    queue: VecDeque<Chunk>,
    /// Bytes in the queue.
    len: usize,
    /// They were joined for a search, which goes on in what comes next.
    is_searched: bool,
    /// A result that is being received, and its size.
    filling: Option<(Filling, usize)>,
}

enum Chunk {
    /// An exact `bytes`; the first `start` of it are read.
    Shared {
        bytes: Obj,
        start: usize,
    },
    Own {
        bytes: Vec<u8>,
        start: usize,
    },
}

impl Chunk {
    fn rest<'a>(&'a self, py: Python<'a>) -> &'a [u8] {
        match self {
            Self::Shared { bytes, start } => ffi::bytes_from(py, bytes, *start),
            Self::Own { bytes, start } => &bytes[*start..],
        }
    }

    fn advance(&mut self, count: usize) {
        let (Self::Shared { start, .. } | Self::Own { start, .. }) = self;
        *start += count;
    }
}

impl Buffer {
    /// The exposed `bytearray`, unless it can be forgotten.
    fn array<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyByteArray>> {
        if !self.array.is_some() {
            return None;
        }
        let array = self.array.take()?;
        if ffi::is_unique(array.bind(py)) && array.bind(py).len().is_ok_and(|len| len == 0) {
            return None;
        }
        let bound = array.clone_ref(py).into_bound(py);
        drop(self.array.replace(Some(array)));
        bound.cast_into().ok()
    }

    pub fn len(&self, py: Python<'_>) -> usize {
        match self.array(py) {
            Some(array) => array.len(),
            None => self.chunks.borrow().total(),
        }
    }

    pub fn is_empty(&self, py: Python<'_>) -> bool {
        self.len(py) == 0
    }

    /// Whether a result is being received.
    pub fn is_filling(&self) -> bool {
        self.chunks.borrow().filling.is_some()
    }

    /// Appends an exact `bytes`.
    pub fn push(&self, py: Python<'_>, bytes: Obj) -> PyResult<()> {
        match self.array(py) {
            Some(array) => ffi::array_append(&array, &bytes),
            None => self.chunks.borrow_mut().push(py, bytes),
        }
    }

    /// Puts bytes before all others.
    pub fn push_front(&self, py: Python<'_>, bytes: Obj) -> PyResult<()> {
        if let Some(array) = self.array(py) {
            let rest = ffi::array_take(&array, array.len())?;
            ffi::array_append(&array, &bytes)?;
            return ffi::array_append(&array, &rest);
        }
        let mut chunks = self.chunks.borrow_mut();
        chunks.stop_filling(py)?;
        chunks.queue.try_reserve(1).map_err(ffi::no_memory)?;
        chunks.len += ffi::bytes_len(&bytes);
        chunks.queue.push_front(Chunk::Shared { bytes, start: 0 });
        Ok(())
    }

    /// Takes the first bytes, at most `count`.
    pub fn take(&self, py: Python<'_>, count: usize) -> PyResult<Obj> {
        match self.array(py) {
            Some(array) => ffi::array_take(&array, count),
            None => self.chunks.borrow_mut().take(py, count),
        }
    }

    /// Drops the first bytes, at most `count`.
    pub fn skip(&self, py: Python<'_>, count: usize) -> PyResult<()> {
        if let Some(array) = self.array(py) {
            return ffi::array_take(&array, count).map(drop);
        }
        let mut chunks = self.chunks.borrow_mut();
        chunks.stop_filling(py)?;
        chunks.skip(py, count);
        Ok(())
    }

    /// Passes all bytes to `body`, in one piece.
    pub fn with<R>(&self, py: Python<'_>, body: impl FnOnce(&[u8]) -> R) -> PyResult<R> {
        if let Some(array) = self.array(py) {
            return Ok(ffi::array_with(&array, body));
        }
        let mut chunks = self.chunks.borrow_mut();
        chunks.join(py)?;
        Ok(body(chunks.queue.front().map_or(&[][..], |chunk| chunk.rest(py))))
    }

    /// Makes the object of a result of `size` bytes, if receiving into it is worth it.
    pub fn begin_filling(&self, py: Python<'_>, size: usize) -> PyResult<()> {
        if self.array(py).is_some() {
            return Ok(());
        }
        let mut chunks = self.chunks.borrow_mut();
        if chunks.filling.as_ref().is_some_and(|(_, known)| *known == size) {
            return Ok(());
        }
        // Another call's, which ended when something else had woken it.
        chunks.stop_filling(py)?;
        if chunks.len + limits::STREAM_FILL_MIN > size {
            return Ok(());
        }
        let mut filling = Filling::new(py, size.min(chunks.len + limits::STREAM_FILL_STEP))?;
        for chunk in &chunks.queue {
            filling.append(chunk.rest(py));
        }
        chunks.forget();
        chunks.filling = Some((filling, size));
        Ok(())
    }

    /// Ends receiving into a result; what it has is ordinary content.
    pub fn stop_filling(&self, py: Python<'_>) -> PyResult<()> {
        self.chunks.borrow_mut().stop_filling(py)
    }

    /// Receives into a result; `None` if there is none.
    pub fn fill(
        &self,
        py: Python<'_>,
        receive: Receive<'_>,
    ) -> PyResult<Option<io::Result<usize>>> {
        // TLS receives by libssl, whose callbacks may be Python's: no cell is open meanwhile.
        let Some((mut filling, size)) = self.chunks.borrow_mut().filling.take() else {
            return Ok(None);
        };
        grow(py, &mut filling, size)?;
        let received = filling.fill(receive);
        let mut chunks = self.chunks.borrow_mut();
        chunks.filling = Some((filling, size));
        chunks.finish_filling(py)?;
        Ok(Some(received))
    }

    /// The `bytearray` that is the buffer from now on.
    pub fn expose<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyByteArray>> {
        if let Some(array) = self.array(py) {
            return Ok(array);
        }
        let mut chunks = self.chunks.borrow_mut();
        chunks.stop_filling(py)?;
        let array = PyByteArray::new_with(py, chunks.len, |mut memory| {
            for chunk in &chunks.queue {
                let bytes = chunk.rest(py);
                let (place, rest) = mem::take(&mut memory).split_at_mut(bytes.len());
                place.copy_from_slice(bytes);
                memory = rest;
            }
            Ok(())
        })?;
        chunks.forget();
        drop(chunks);
        drop(self.array.replace(Some(array.clone().into())));
        Ok(array)
    }

    /// Replaces the content, by what is assigned to `_buffer`.
    pub fn replace(&self, array: &Bound<'_, PyAny>) -> PyResult<()> {
        if !array.is_exact_instance_of::<PyByteArray>() {
            return Err(PyTypeError::raise(format!(
                "the buffer of a stream is a bytearray, not {}",
                array.get_type().name()?
            )));
        }
        let mut chunks = self.chunks.borrow_mut();
        chunks.stop_filling(array.py())?;
        chunks.forget();
        drop(chunks);
        drop(self.array.replace(Some(array.clone().into())));
        Ok(())
    }

    pub fn clear(&self) {
        let chunks = mem::take(&mut *self.chunks.borrow_mut());
        drop(chunks);
        drop(self.array.take());
    }
}

impl Chunks {
    fn total(&self) -> usize {
        self.len + self.filling.as_ref().map_or(0, |(filling, _)| filling.len())
    }

    /// Drops all chunks.
    fn forget(&mut self) {
        self.queue.clear();
        self.len = 0;
        self.is_searched = false;
    }

    fn push(&mut self, py: Python<'_>, bytes: Obj) -> PyResult<()> {
        let mut start = 0;
        while let Some((filling, size)) = &mut self.filling {
            grow(py, filling, *size)?;
            start += filling.append(ffi::bytes_from(py, &bytes, start));
            self.finish_filling(py)?;
            if start == ffi::bytes_len(&bytes) {
                return Ok(());
            }
        }
        let len = ffi::bytes_len(&bytes) - start;
        if self.append(py, ffi::bytes_from(py, &bytes, start))? {
            return Ok(());
        }
        self.queue.try_reserve(1).map_err(ffi::no_memory)?;
        self.queue.push_back(Chunk::Shared { bytes, start });
        self.len += len;
        Ok(())
    }

    /// Copies bytes to the last chunk, if that is better than one more; whether it did.
    fn append(&mut self, py: Python<'_>, more: &[u8]) -> PyResult<bool> {
        let Some(last) = self.queue.back_mut() else {
            return Ok(false);
        };
        let is_small = more.len() <= limits::STREAM_JOINED_MAX;
        match last {
            Chunk::Own { bytes, start } if is_small || self.is_searched => {
                if *start > bytes.len() / 2 {
                    bytes.drain(..mem::take(start));
                }
                bytes.try_reserve(more.len()).map_err(ffi::no_memory)?;
                bytes.extend_from_slice(more);
            }
            Chunk::Shared { .. }
                if last.rest(py).len() + more.len() <= limits::STREAM_JOINED_MAX =>
            {
                let mut bytes = Vec::new();
                bytes.try_reserve(2 * limits::STREAM_JOINED_MAX).map_err(ffi::no_memory)?;
                bytes.extend_from_slice(last.rest(py));
                bytes.extend_from_slice(more);
                *last = Chunk::Own { bytes, start: 0 };
            }
            _ => return Ok(false),
        }
        self.len += more.len();
        Ok(true)
    }

    fn take(&mut self, py: Python<'_>, count: usize) -> PyResult<Obj> {
        self.stop_filling(py)?;
        let count = count.min(self.len);
        let whole = match self.queue.front() {
            Some(Chunk::Shared { bytes, start: 0 }) if ffi::bytes_len(bytes) == count => {
                bytes.clone_ref(py)
            }
            Some(first) if first.rest(py).len() >= count => {
                ffi::copy_bytes(py, &first.rest(py)[..count])?
            }
            _ => {
                let mut all = Filling::new(py, count)?;
                for chunk in &self.queue {
                    if all.len() == count {
                        break;
                    }
                    all.append(chunk.rest(py));
                }
                all.finish(py)?
            }
        };
        self.skip(py, count);
        Ok(whole)
    }

    fn skip(&mut self, py: Python<'_>, count: usize) {
        let mut left = count.min(self.len);
        self.len -= left;
        while let Some(first) = self.queue.front_mut() {
            let len = first.rest(py).len();
            if left < len {
                first.advance(left);
                return;
            }
            left -= len;
            self.queue.pop_front();
        }
        self.is_searched = false;
    }

    /// Joins all chunks.
    fn join(&mut self, py: Python<'_>) -> PyResult<()> {
        self.stop_filling(py)?;
        if self.queue.len() <= 1 {
            return Ok(());
        }
        let mut bytes = Vec::new();
        bytes.try_reserve(self.len).map_err(ffi::no_memory)?;
        for chunk in &self.queue {
            bytes.extend_from_slice(chunk.rest(py));
        }
        self.queue.clear();
        self.queue.push_back(Chunk::Own { bytes, start: 0 });
        self.is_searched = true;
        Ok(())
    }

    /// Makes the result a chunk once it is complete, or if bytes came in by another way.
    fn finish_filling(&mut self, py: Python<'_>) -> PyResult<()> {
        match &self.filling {
            Some((filling, size)) if filling.len() == *size || !self.queue.is_empty() => {
                self.stop_filling(py)
            }
            _ => Ok(()),
        }
    }

    fn stop_filling(&mut self, py: Python<'_>) -> PyResult<()> {
        let Some((filling, _)) = self.filling.take() else {
            return Ok(());
        };
        if filling.len() > 0 {
            let bytes = filling.finish(py)?;
            self.len += ffi::bytes_len(&bytes);
            self.queue.push_front(Chunk::Shared { bytes, start: 0 });
        }
        Ok(())
    }
}

/// Makes room in a result that is full and not complete. It grows with what has arrived: its size may be a peer's
/// lie.
fn grow(py: Python<'_>, filling: &mut Filling, size: usize) -> PyResult<()> {
    let capacity = filling.capacity();
    if filling.len() < capacity {
        return Ok(());
    }
    filling.resize(py, size.min(capacity.saturating_mul(2)))
}
