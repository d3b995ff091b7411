//! The functions of the libssl that `_ssl` has loaded, on the structures inside of the objects.
//!
//! Called by: [`super::Engine`], for whatever happens once a record. Never does: handshake and
//! shutdown.

use std::convert::Infallible;
use std::mem::MaybeUninit;

use pyo3::prelude::*;

use super::Step;

/// The structures of one connection.
#[derive(Clone, Copy)]
pub(super) struct Direct(Infallible);

impl Direct {
    /// Look into the objects; `None` where they are not the standard library's own, or are not laid
    /// out as expected.
    pub fn adopt(
        _object: &Bound<'_, PyAny>,
        _incoming: &Bound<'_, PyAny>,
        _outgoing: &Bound<'_, PyAny>,
    ) -> Option<Self> {
        None
    }

    pub fn read(self, _py: Python<'_>, _memory: &mut [MaybeUninit<u8>]) -> Step {
        match self.0 {}
    }

    pub fn write(self, _py: Python<'_>, _data: &[u8]) -> Step {
        match self.0 {}
    }

    pub fn feed(self, _py: Python<'_>, _ciphertext: &[u8]) -> PyResult<()> {
        match self.0 {}
    }

    pub fn take_output(self, _py: Python<'_>) -> PyResult<Vec<u8>> {
        match self.0 {}
    }

    pub fn incoming_len(self) -> usize {
        match self.0 {}
    }

    pub fn outgoing_len(self) -> usize {
        match self.0 {}
    }
}
