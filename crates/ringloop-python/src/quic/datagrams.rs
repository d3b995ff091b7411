//! A connection's datagrams: receiving, and sending as far as there is room.

use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::{PyIterator, PyList};
use ringloop_quic::core::DatagramRefusal;
use ringloop_quic::error::ConnectionError;
use ringloop_quic::limits::MESSAGE_BYTES_MAX;
use ringloop_quic::{Bytes, BytesMut};

use super::connection::Connection;
use super::errors;
use crate::ffi;

impl Connection {
    /// Takes received datagrams, at most `count_max`; an error if there are none and the connection
    /// is closed.
    pub(super) fn take_datagrams(&self, py: Python<'_>, count_max: usize) -> PyResult<Vec<Bytes>> {
        let mut taken = Vec::new();
        {
            let mut state = self.route.shared.state(py);
            if let Some((mut connection, _)) = state.sessions.both(self.route.handle) {
                while taken.len() < count_max
                    && let Some(datagram) = connection.receive_datagram()
                {
                    taken.push(datagram);
                }
            }
        }
        if taken.is_empty() && self.route.lost().is_some() {
            return Err(errors::connection(py, &self.route.end));
        }
        Ok(taken)
    }

    /// Sends the datagrams for which there is room, in order; returns their number.
    pub(super) fn send_fitting(
        &self,
        py: Python<'_>,
        datagrams: &Bound<'_, PyAny>,
        drop_oldest: bool,
    ) -> PyResult<usize> {
        let count = datagrams.cast::<PyList>().map_or(1, PyListMethods::len);
        let mut rest = datagrams.try_iter()?;
        let mut sent_count = 0;
        loop {
            let room = self.route.look(py, |connection, _| connection.datagram_room());
            // If the connection is closed, sending reports that.
            let room = if drop_oldest { usize::MAX } else { room.unwrap_or_default() };
            let copies = Copies::new(&mut rest, room, count)?;
            let is_all = copies.bytes.len() <= room;
            let copied_count = copies.lens.len();
            let taken_count = self.send_all(py, copies, drop_oldest, None)?;
            sent_count += taken_count;
            // One was rejected: the connection reports when there is room again.
            if is_all || taken_count < copied_count {
                return Ok(sent_count);
            }
        }
    }

    /// Sends all in order; returns how many found room.
    pub(super) fn send_all(
        &self,
        py: Python<'_>,
        datagrams: impl Iterator<Item = Bytes>,
        drop_oldest: bool,
        lifetime: Option<Duration>,
    ) -> PyResult<usize> {
        let mut count = 0;
        let refusal = {
            let mut state = self.route.shared.state(py);
            let deadline = lifetime.map(|lifetime| state.clock.moment(None) + lifetime);
            match state.sessions.open(self.route.handle) {
                Ok((mut connection, _)) => datagrams
                    .map(|bytes| connection.send_datagram_until(bytes, drop_oldest, deadline))
                    .inspect(|sent| count += usize::from(sent.is_ok()))
                    .find_map(Result::err),
                Err(_) => Some(DatagramRefusal::Error(ConnectionError::Closed.into())),
            }
        };
        // Datagrams before a rejected one were accepted.
        if count > 0 {
            self.route.shared.arm_flush(py)?;
        }
        match refusal {
            Some(DatagramRefusal::Error(error)) => {
                Err(errors::datagram(py, &self.route.end, &error))
            }
            _ => Ok(count),
        }
    }
}

/// Datagrams copied into one buffer.
struct Copies {
    bytes: Bytes,
    lens: std::vec::IntoIter<usize>,
}

impl Copies {
    /// Copies the next ones: as many as fit into `room` bytes, and one more. About `count` are
    /// expected.
    fn new(datagrams: &mut Bound<'_, PyIterator>, room: usize, count: usize) -> PyResult<Self> {
        let (mut bytes, mut lens) = (BytesMut::new(), Vec::new());
        for data in datagrams {
            ffi::with_bytes(data?.as_borrowed(), |data| {
                if lens.is_empty() {
                    let all_len = data.len().saturating_mul(count);
                    bytes.reserve(all_len.min(room).min(MESSAGE_BYTES_MAX));
                }
                bytes.extend_from_slice(data);
                lens.push(data.len());
            })?;
            if bytes.len() > room {
                break;
            }
        }
        Ok(Self { bytes: bytes.freeze(), lens: lens.into_iter() })
    }
}

impl Iterator for Copies {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        let len = self.lens.next()?;
        Some(self.bytes.split_to(len))
    }
}
