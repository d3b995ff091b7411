//! A child process.
//!
//! Owns: [`Child`]: std's handle, which takes the status, and the pidfd that reports its end. Called by:
//! `Command`. Never does: name a process by its number after its status was taken.

use super::pipe::{PipeReader, PipeWriter};
use crate::executor::{Local, Op};
use crate::limits;
use crate::net::Socket;
use crate::op::{Poll, WaitChild};
use crate::sys::fd::OwnedFd;
use crate::sys::fork::Generation;
use crate::sys::interest::Interest;
use crate::sys::libc;
use crate::sys::process;
use crate::sys::socket::is_exhaustion;
use crate::time::sleep;
use std::io;
use std::process::ExitStatus;

/// A child process. Dropping it leaves the child running, unless [`Command::kill_on_drop`] is set; a
/// loop that keeps running reaps a dropped child.
///
/// [`Command::kill_on_drop`]: super::Command::kill_on_drop
#[derive(Debug)]
pub struct Child {
    /// The writing end of its input, if that is a pipe. Dropping it ends the child's input.
    pub stdin: Option<PipeWriter>,
    /// The reading end of its output, if that is a pipe.
    pub stdout: Option<PipeReader>,
    /// The reading end of its error output, if that is a pipe.
    pub stderr: Option<PipeReader>,
    /// `None` during its drop only.
    running: Option<Running>,
    kill_on_drop: bool,
}

#[derive(Debug)]
struct Running {
    std: std::process::Child,
    pidfd: Socket,
    status: Option<ExitStatus>,
    generation: Generation,
}

impl Child {
    pub(super) fn start(command: &mut std::process::Command, kill: bool) -> io::Result<Self> {
        Self::take_over(command.spawn()?, kill)
    }

    fn take_over(mut std: std::process::Child, kill_on_drop: bool) -> io::Result<Self> {
        let opened = process::pidfd_open(std.id()).and_then(|pidfd| {
            let stdin = std.stdin.take().map(OwnedFd::from);
            let stdout = std.stdout.take().map(OwnedFd::from);
            let stderr = std.stderr.take().map(OwnedFd::from);
            let stdin = stdin.map(PipeWriter::new).transpose()?;
            let stdout = stdout.map(PipeReader::new).transpose()?;
            Ok((pidfd, stdin, stdout, stderr.map(PipeReader::new).transpose()?))
        });
        let (pidfd, stdin, stdout, stderr) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                // It could not be waited for: as if it had not started.
                drop(std.kill());
                drop(std.wait());
                return Err(error);
            }
        };
        Ok(Self {
            stdin,
            stdout,
            stderr,
            running: Some(Running {
                std,
                pidfd: pidfd.into(),
                status: None,
                generation: Generation::current(),
            }),
            kill_on_drop,
        })
    }

    /// Its process id, until it was waited for: after that the kernel may reuse the number.
    pub fn id(&self) -> Option<u32> {
        let running = self.running.as_ref()?;
        running.status.is_none().then(|| running.std.id())
    }

    /// Closes its input and waits for its end.
    ///
    /// # Errors
    /// `ECHILD` if the status was taken elsewhere (SIGCHLD ignored, or `wait(-1)`).
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn wait(&mut self) -> io::Result<ExitStatus> {
        self.stdin = None;
        match &mut self.running {
            Some(running) => running.wait().await,
            None => Err(io::Error::from_raw_os_error(libc::ECHILD)),
        }
    }

    /// Its status, if it has ended.
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        match &mut self.running {
            Some(running) => running.try_wait(),
            None => Ok(None),
        }
    }

    /// Sends it SIGKILL, unless it has ended. [`Child::wait`] waits for its end.
    pub fn kill(&mut self) -> io::Result<()> {
        match &mut self.running {
            Some(running) if running.status.is_none() => running.std.kill(),
            _ => Ok(()),
        }
    }
}

impl Running {
    fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        if self.status.is_none() {
            self.status = self.std.try_wait()?;
        }
        Ok(self.status)
    }

    async fn wait(&mut self) -> io::Result<ExitStatus> {
        if let Some(status) = self.try_wait()? {
            return Ok(status);
        }
        self.until_ended().await?;
        let mut pause = limits::REAP_PAUSE_MIN;
        loop {
            if let Some(status) = self.try_wait()? {
                return Ok(status);
            }
            // The pidfd of a traced child is readable before the tracer has seen its end, and no event reports that.
            sleep(pause).await;
            pause = (pause * 2).min(limits::REAP_PAUSE_MAX);
        }
    }

    /// Waits until it has ended; its status is available then, unless it is traced.
    async fn until_ended(&self) -> io::Result<()> {
        let pidfd = self.pidfd.on_loop();
        let waits = Local::current().engine().waits_for_children();
        if waits {
            return Op::new(WaitChild { pidfd }).await;
        }
        let poll = Poll { fd: pidfd, interest: Interest::READ, level: false };
        Op::new(poll).await.map(drop)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let Some(mut running) = self.running.take() else {
            return;
        };
        // A forked process is not its parent.
        if running.generation.is_inherited() || !matches!(running.try_wait(), Ok(None)) {
            return;
        }
        if self.kill_on_drop {
            // It may just have ended.
            drop(running.std.kill());
        }
        // Without a loop, init reaps the zombie when this process ends.
        if let Some(local) = Local::try_current() {
            drop(local.spawn(async move {
                while running.wait().await.is_err_and(|error| is_exhaustion(&error)) {
                    sleep(limits::REAP_PAUSE_MAX).await;
                }
            }));
        }
    }
}
