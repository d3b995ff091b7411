//! Shared by the tests of this layer: other processes, simulated kernels, and waiting for a state.

use super::interest::Interest;
use super::selector::{Selector, Trigger};
use crate::sys::fd::RawFd;
use crate::sys::libc;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

/// Longer than any wait of a test, so that a hang becomes a failure.
pub const LONG: Duration = Duration::from_secs(20);

/// Runs `child` in a forked child and returns its result. It may only make plain system calls: the
/// child inherits the locks of the other threads.
pub fn in_child(child: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child keeps to system calls and ends with _exit.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let code = i32::from(!child());
        // SAFETY: ends the child at once, without running anything of the parent's.
        unsafe { libc::_exit(code) };
    }
    let mut status = 0;
    // SAFETY: writes to a live local.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
}

/// Runs `body` in a process of its own, because it changes process-global state: restarts this
/// binary with only the test `module::name`.
pub fn alone(module: &str, name: &str, body: impl FnOnce()) {
    const MARK: &str = "RINGLOOP_TEST_ALONE";
    let (_, module) = module.split_once("::").unwrap();
    let test = format!("{module}::{name}");
    if std::env::var_os(MARK).is_some_and(|mark| *mark == *test) {
        return body();
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args([&test, "--exact", "--nocapture", "--test-threads=1"])
        .env(MARK, &test)
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && printed.contains("1 passed"),
        "{printed}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Runs `body` in a thread for which a seccomp filter returns `errno` for each call in `denied`,
/// like a container's profile. The filter ends with the thread.
pub fn with_calls_denied<T: Send + 'static>(
    denied: &[libc::c_long],
    errno: i32,
    body: impl FnOnce() -> T + Send + 'static,
) -> T {
    let denied = denied.to_vec();
    let filtered = std::thread::spawn(move || {
        install_filter(&denied, errno);
        body()
    });
    filtered.join().unwrap()
}

fn install_filter(denied: &[libc::c_long], errno: i32) {
    const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    const IF_EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    const RETURN: u32 = libc::BPF_RET | libc::BPF_K;
    let step = |code: u32, k: u32, jf: u8| libc::sock_filter { code: code as u16, jt: 0, jf, k };
    // The call's number is the first word of `seccomp_data`.
    let mut program = vec![step(LOAD, 0, 0)];
    for &call in denied {
        program.push(step(IF_EQUAL, call as u32, 1));
        program.push(step(RETURN, libc::SECCOMP_RET_ERRNO | errno as u32, 0));
    }
    program.push(step(RETURN, libc::SECCOMP_RET_ALLOW, 0));
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: no pointer is passed.
    let bound = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    // SAFETY: the program is live for the call, which copies it.
    let installed =
        unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter) };
    assert_eq!((bound, installed), (0, 0), "{}", std::io::Error::last_os_error());
}

/// Runs `wait` while another thread sends it signals, until it returns.
pub fn interrupted<T>(wait: impl FnOnce() -> T) -> T {
    extern "C" fn ignore(_: libc::c_int) {}
    // SAFETY: all-zero bytes are a valid `sigaction`: no flags, so system calls are not restarted.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = ignore as *const () as usize;
    // SAFETY: the handler does nothing; no other test uses SIGUSR1.
    unsafe { libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()) };
    // SAFETY: names the calling thread.
    let waiter = unsafe { libc::pthread_self() };
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                // SAFETY: the waiter outlives this scope.
                unsafe { libc::pthread_kill(waiter, libc::SIGUSR1) };
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let result = wait();
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        result
    })
}

/// Waits until `fd` is ready for `interest`.
pub fn wait_until(fd: RawFd, interest: Interest) {
    let epoll = Selector::new().unwrap();
    epoll.add(fd, interest, 0, Trigger::Level).unwrap();
    let (mut ready, start) = (Vec::new(), Instant::now());
    while ready.is_empty() {
        assert!(start.elapsed() < LONG, "{fd} never became {interest:?}");
        epoll.wait(&mut ready, Some(LONG)).unwrap();
    }
}

/// A connected pair over loopback, both ends non-blocking.
pub fn tcp_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (server, _) = listener.accept().unwrap();
    client.set_nonblocking(true).unwrap();
    server.set_nonblocking(true).unwrap();
    (client, server)
}
