//! How a ring is created, and which results are refused.
//!
//! Owns: the choice of flags. Called by: [`super::Ring::new`]. Neither enables the ring nor
//! submits.
//!
//! ```text
//!   setup(all flags) ─EINVAL─▸ setup(without NO_SQARRAY: before 6.6) ─EINVAL─▸ TooOld (before 6.1)
//!        │                          │
//!        └──────────┬───────────────┘            any other errno ─▸ classify
//!                   ▼
//!   feature bits ─▸ probe of the operations ─▸ enter(disabled) must say EBADFD ─▸ map the queues
//! ```
//! A filter may allow `io_uring_setup` and deny the other two calls; hence a try of each before the
//! ring is accepted.

use super::super::refused::RefusedCall;
use super::abi::{self, Params};
use super::features::Features;
use super::kernel::{self, Kernel};
use super::refusal::{Cause, Refusal, Step, classify};
use crate::sys::fd::OwnedFd;
use crate::sys::libc;
use crate::sys::platform;
use std::io;
use std::time::Duration;

/// Sizes and polling of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Submission entries; rounded up to a power of two, at most 32768.
    pub entries: u32,
    /// Completion entries; rounded up to a power of two, at least as many as submission entries, at
    /// most 65536.
    pub cq_entries: u32,
    /// Submission polling: a kernel thread takes the entries, and sleeps when idle for this long,
    /// rounded up to milliseconds. `None` leaves it to [`super::Ring::enter`].
    pub polling: Option<Duration>,
}

/// Flags of 6.1. `TASKRUN_FLAG` is for [`super::Ring::needs_enter`].
const FLAGS: u32 = abi::IORING_SETUP_SUBMIT_ALL
    | abi::IORING_SETUP_SINGLE_ISSUER
    | abi::IORING_SETUP_DEFER_TASKRUN
    | abi::IORING_SETUP_TASKRUN_FLAG
    | abi::IORING_SETUP_CQSIZE
    | abi::IORING_SETUP_CLAMP
    | abi::IORING_SETUP_R_DISABLED;

/// The same without the flags for the submitting thread, which a polling thread replaces; the
/// kernel refuses both together.
const POLLING_FLAGS: u32 = FLAGS
    & !(abi::IORING_SETUP_DEFER_TASKRUN | abi::IORING_SETUP_TASKRUN_FLAG)
    | abi::IORING_SETUP_SQPOLL;

/// A ring that has passed every check, neither mapped nor enabled.
pub(super) struct Created {
    pub fd: OwnedFd,
    pub params: Params,
    pub features: Features,
}

/// Creates a ring and checks it.
pub(super) fn create(config: &Config, kernel: &dyn Kernel) -> Result<Created, Refusal> {
    let refuse = |step, error: &io::Error| refusal(step, error, kernel);
    let (fd, params) = negotiate(config, kernel).map_err(|error| {
        if config.polling.is_some()
            && negotiate(&Config { polling: None, ..*config }, kernel).is_ok()
        {
            return Refusal { cause: Cause::Polling(error.raw_os_error().unwrap_or(libc::EPROTO)) };
        }
        refuse(Step::Setup, &error)
    })?;
    let mut probe = kernel::zeroed();
    kernel.probe(&fd, &mut probe).map_err(|error| refuse(Step::Probe, &error))?;
    let features = Features::read(&params, &probe)?;
    let entered = kernel.enter_disabled(&fd);
    if entered.raw_os_error() != Some(platform::EBADFD) {
        return Err(refuse(Step::Enter, &entered));
    }
    Ok(Created { fd, params, features })
}

/// Explains an error of `step` by the kernel's environment.
pub(super) fn refusal(step: Step, error: &io::Error, kernel: &dyn Kernel) -> Refusal {
    if let Some(refused) = RefusedCall::of(error) {
        let cause = Cause::Call(refused.clone());
        return Refusal { cause };
    }
    classify(step, error.raw_os_error().unwrap_or(libc::EPROTO), &kernel.facts())
}

fn negotiate(config: &Config, kernel: &dyn Kernel) -> io::Result<(OwnedFd, Params)> {
    let flags = match config.polling {
        Some(_) => POLLING_FLAGS,
        None => FLAGS,
    };
    let idle = config.polling.unwrap_or_default().as_micros().div_ceil(1000);
    let ask = |flags| {
        let sq_entries = config.entries.max(1);
        let mut params = Params {
            flags,
            // The kernel refuses a completion queue that is smaller than the submission queue.
            cq_entries: config.cq_entries.max(sq_entries),
            sq_thread_idle: u32::try_from(idle).unwrap_or(u32::MAX),
            ..kernel::zeroed()
        };
        kernel.setup(sq_entries, &mut params).map(|fd| (fd, params))
    };
    match ask(flags | abi::IORING_SETUP_NO_SQARRAY) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => ask(flags),
        answer => answer,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::uring::kernel::Linux;
    use crate::sys::uring::testing::OldKernel;

    const CONFIG: Config = Config { entries: 8, cq_entries: 16, polling: None };

    #[test]
    fn the_ring_has_every_flag_we_count_on() {
        let created = create(&CONFIG, &Linux).unwrap();
        assert_eq!(created.params.flags & FLAGS, FLAGS);
        assert_eq!((created.params.sq_entries, created.params.cq_entries), (8, 16));
    }

    #[test]
    fn a_ring_that_is_polled_has_no_flag_of_the_submitting_thread() {
        let config = Config { polling: Some(std::time::Duration::from_micros(1_500)), ..CONFIG };
        let created = create(&config, &Linux).unwrap();
        assert_eq!(created.params.flags & POLLING_FLAGS, POLLING_FLAGS);
        assert_eq!(created.params.flags & abi::IORING_SETUP_DEFER_TASKRUN, 0);
        assert_eq!(created.params.sq_thread_idle, 2);
    }

    #[test]
    fn a_refused_polling_thread_is_named_and_not_the_ring() {
        let kernel = OldKernel { refused_flags: abi::IORING_SETUP_SQPOLL, ..OldKernel::default() };
        let config = Config { polling: Some(std::time::Duration::ZERO), ..CONFIG };
        let refusal = create(&config, &kernel).err().unwrap();
        assert_eq!(refusal.cause, Cause::Polling(libc::EINVAL));
        let text = refusal.to_string();
        assert!(text.contains("CAP_SYS_NICE"), "{text}");
    }

    #[test]
    fn a_kernel_before_6_6_gets_an_index_array_and_all_other_flags() {
        let kernel =
            OldKernel { refused_flags: abi::IORING_SETUP_NO_SQARRAY, ..OldKernel::default() };
        let created = create(&CONFIG, &kernel).unwrap();
        assert_eq!(created.params.flags & (FLAGS | abi::IORING_SETUP_NO_SQARRAY), FLAGS);
        assert_ne!(created.params.sq_off.array, 0);
    }
}
