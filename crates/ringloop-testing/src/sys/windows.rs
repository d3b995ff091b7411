//! On Windows: counters of the process.

use std::process::ExitStatus;
use std::time::Duration;
use windows_sys::Win32::Foundation::{
    FILETIME, NTSTATUS, STATUS_ACCESS_VIOLATION, STATUS_STACK_BUFFER_OVERRUN,
};
use windows_sys::Win32::System::Threading::{
    GetCurrentProcess, GetProcessHandleCount, GetProcessTimes,
};

/// CPU time of this process.
pub fn processor_time() -> Duration {
    let mut times = [FILETIME::default(); 4];
    let [begun, ended, kernel, user] = &mut times;
    // SAFETY: no pointer is passed.
    let process = unsafe { GetCurrentProcess() };
    // SAFETY: the structures are live for the call.
    let done = unsafe { GetProcessTimes(process, begun, ended, kernel, user) };
    assert_ne!(done, 0);
    // In units of 100 ns.
    let of =
        |time: &FILETIME| (u64::from(time.dwHighDateTime) << 32) + u64::from(time.dwLowDateTime);
    Duration::from_nanos((of(&times[2]) + of(&times[3])) * 100)
}

/// Whether a process has ended by `abort`, which std makes of the exception for overrun buffers.
pub fn has_aborted(status: ExitStatus) -> bool {
    has_ended_by(status, STATUS_STACK_BUFFER_OVERRUN)
}

/// Whether a process has ended by an invalid access.
pub fn has_faulted(status: ExitStatus) -> bool {
    has_ended_by(status, STATUS_ACCESS_VIOLATION)
}

fn has_ended_by(status: ExitStatus, exception: NTSTATUS) -> bool {
    status.code() == Some(exception)
}

/// Windows does not say what they are.
pub fn described_descriptors() -> String {
    "unnamed handles".to_owned()
}

/// Number of open handles, threads and locks included.
pub fn open_descriptors() -> usize {
    let mut count = 0;
    // SAFETY: no pointer is passed.
    let process = unsafe { GetCurrentProcess() };
    // SAFETY: the number is live for the call.
    let done = unsafe { GetProcessHandleCount(process, &raw mut count) };
    assert_ne!(done, 0);
    count as usize
}
