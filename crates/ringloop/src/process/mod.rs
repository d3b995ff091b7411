//! Layer 4: child processes: start, talk by pipes, wait, kill.
//!
//! Owns: [`Command`], [`Child`], the ends of its pipes. Called by: Rust programs. Never does: touch SIGCHLD, poll
//! for the end of a child, or wait for one with a thread.
//!
//! A child is waited for by its pidfd: on the ring by its waitid operation where the kernel has it (6.7),
//! else by polling the descriptor. std's `Command` starts it, and takes its status once it has ended.
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

/// A process to be started, and how.
#[derive(Debug)]
pub struct Command {
    std: std::process::Command,
    /// Which of input, output and errors the caller has said something about.
    is_set: [bool; 3],
    kill_on_drop: bool,
}

impl From<std::process::Command> for Command {
    /// Takes it over; [`Command::output`] replaces what it says of input, output and errors.
    fn from(std: std::process::Command) -> Self {
        Self {
            std,
            is_set: [false; 3],
            kill_on_drop: false,
        }
    }
}

impl Command {
    /// Run `program`, found as std finds it; without arguments, with this process's environment, directory,
    /// input and output.
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        std::process::Command::new(program).into()
    }

    /// Add an argument.
    pub fn arg(&mut self, arg: impl AsRef<OsStr>) -> &mut Self {
        self.std.arg(arg);
        self
    }

    /// Add several arguments.
    pub fn args(&mut self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> &mut Self {
        self.std.args(args);
        self
    }

    /// Set a variable of the environment.
    pub fn env(&mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> &mut Self {
        self.std.env(name, value);
        self
    }

    /// Start with an empty environment.
    pub fn env_clear(&mut self) -> &mut Self {
        self.std.env_clear();
        self
    }

    /// Run it in `directory`.
    pub fn current_dir(&mut self, directory: impl AsRef<Path>) -> &mut Self {
        self.std.current_dir(directory);
        self
    }

    /// Where its input comes from; `Stdio::piped()` is [`Child::stdin`].
    pub fn stdin(&mut self, from: impl Into<Stdio>) -> &mut Self {
        self.std.stdin(from);
        self.is_set[0] = true;
        self
    }

    /// Where its output goes; `Stdio::piped()` is [`Child::stdout`].
    pub fn stdout(&mut self, to: impl Into<Stdio>) -> &mut Self {
        self.std.stdout(to);
        self.is_set[1] = true;
        self
    }

    /// Where its errors go; `Stdio::piped()` is [`Child::stderr`].
    pub fn stderr(&mut self, to: impl Into<Stdio>) -> &mut Self {
        self.std.stderr(to);
        self.is_set[2] = true;
        self
    }

    /// Kill the child when its [`Child`] is dropped before its end; off by default.
    pub fn kill_on_drop(&mut self, kill: bool) -> &mut Self {
        self.kill_on_drop = kill;
        self
    }

    /// std's command, for everything else it can do (`std::os::unix::process::CommandExt`). Where input, output and
    /// errors go is to be said by [`Command::stdin`] and the like: [`Command::output`] replaces what is set here.
    pub fn as_std_mut(&mut self) -> &mut std::process::Command {
        &mut self.std
    }

    /// Start it.
    ///
    /// Errors: `ENOENT`, `EACCES`, `E2BIG`, `EAGAIN`, `EMFILE`, and those of fork(2) and exec(2).
    /// Cost: returns when the child has begun to run its program: about a millisecond in which the loop
    /// stands.
    pub fn spawn(&mut self) -> io::Result<Child> {
        Child::start(&mut self.std, self.kill_on_drop)
    }

    /// Start it and wait for its end.
    ///
    /// Cancel safety: as [`Child`]'s drop.
    pub async fn status(&mut self) -> io::Result<ExitStatus> {
        self.spawn()?.wait().await
    }

    /// Start it, and wait for its end and all that it writes to its output and errors, which come by pipes
    /// unless they were set. Its input is empty unless it was set; a pipe to it ends at once. What was set on std's
    /// command ([`Command::as_std_mut`], `From`) cannot be seen, and is replaced; afterwards it is as inherited.
    ///
    /// Bounded: by memory; read from [`Child::stdout`] where the output may be longer.
    /// Cancel safety: as [`Child`]'s drop.
    pub async fn output(&mut self) -> io::Result<Output> {
        self.set_unset([Stdio::null(), Stdio::piped(), Stdio::piped()]);
        let started = self.spawn();
        self.set_unset([Stdio::inherit(), Stdio::inherit(), Stdio::inherit()]);
        let mut child = started?;
        // Nobody can write to it any more: the child may be waiting for its end.
        drop(child.stdin.take());
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let (stdout, stderr) = future::join(read_all(stdout), read_all(stderr)).await;
        Ok(Output {
            status: child.wait().await?,
            stdout: stdout?,
            stderr: stderr?,
        })
    }
}

impl Command {
    /// Say what becomes of input, output and errors that the caller has said nothing about.
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
