//! Opens a driver: the user's choice first, then what the kernel allows.
//!
//! The driver does not change during the loop's life.

use super::blocking_pool::BlockingPool;
use super::either::Driver;
use super::readiness::ReadinessDriver;
use super::setup::Setup;
use super::uring::UringDriver;
use crate::choice::Choice;
use crate::error::Error;
use crate::sys::event::EventFd;
use crate::sys::uring::Cause;
use std::sync::Arc;

impl Driver {
    /// Opens the driver that `setup` asks for; `wake` interrupts a wait from another thread.
    /// Returns it with one sentence that explains the choice.
    pub(crate) fn new(
        setup: &Setup,
        wake: Arc<EventFd>,
        pool: &BlockingPool,
    ) -> Result<(Self, String), Error> {
        open(setup, wake, pool)
    }
}

/// Opens the driver, and explains the choice in one sentence. Refused submission polling is an
/// error only if the ring was demanded; otherwise the ring opens without it.
fn open(setup: &Setup, wake: Arc<EventFd>, pool: &BlockingPool) -> Result<(Driver, String), Error> {
    let choice = setup.choice;
    let readiness = |wake, reason: String| {
        let driver = ReadinessDriver::new(wake, pool.clone())?;
        Ok((Driver::Readiness(Box::new(driver)), reason))
    };
    if choice == Choice::Epoll {
        return readiness(wake, "epoll, as asked for".to_owned());
    }
    match UringDriver::new(Arc::clone(&wake), setup) {
        Ok(driver) => {
            let reason = match choice {
                Choice::Uring => "io_uring, as asked for",
                _ => "io_uring, which the kernel offers",
            };
            Ok((Driver::Uring(Box::new(driver)), reason.to_owned()))
        }
        Err(refusal) if choice == Choice::Auto && matches!(refusal.cause, Cause::Polling(_)) => {
            let without = Setup { polling: None, ..*setup };
            let (driver, reason) = open(&without, wake, pool)?;
            Ok((driver, format!("{reason}; {refusal}")))
        }
        Err(refusal) if choice == Choice::Auto => {
            readiness(wake, format!("{refusal}; using epoll"))
        }
        Err(refusal) => Err(Error::DriverRefused(refusal)),
    }
}
