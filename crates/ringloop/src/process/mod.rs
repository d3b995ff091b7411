//! Layer 4: child processes: start, exchange data by pipes, wait, kill.
//!
//! Owns: [`Command`], [`Child`], the ends of its pipes. Called by: applications. It uses neither SIGCHLD
//! nor a thread.
//!
//! A wait uses the child's pidfd: on the ring the waitid operation (Linux 6.7), else a poll of the
//! descriptor. std's `Command` starts the child, and takes its status at the end.
//!
//! ```no_run
//! use ringloop::process::Command;
//!
//! let runtime = ringloop::Runtime::new()?;
//! let output = runtime.block_on(async { Command::new("date").arg("-u").output().await })??;
//! assert!(output.status.success());
//! # Ok::<(), ringloop::Error>(())
//! ```

mod child;
mod pipe;

use crate::future;
use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::process::{ExitStatus, Output, Stdio};

pub use child::Child;
pub use pipe::{PipeReader, PipeWriter, pipe};

/// A process to start.
#[derive(Debug)]
pub struct Command {
    std: std::process::Command,
    /// Whether the caller has set input, output and error output.
    is_set: [bool; 3],
    kill_on_drop: bool,
}

impl From<std::process::Command> for Command {
    /// Takes it over; [`Command::output`] replaces its settings of input and outputs.
    fn from(std: std::process::Command) -> Self {
        Self { std, is_set: [false; 3], kill_on_drop: false }
    }
}

impl Command {
    /// Runs `program`, searched as by std; without arguments, with this process's environment,
    /// directory, input and output.
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        std::process::Command::new(program).into()
    }

    /// Adds an argument.
    pub fn arg(&mut self, arg: impl AsRef<OsStr>) -> &mut Self {
        self.std.arg(arg);
        self
    }

    /// Adds several arguments.
    pub fn args(&mut self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> &mut Self {
        self.std.args(args);
        self
    }

    /// Sets an environment variable.
    pub fn env(&mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> &mut Self {
        self.std.env(name, value);
        self
    }

    /// Starts with an empty environment.
    pub fn env_clear(&mut self) -> &mut Self {
        self.std.env_clear();
        self
    }

    /// Runs it in `directory`.
    pub fn current_dir(&mut self, directory: impl AsRef<Path>) -> &mut Self {
        self.std.current_dir(directory);
        self
    }

    /// Sets its input; `Stdio::piped()` is [`Child::stdin`].
    pub fn stdin(&mut self, from: impl Into<Stdio>) -> &mut Self {
        self.std.stdin(from);
        self.is_set[0] = true;
        self
    }

    /// Sets its output; `Stdio::piped()` is [`Child::stdout`].
    pub fn stdout(&mut self, to: impl Into<Stdio>) -> &mut Self {
        self.std.stdout(to);
        self.is_set[1] = true;
        self
    }

    /// Sets its error output; `Stdio::piped()` is [`Child::stderr`].
    pub fn stderr(&mut self, to: impl Into<Stdio>) -> &mut Self {
        self.std.stderr(to);
        self.is_set[2] = true;
        self
    }

    /// Kills the child when its [`Child`] is dropped before its end; off by default.
    pub fn kill_on_drop(&mut self, kill: bool) -> &mut Self {
        self.kill_on_drop = kill;
        self
    }

    /// Starts it.
    ///
    /// Returns once the child runs its program, and blocks the loop for about a millisecond.
    ///
    /// # Errors
    /// `ENOENT`, `EACCES`, `E2BIG`, `EAGAIN`, `EMFILE`, and those of fork(2) and exec(2).
    pub fn spawn(&mut self) -> io::Result<Child> {
        Child::start(&mut self.std, self.kill_on_drop)
    }

    /// Starts it and waits for its end.
    ///
    /// # Cancel safety
    /// As [`Child`]'s drop.
    pub async fn status(&mut self) -> io::Result<ExitStatus> {
        self.spawn()?.wait().await
    }

    /// Starts it and collects its output and error output until its end.
    ///
    /// Both are pipes unless set. Its input is empty unless set; a pipe to it ends at once. Settings of
    /// std's command (`From`) are replaced, and reset to inherited after that.
    /// Memory limits the output: read from [`Child::stdout`] if it may be long.
    ///
    /// # Cancel safety
    /// As [`Child`]'s drop.
    pub async fn output(&mut self) -> io::Result<Output> {
        self.set_unset([Stdio::null(), Stdio::piped(), Stdio::piped()]);
        let started = self.spawn();
        self.set_unset([Stdio::inherit(), Stdio::inherit(), Stdio::inherit()]);
        let mut child = started?;
        // No further input can come: the child may wait for its end.
        drop(child.stdin.take());
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let (stdout, stderr) = future::join(read_all(stdout), read_all(stderr)).await;
        Ok(Output { status: child.wait().await?, stdout: stdout?, stderr: stderr? })
    }
}

impl Command {
    /// Sets input and outputs that the caller has not set.
    fn set_unset(&mut self, [stdin, stdout, stderr]: [Stdio; 3]) {
        if !self.is_set[0] {
            self.std.stdin(stdin);
        }
        if !self.is_set[1] {
            self.std.stdout(stdout);
        }
        if !self.is_set[2] {
            self.std.stderr(stderr);
        }
    }
}

async fn read_all(pipe: Option<PipeReader>) -> io::Result<Vec<u8>> {
    match pipe {
        Some(pipe) => pipe.read_to_end(Vec::new()).await,
        None => Ok(Vec::new()),
    }
}
