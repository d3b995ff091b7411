//! Child processes, whose pipes and ends coroutines wait for.
//!
//! Owns: [`Command`], [`Child`] and the ends of its pipes, over the engine's (`ringloop::process`).
//! Called by: coroutines. All of them stay on their thread. The operations own their buffers, so a
//! cancelled coroutine does not wait for a child.

use crate::limits;
use crate::wait::block_on;
use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::path::Path;
use std::process::{ExitStatus, Output, Stdio};

/// A process to start, with the options of `std::process::Command`.
///
/// ```
/// use ringloop_coro::process::Command;
///
/// ringloop_coro::start(1, || {
///     let output = Command::new("echo").arg("hello").output()?;
///     assert_eq!((output.status.success(), &output.stdout[..]), (true, &b"hello\n"[..]));
///     std::io::Result::Ok(())
/// })??;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Command(ringloop::process::Command);

impl From<std::process::Command> for Command {
    /// Takes it over; [`Command::output`] replaces its settings of input and outputs.
    fn from(std: std::process::Command) -> Self {
        Self(std.into())
    }
}

macro_rules! options {
    ($($(#[$doc:meta])* $name:ident($($argument:ident: $type:ty),*);)*) => {
        impl Command {$(
            $(#[$doc])*
            pub fn $name(&mut self, $($argument: $type),*) -> &mut Self {
                self.0.$name($($argument),*);
                self
            }
        )*}
    };
}

options! {
    /// Adds an argument.
    arg(arg: impl AsRef<OsStr>);
    /// Adds several arguments.
    args(args: impl IntoIterator<Item = impl AsRef<OsStr>>);
    /// Sets an environment variable.
    env(name: impl AsRef<OsStr>, value: impl AsRef<OsStr>);
    /// Starts with an empty environment.
    env_clear();
    /// Runs it in `directory`.
    current_dir(directory: impl AsRef<Path>);
    /// Sets its input; `Stdio::piped()` is [`Child::stdin`].
    stdin(from: impl Into<Stdio>);
    /// Sets its output; `Stdio::piped()` is [`Child::stdout`].
    stdout(to: impl Into<Stdio>);
    /// Sets its error output; `Stdio::piped()` is [`Child::stderr`].
    stderr(to: impl Into<Stdio>);
    /// Kills the child when its [`Child`] is dropped before its end, also by a cancelled coroutine.
    kill_on_drop(kill: bool);
}

impl Command {
    /// Runs `program`, as [`ringloop::process::Command::new`].
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        Self(ringloop::process::Command::new(program))
    }

    /// Starts it.
    ///
    /// # Errors
    /// As [`ringloop::process::Command::spawn`].
    pub fn spawn(&mut self) -> io::Result<Child> {
        let mut child = self.0.spawn()?;
        Ok(Child {
            stdin: child.stdin.take().map(PipeWriter),
            stdout: child.stdout.take().map(PipeReader),
            stderr: child.stderr.take().map(PipeReader),
            inner: child,
        })
    }

    /// Starts it and parks until its end.
    ///
    /// # Errors
    /// As [`Command::spawn`].
    ///
    /// # Panics
    /// Outside of a coroutine.
    pub fn status(&mut self) -> io::Result<ExitStatus> {
        block_on(self.0.status())
    }

    /// Starts it and collects its output and error output until its end, as
    /// [`ringloop::process::Command::output`].
    ///
    /// # Errors
    /// As [`Command::spawn`], and those of read(2).
    ///
    /// # Panics
    /// Outside of a coroutine.
    pub fn output(&mut self) -> io::Result<Output> {
        block_on(self.0.output())
    }
}

/// A child process. Dropping it leaves the child running, unless [`Command::kill_on_drop`] is set.
#[derive(Debug)]
pub struct Child {
    /// The writing end of its input, if that is a pipe. Dropping it ends the child's input.
    pub stdin: Option<PipeWriter>,
    /// The reading end of its output, if that is a pipe.
    pub stdout: Option<PipeReader>,
    /// The reading end of its error output, if that is a pipe.
    pub stderr: Option<PipeReader>,
    inner: ringloop::process::Child,
}

impl Child {
    /// Its process id, until it was waited for.
    pub fn id(&self) -> Option<u32> {
        self.inner.id()
    }

    /// Closes its input and parks until its end.
    ///
    /// # Errors
    /// `ECHILD` if the status was taken elsewhere.
    ///
    /// # Panics
    /// Outside of a coroutine.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        block_on(self.wait_async())
    }

    /// As [`Child::wait`]: for `select!`.
    ///
    /// # Errors
    /// As [`Child::wait`].
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn wait_async(&mut self) -> io::Result<ExitStatus> {
        self.stdin = None;
        self.inner.wait().await
    }

    /// Its status, if it has ended.
    ///
    /// # Errors
    /// As [`Child::wait`].
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        self.inner.try_wait()
    }

    /// Sends it SIGKILL, unless it has ended. [`Child::wait`] waits for its end.
    ///
    /// # Errors
    /// Those of kill(2).
    pub fn kill(&mut self) -> io::Result<()> {
        self.inner.kill()
    }
}

/// The reading end of a pipe.
#[derive(Debug)]
pub struct PipeReader(ringloop::process::PipeReader);

/// The writing end of a pipe; dropping it ends the reader's input.
#[derive(Debug)]
pub struct PipeWriter(ringloop::process::PipeWriter);

impl Read for PipeReader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let len = into.len().min(limits::FILE_BYTES_MAX);
        let (result, bytes) = block_on(self.0.read(Vec::with_capacity(len)));
        let count = result?.min(len);
        into[..count].copy_from_slice(&bytes[..count]);
        Ok(count)
    }
}

impl Write for PipeWriter {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        let len = from.len().min(limits::FILE_BYTES_MAX);
        block_on(self.0.write(from[..len].to_vec())).0
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
