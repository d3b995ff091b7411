//! The functions of libssl that this crate calls, and their types.
//!
//! Owns: their addresses, once found. Called by: `library`, which finds them, and the others of this
//! folder. The invariants are those of [`super`].

use ringloop::embed::sys::libc;
use std::ffi::{CString, c_char, c_int, c_long, c_ulong, c_void};
use std::mem::transmute;
use std::ptr::NonNull;
use std::sync::OnceLock;

/// `SSL`, `BIO` and `BIO_METHOD` are opaque.
pub(super) type Ssl = c_void;
pub(super) type Bio = c_void;
pub(super) type BioMethod = c_void;
pub(super) type BioRead = unsafe extern "C" fn(*mut Bio, *mut c_char, usize, *mut usize) -> c_int;
pub(super) type BioWrite =
    unsafe extern "C" fn(*mut Bio, *const c_char, usize, *mut usize) -> c_int;
pub(super) type BioControl = unsafe extern "C" fn(*mut Bio, c_int, c_long, *mut c_void) -> c_long;
pub(super) type BioDestroy = unsafe extern "C" fn(*mut Bio) -> c_int;

macro_rules! functions {
    ($($name:ident: fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// The functions in use, under OpenSSL's own names.
        #[allow(non_snake_case, reason = "OpenSSL's names")]
        pub(super) struct Functions {
            $(pub(super) $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl Functions {
            fn resolve(handle: NonNull<c_void>) -> Result<Self, String> {
                Ok(Self {
                    $($name: {
                        let address = symbol(handle, stringify!($name))?;
                        // SAFETY: invariant 1.
                        unsafe {
                            transmute::<
                                NonNull<c_void>,
                                unsafe extern "C" fn($($argument),*) $(-> $result)?,
                            >(address)
                        }
                    },)*
                })
            }
        }
    };
}

functions! {
    OpenSSL_version_num: fn() -> c_ulong;
    SSL_read_ex: fn(*mut Ssl, *mut c_void, usize, *mut usize) -> c_int;
    SSL_write_ex: fn(*mut Ssl, *const c_void, usize, *mut usize) -> c_int;
    SSL_get_error: fn(*const Ssl, c_int) -> c_int;
    SSL_get_shutdown: fn(*const Ssl) -> c_int;
    SSL_get_ex_data: fn(*const Ssl, c_int) -> *mut c_void;
    SSL_get_SSL_CTX: fn(*const Ssl) -> *mut c_void;
    SSL_set_bio: fn(*mut Ssl, *mut Bio, *mut Bio);
    ERR_peek_error: fn() -> c_ulong;
    ERR_clear_error: fn();
    BIO_get_new_index: fn() -> c_int;
    BIO_meth_new: fn(c_int, *const c_char) -> *mut BioMethod;
    BIO_meth_set_read_ex: fn(*mut BioMethod, BioRead) -> c_int;
    BIO_meth_set_write_ex: fn(*mut BioMethod, BioWrite) -> c_int;
    BIO_meth_set_ctrl: fn(*mut BioMethod, BioControl) -> c_int;
    BIO_meth_set_destroy: fn(*mut BioMethod, BioDestroy) -> c_int;
    BIO_new: fn(*const BioMethod) -> *mut Bio;
    BIO_up_ref: fn(*mut Bio) -> c_int;
    BIO_free: fn(*mut Bio) -> c_int;
    BIO_set_data: fn(*mut Bio, *mut c_void);
    BIO_get_data: fn(*mut Bio) -> *mut c_void;
    BIO_set_flags: fn(*mut Bio, c_int);
    BIO_clear_flags: fn(*mut Bio, c_int);
}

fn symbol(handle: NonNull<c_void>, name: &str) -> Result<NonNull<c_void>, String> {
    let in_c = CString::new(name).map_err(|_| name.to_owned())?;
    // SAFETY: the handle stays open, and the name is zero-terminated.
    let address = unsafe { libc::dlsym(handle.as_ptr(), in_c.as_ptr()) };
    NonNull::new(address).ok_or_else(|| format!("the libssl of _ssl does not show {name}"))
}

/// The functions of the library that `_ssl` has loaded.
static FUNCTIONS: OnceLock<Functions> = OnceLock::new();

impl Functions {
    /// Finds them in the library of `handle`.
    pub(super) fn of(handle: NonNull<c_void>) -> Result<&'static Self, String> {
        let found = Self::resolve(handle)?;
        Ok(FUNCTIONS.get_or_init(|| found))
    }

    /// The functions, once a session exists: BIO callbacks need them without a token.
    pub(super) fn known() -> Option<&'static Self> {
        FUNCTIONS.get()
    }
}
