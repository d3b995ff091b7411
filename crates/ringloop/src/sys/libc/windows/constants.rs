//! Numbers: Windows's, or ours where it has none.

// The names are POSIX's.
#![allow(missing_docs)]

use super::types::{c_int, c_short, c_uint};
use windows_sys::Win32::Foundation;
use windows_sys::Win32::Networking::WinSock;

macro_rules! from {
    ($module:ident: $($name:ident = $theirs:ident;)*) => {$(
        pub const $name: c_int = $module::$theirs as c_int;
    )*};
}

from! { WinSock:
    EACCES = WSAEACCES;
    EADDRINUSE = WSAEADDRINUSE;
    EAFNOSUPPORT = WSAEAFNOSUPPORT;
    EAGAIN = WSAEWOULDBLOCK;
    EADDRNOTAVAIL = WSAEADDRNOTAVAIL;
    EALREADY = WSAEALREADY;
    ECONNABORTED = WSAECONNABORTED;
    ECONNREFUSED = WSAECONNREFUSED;
    ECONNRESET = WSAECONNRESET;
    EDESTADDRREQ = WSAEDESTADDRREQ;
    EFAULT = WSAEFAULT;
    EHOSTDOWN = WSAEHOSTDOWN;
    EHOSTUNREACH = WSAEHOSTUNREACH;
    EINPROGRESS = WSAEINPROGRESS;
    EINTR = WSAEINTR;
    EINVAL = WSAEINVAL;
    EMFILE = WSAEMFILE;
    EMSGSIZE = WSAEMSGSIZE;
    ENAMETOOLONG = WSAENAMETOOLONG;
    ENETDOWN = WSAENETDOWN;
    ENETUNREACH = WSAENETUNREACH;
    ENOBUFS = WSAENOBUFS;
    ENOPROTOOPT = WSAENOPROTOOPT;
    ENOTCONN = WSAENOTCONN;
    ENOTSOCK = WSAENOTSOCK;
    EOPNOTSUPP = WSAEOPNOTSUPP;
    EPROTO = WSAEPROTOTYPE;
    ETIMEDOUT = WSAETIMEDOUT;
}

from! { Foundation:
    EBADF = ERROR_INVALID_HANDLE;
    EBUSY = ERROR_BUSY;
    ECANCELED = ERROR_CANCELLED;
    ECHILD = ERROR_WAIT_NO_CHILDREN;
    EEXIST = ERROR_ALREADY_EXISTS;
    EIO = ERROR_IO_DEVICE;
    ENFILE = ERROR_TOO_MANY_OPEN_FILES;
    ENOENT = ERROR_FILE_NOT_FOUND;
    ENOMEM = ERROR_NOT_ENOUGH_MEMORY;
    ENOSPC = ERROR_DISK_FULL;
    ENOSYS = ERROR_CALL_NOT_IMPLEMENTED;
    EPERM = ERROR_ACCESS_DENIED;
    EPIPE = ERROR_BROKEN_PIPE;
    ESPIPE = ERROR_SEEK_ON_DEVICE;
    ESRCH = ERROR_INVALID_PARAMETER;
    ETIME = ERROR_TIMEOUT;
}

from! { WinSock:
    AF_INET = AF_INET;
    AF_INET6 = AF_INET6;
    AF_UNIX = AF_UNIX;
    IPPROTO_IP = IPPROTO_IP;
    IPPROTO_IPV6 = IPPROTO_IPV6;
    IPPROTO_TCP = IPPROTO_TCP;
    IPPROTO_UDP = IPPROTO_UDP;
    IP_TTL = IP_TTL;
    IPV6_PKTINFO = IPV6_PKTINFO;
    IPV6_RECVPKTINFO = IPV6_PKTINFO;
    IPV6_UNICAST_HOPS = IPV6_UNICAST_HOPS;
    MSG_CTRUNC = MSG_CTRUNC;
    MSG_PEEK = MSG_PEEK;
    MSG_TRUNC = MSG_TRUNC;
    SHUT_RD = SD_RECEIVE;
    SHUT_WR = SD_SEND;
    SHUT_RDWR = SD_BOTH;
    SO_ACCEPTCONN = SO_ACCEPTCONN;
    SO_BROADCAST = SO_BROADCAST;
    SO_ERROR = SO_ERROR;
    SO_KEEPALIVE = SO_KEEPALIVE;
    SO_LINGER = SO_LINGER;
    SO_RCVBUF = SO_RCVBUF;
    SO_REUSEADDR = SO_REUSEADDR;
    SO_SNDBUF = SO_SNDBUF;
    SO_TYPE = SO_TYPE;
    SOCK_DGRAM = SOCK_DGRAM;
    SOCK_SEQPACKET = SOCK_SEQPACKET;
    SOCK_STREAM = SOCK_STREAM;
    SOL_SOCKET = SOL_SOCKET;
    SOMAXCONN = SOMAXCONN;
    TCP_KEEPCNT = TCP_KEEPCNT;
    TCP_KEEPINTVL = TCP_KEEPINTVL;
    TCP_NODELAY = TCP_NODELAY;
}

// Windows has a program set and read the ECN bits alone.
from! { WinSock:
    IP_RECVTOS = IP_RECVECN;
    IP_TOS = IP_ECN;
    IPV6_RECVTCLASS = IPV6_RECVECN;
    IPV6_TCLASS = IPV6_ECN;
}

pub const POLLIN: c_short = WinSock::POLLRDNORM;
pub const POLLOUT: c_short = WinSock::POLLWRNORM;

/// Sockets are non-blocking.
pub const MSG_DONTWAIT: c_int = 0;
/// A send that waits is none here.
pub const MSG_WAITALL: c_int = 0;
/// No option of this system.
pub const SO_REUSEPORT: c_int = -1;
/// No message of this system.
pub const SCM_RIGHTS: c_int = -1;
/// The request of [`super::ioctl`].
pub const FIONBIO: c_int = WinSock::FIONBIO;

// Of files; Linux's numbers.
pub const AT_FDCWD: c_int = -100;
pub const AT_REMOVEDIR: c_int = 0x200;
pub const AT_SYMLINK_NOFOLLOW: c_int = 0x100;
pub const O_ACCMODE: c_int = 3;
pub const O_RDONLY: c_int = 0;
pub const O_WRONLY: c_int = 1;
pub const O_RDWR: c_int = 2;
pub const O_CREAT: c_int = 0o100;
pub const O_EXCL: c_int = 0o200;
pub const O_TRUNC: c_int = 0o1000;
pub const O_APPEND: c_int = 0o2000;
pub const O_NONBLOCK: c_int = 0o4000;
pub const O_CLOEXEC: c_int = 0o2_000_000;
pub const O_DIRECTORY: c_int = 0o200_000;
pub const RENAME_NOREPLACE: c_uint = 1;
/// What a pipe takes at once.
pub const PIPE_BUF: usize = 4096;
pub const SEEK_CUR: c_int = 1;
pub const F_SETFL: c_int = 4;
pub const F_SETFD: c_int = 2;
pub const FD_CLOEXEC: c_int = 1;

// Of a file's mode.
pub const S_IFMT: u32 = 0o170_000;
pub const S_IFREG: u32 = 0o100_000;
pub const S_IFDIR: u32 = 0o040_000;
pub const S_IFLNK: u32 = 0o120_000;
pub const S_IFIFO: u32 = 0o010_000;
pub const S_IFSOCK: u32 = 0o140_000;
pub const S_IFCHR: u32 = 0o020_000;
pub const S_IFBLK: u32 = 0o060_000;

// Of libraries, of which none is found by its file.
pub const RTLD_NOW: c_int = 2;
pub const RTLD_NOLOAD: c_int = 4;

// Of mappings.
pub const PROT_READ: c_int = 1;
pub const PROT_WRITE: c_int = 2;
pub const MAP_SHARED: c_int = 1;
pub const MAP_PRIVATE: c_int = 2;
pub const MAP_ANONYMOUS: c_int = 0x20;

// Of processes and signals: the numbers of Microsoft's C library, and Linux's.
pub const RLIMIT_NOFILE: c_int = 7;
pub const RLIMIT_MEMLOCK: c_int = 8;
pub const RLIM_INFINITY: u64 = u64::MAX;
pub const SIG_SETMASK: c_int = 2;
pub const SIGINT: c_int = 2;
pub const SIGTERM: c_int = 15;
pub const SIGHUP: c_int = 1;
pub const SIGQUIT: c_int = 3;
pub const SIGUSR1: c_int = 10;
pub const SIGUSR2: c_int = 12;
pub const SIGCHLD: c_int = 17;
pub const SIGWINCH: c_int = 28;
pub const SIGALRM: c_int = 14;
pub const WEXITED: c_int = 4;
pub const WNOWAIT: c_int = 0x0100_0000;
pub const CLOCK_MONOTONIC: c_int = 1;

// Of a filter for sockets, which there is none of.
pub const BPF_LD: c_uint = 0;
pub const BPF_W: c_uint = 0;
pub const BPF_ABS: c_uint = 0x20;
pub const BPF_RET: c_uint = 6;
pub const BPF_K: c_uint = 0;
