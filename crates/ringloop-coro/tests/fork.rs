//! A fork inside of a coroutine: the child's runtime ends with an error, the parent continues; on
//! both drivers.
#![allow(clippy::unwrap_used)]

use ringloop_coro::{Builder, sleep, spawn};
use ringloop_testing::drivers;
use std::sync::mpsc;
use std::time::Duration;

const MOMENT: Duration = Duration::from_millis(2);

struct SleepsAtItsEnd;

impl Drop for SleepsAtItsEnd {
    fn drop(&mut self) {
        sleep(MOMENT);
    }
}

#[test]
fn forked_child_fails_at_its_first_wait_and_the_parent_continues() {
    for (driver, workers) in drivers().into_iter().flat_map(|it| [(it, 1), (it, 2)]) {
        let (tells, told) = mpsc::channel();
        let ended = Builder::new().driver(driver).workers(workers).start(move || {
            let other = spawn(|| {
                let _at_end = SleepsAtItsEnd;
                sleep(10 * MOMENT);
                7
            });
            sleep(MOMENT);
            // SAFETY: the child continues with this coroutine, and exits below.
            let pid = unsafe { libc::fork() };
            if pid == 0 {
                // SAFETY: no pointer is passed. A child that hangs ends by the signal.
                unsafe { libc::alarm(20) };
            }
            tells.send(pid).unwrap();
            other.join().unwrap()
        });
        let pid = told.recv().unwrap();
        if pid == 0 {
            let says_why = ended.is_err_and(|error| error.to_string().contains("before a fork"));
            let anew = Builder::new().driver(driver).start(|| {
                sleep(MOMENT);
                spawn(|| 7).join().unwrap()
            });
            let fine = says_why && anew.is_ok_and(|it| it == 7);
            // SAFETY: no code of the parent's runs in the child.
            unsafe { libc::_exit(i32::from(!fine)) };
        }
        let mut status = 0;
        // SAFETY: writes to a live local.
        assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
        assert_eq!(status, 0, "{driver:?} with {workers} workers");
        assert_eq!(ended.unwrap(), 7);
    }
}
