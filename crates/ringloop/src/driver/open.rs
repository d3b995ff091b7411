//! Opens a driver: the user's choice first, then what the kernel allows.
//!
//! The driver does not change during the loop's life.

use super::blocking_pool::BlockingPool;
use super::either::Driver;
use super::readiness::ReadinessDriver;
use super::uring::UringDriver;
use crate::choice::Choice;
use crate::error::Error;
use crate::sys::event::EventFd;
use crate::sys::selector::Selector;
use crate::sys::uring::{Cause, Config};
use std::sync::Arc;

impl Driver {
    /// Opens the driver that is asked for, a ring by `config`; `wake` interrupts a wait from another
    /// thread. Returns it with one sentence that explains the choice.
    ///
    /// Refused submission polling is an error only if the ring was demanded; otherwise the ring
    /// opens without it.
    pub(crate) fn new(
        choice: Choice,
        config: &Config,
        wake: Arc<EventFd>,
        pool: &BlockingPool,
    ) -> Result<(Self, String), Error> {
        let readiness = |wake, reason: String| {
            let driver = ReadinessDriver::new(wake, pool.clone())?;
            Ok((Self::Readiness(Box::new(driver)), reason))
        };
        if choice == Choice::Epoll {
            return readiness(wake, format!("{}, as asked for", Selector::NAME));
        }
        match UringDriver::new(Arc::clone(&wake), config) {
            Ok(driver) => {
                let reason = match choice {
                    Choice::Uring => "io_uring, as asked for",
                    _ => "io_uring, which the kernel offers",
                };
                Ok((Self::Uring(Box::new(driver)), reason.to_owned()))
            }
            Err(refusal)
                if choice == Choice::Auto && matches!(refusal.cause, Cause::Polling(_)) =>
            {
                let without = Config { polling: None, ..*config };
                let (driver, reason) = Self::new(choice, &without, wake, pool)?;
                Ok((driver, format!("{reason}; {refusal}")))
            }
            Err(refusal) if choice == Choice::Auto => {
                readiness(wake, format!("{refusal}; using {}", Selector::NAME))
            }
            Err(refusal) => Err(Error::DriverRefused(refusal)),
        }
    }
}
