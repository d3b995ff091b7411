//! Destination of connection secrets, in NSS key log format, for tools that decrypt packet
//! captures.
//!
//! A Python function is never called while a packet is processed: its lines are queued until the
//! endpoint's call ends.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::PyTraverseError;
use pyo3::exceptions::PyTypeError;
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use ringloop::embed::sys::private;
use ringloop_quic::rustls::KeyLog;
use ringloop_quic::tls::Secrets;

use super::loop_::LoopSide;
use crate::error;
use crate::ffi::{Fallible, Raise as _};

/// Queued lines for a Python function.
#[derive(Debug, Default)]
pub struct Lines(Mutex<Vec<String>>);

impl Lines {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl KeyLog for Lines {
    fn log(&self, label: &str, client_random: &[u8], secret: &[u8]) {
        let line = line(label, client_random, secret);
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lines.push(line);
    }
}

/// A file to append to.
#[derive(Debug)]
struct Appended(Mutex<File>);

impl KeyLog for Appended {
    fn log(&self, label: &str, client_random: &[u8], secret: &[u8]) {
        let line = line(label, client_random, secret);
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A full disk must not end connections.
        drop(file.write_all(line.as_bytes()));
    }
}

fn line(label: &str, client_random: &[u8], secret: &[u8]) -> String {
    let mut line =
        String::with_capacity(label.len() + 2 * (client_random.len() + secret.len()) + 3);
    line.push_str(label);
    for bytes in [client_random, secret] {
        line.push(' ');
        for byte in bytes {
            // Writing to a string cannot fail.
            let _always_ok = write!(line, "{byte:02x}");
        }
    }
    line.push('\n');
    line
}

/// A function and its queued lines.
pub struct Listener {
    lines: Arc<Lines>,
    function: Py<PyAny>,
}

impl Listener {
    pub fn clone_ref(&self, py: Python<'_>) -> Self {
        Self { lines: Arc::clone(&self.lines), function: self.function.clone_ref(py) }
    }
}

/// Parses the argument `keylog`: None, False, a path or a function.
pub fn from_python(keylog: Option<&Bound<'_, PyAny>>) -> PyResult<(Secrets, Option<Listener>)> {
    let Some(keylog) = keylog else {
        return Ok((Secrets::FromEnvironment, None));
    };
    if keylog.is_callable() {
        let lines = Arc::new(Lines::default());
        let function = keylog.clone().unbind();
        let secrets = Secrets::To(Arc::clone(&lines) as Arc<dyn KeyLog>);
        return Ok((secrets, Some(Listener { lines, function })));
    }
    if let Ok(false) = keylog.extract::<bool>() {
        return Ok((Secrets::Kept, None));
    }
    let path: PathBuf = keylog
        .extract()
        .map_err(|_| PyTypeError::raise("keylog is None, False, a path or a function"))?;
    // A pipe without a reader fails here; a full one loses lines, and no loop blocks on it.
    let file =
        private::append(&path).map_err(|error| error::with_path(keylog.py(), &error, &path))?;
    Ok((Secrets::To(Arc::new(Appended(Mutex::new(file)))), None))
}

/// The key log functions of an endpoint's connections.
#[derive(Default)]
pub struct Listeners(Mutex<Vec<Listener>>);

impl Listeners {
    pub fn add(&self, py: Python<'_>, listener: Option<&Listener>) {
        let Some(listener) = listener else {
            return;
        };
        let listener = listener.clone_ref(py);
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !all.iter().any(|known| Arc::ptr_eq(&known.lines, &listener.lines)) {
            all.push(listener);
        }
    }

    /// For the garbage collector. A thread that holds the lock will release it.
    pub fn visit(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        if let Ok(all) = self.0.try_lock() {
            for listener in all.iter() {
                visit.call(&listener.function)?;
            }
        }
        Ok(())
    }

    /// Calls the functions with their lines. The loop reports their exceptions, which end neither a
    /// connection nor the other calls.
    pub fn deliver(&self, py: Python<'_>, loop_: &Mutex<LoopSide>) {
        let mut due = Vec::new();
        {
            let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            for listener in all.iter() {
                let lines = listener.lines.take();
                if !lines.is_empty() {
                    due.push((listener.function.clone_ref(py), lines));
                }
            }
        }
        for (function, lines) in due {
            for line in lines {
                if let Err(error) = function.call1(py, (Fallible(line),)) {
                    LoopSide::report(loop_, py, "a key log of QUIC's raised", error);
                }
            }
        }
    }
}
