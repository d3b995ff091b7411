//! A connection's events, from notes to objects.

use std::sync::{MutexGuard, PoisonError};

use pyo3::prelude::*;

use super::errors;
use super::event_connection::EventConnection;
use super::events;
use super::notes::{Id, Told};
use crate::ffi;

impl EventConnection {
    /// The next events, at most so many.
    pub(super) fn take_told(&self, py: Python<'_>, count_max: usize) -> Vec<Told> {
        let mut told = std::mem::take(&mut *self.untold());
        if !told.is_empty() {
            let later = told.split_off(told.len().min(count_max));
            *self.untold() = later;
            return told;
        }
        {
            let mut state = self.route.shared.state(py);
            if let Some((mut connection, link)) = state.both(self.route.handle) {
                link.notes.take(&mut connection, count_max, &mut told);
            }
        }
        if told.is_empty()
            && let Some(left) = self.route.record.left.get()
        {
            let mut left = left.lock().unwrap_or_else(PoisonError::into_inner);
            let count = left.len().min(count_max);
            told.extend(left.drain(..count));
        }
        told
    }

    /// Events that could not be told are the next again.
    pub(super) fn keep_untold(&self, mut told: Vec<Told>) {
        let mut untold = self.untold();
        told.append(&mut untold);
        *untold = told;
    }

    fn untold(&self) -> MutexGuard<'_, Vec<Told>> {
        let untold = &self.route.record.untold;
        untold.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As an object of Python's.
    pub(super) fn event<'py>(&self, py: Python<'py>, told: &Told) -> PyResult<Bound<'py, PyAny>> {
        match told {
            Told::Negotiated => {
                let alpn = self
                    .route
                    .handshake(py)
                    .ok()
                    .flatten()
                    .and_then(|agreed| agreed.alpn.0);
                events::ProtocolNegotiated::object(py, alpn)
            }
            Told::Completed => {
                let agreed = self.route.handshake(py).ok().flatten();
                let early = agreed
                    .as_ref()
                    .is_some_and(|agreed| agreed.early_data_accepted);
                let resumed = agreed.as_ref().is_some_and(|agreed| agreed.is_resumed);
                let alpn = agreed.and_then(|agreed| agreed.alpn.0);
                events::HandshakeCompleted::object(py, alpn, early, resumed)
            }
            Told::Data {
                stream,
                pieces,
                is_end,
            } => {
                let data = ffi::join_bytes(py, pieces)?.into_bound(py).unbind();
                events::StreamDataReceived::object(py, data, *is_end, stream.0)
            }
            Told::Reset(stream, code) => events::StreamReset::object(py, *code, stream.0),
            Told::Stopped(stream, code) => events::StopSendingReceived::object(py, *code, stream.0),
            Told::Datagram(bytes) => {
                let data = ffi::new_bytes(py, bytes)?.into_any().unbind();
                events::DatagramFrameReceived::object(py, data)
            }
            Told::PingAcknowledged(uid) => events::PingAcknowledged::object(py, *uid),
            Told::Id(Id::Issued(id)) => {
                events::ConnectionIdIssued::object(py, ffi::new_bytes(py, id)?.into_any().unbind())
            }
            Told::Id(Id::Retired(id)) => {
                events::ConnectionIdRetired::object(py, ffi::new_bytes(py, id)?.into_any().unbind())
            }
            Told::Terminated => self.terminated(py),
        }
    }

    /// How it ended, or that it ended.
    pub(super) fn terminated<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let Some(end) = errors::end_of(&self.route.record) else {
            return events::ConnectionTerminated::object(py, 0, None, String::new());
        };
        // Of which frame the error was is not known, but that alerts of TLS are of CRYPTO's (RFC 9001 §4.8).
        let frame_type = match (end.is_application, end.code) {
            (true, _) => None,
            (false, 0x100..0x200) => Some(6),
            (false, _) => Some(0),
        };
        events::ConnectionTerminated::object(py, end.code, frame_type, end.reason)
    }
}
