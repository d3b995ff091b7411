//! A connection's datagrams: those that are taken, and those that find room.

use std::time::Duration;

use pyo3::prelude::*;
use ringloop_quic::Bytes;
use ringloop_quic::core::DatagramRefusal;
use ringloop_quic::error::ConnectionError;

use super::connection::Connection;
use super::errors;

impl Connection {
    /// Those that have come, at most so many; an error where there is none and the connection is over.
    pub(super) fn take_datagrams(&self, py: Python<'_>, count_max: usize) -> PyResult<Vec<Bytes>> {
        let mut taken = Vec::new();
        {
            let mut state = self.route.shared.state(py);
            if let Some((mut connection, _)) = state.both(self.route.handle) {
                while taken.len() < count_max
                    && let Some(datagram) = connection.receive_datagram()
                {
                    taken.push(datagram);
                }
            }
        }
        if taken.is_empty() && self.route.lost().is_some() {
            return Err(errors::connection(py, &self.route.record));
        }
        Ok(taken)
    }

    /// Send them in order; tells how many found room.
    pub(super) fn send_all(
        &self,
        py: Python<'_>,
        datagrams: impl Iterator<Item = Bytes>,
        drop_oldest: bool,
        expires: Option<f64>,
    ) -> PyResult<usize> {
        let mut count = 0;
        let lifetime = expires.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let refusal = {
            let mut state = self.route.shared.state(py);
            let deadline = lifetime.map(|lifetime| state.clock.moment(None) + lifetime);
            match state.open_both(self.route.handle) {
                Ok((mut connection, _)) => datagrams
                    .map(|bytes| connection.send_datagram_until(bytes, drop_oldest, deadline))
                    .inspect(|sent| count += usize::from(sent.is_ok()))
                    .find_map(Result::err),
                Err(_) => Some(DatagramRefusal::Error(ConnectionError::Closed.into())),
            }
        };
        if let Some(DatagramRefusal::Error(error)) = refusal {
            return Err(errors::datagram(py, &self.route.record, &error));
        }
        self.route.shared.arm_flush(py)?;
        Ok(count)
    }
}
