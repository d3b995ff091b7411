//! Trampolines from `CPython`'s calling conventions to safe functions.
//!
//! Invariants:
//! 1. An entry runs only as a member of the type it was made for: [`Method`], [`Property`] and the
//!    slot wrappers carry the type, and `CPython`'s descriptors check `self` before they call.
//! 2. `CPython` calls an entry attached, and keeps `self`, the arguments and the tuple of keyword names
//!    alive until it returns.
//! 3. The tables passed to `CPython` live forever (they are leaked once per type).

use std::any::Any;
use std::ffi::{CStr, c_char, c_int};
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};

use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyType;

use super::args::Args;
use super::critical::locked;
use super::make::{IntoObject, Raise as _, new_str};
use super::thread_end::arm;

/// A type whose methods use this module's entries.
///
/// # Safety
/// `receive` must return the state of exactly the instances that [`Method`]s of `Self` are
/// installed on.
pub unsafe trait Target: Sized + 'static {
    /// What a method gets as its first argument.
    type Receiver<'a, 'py>;
    /// The state is plain cells: one thread at a time may run an instance's methods.
    const LOCKED: bool;
    /// Makes the receiver from `self`.
    ///
    /// # Safety
    /// `object` is an instance of the type, alive for `'a`, and the thread is attached.
    unsafe fn receive<'a>(py: Python<'_>, object: *mut ffi::PyObject) -> Self::Receiver<'a, '_>;
}

/// A method's result: a value, or a `Result` of one.
pub trait Return<'py> {
    /// Converts into a new reference.
    fn into_new_reference(self, py: Python<'py>) -> PyResult<*mut ffi::PyObject>;
}

impl<'py, R: Return<'py>> Return<'py> for PyResult<R> {
    #[inline]
    fn into_new_reference(self, py: Python<'py>) -> PyResult<*mut ffi::PyObject> {
        self?.into_new_reference(py)
    }
}

impl<'py, T: IntoObject<'py>> Return<'py> for T {
    #[inline]
    fn into_new_reference(self, py: Python<'py>) -> PyResult<*mut ffi::PyObject> {
        self.into_object(py).map(Bound::into_ptr)
    }
}

impl Return<'_> for () {
    #[inline]
    fn into_new_reference(self, py: Python<'_>) -> PyResult<*mut ffi::PyObject> {
        Ok(py.None().into_ptr())
    }
}

/// A method of `T`, made by [`method!`].
pub struct Method<T> {
    pub(super) definition: ffi::PyMethodDef,
    target: PhantomData<fn(T)>,
}

/// A read-only property of `T`, made by [`property!`].
pub struct Property<T> {
    pub(super) definition: ffi::PyGetSetDef,
    target: PhantomData<fn(T)>,
}

/// How `CPython` calls the function of a method.
pub enum Entry {
    /// Without arguments; `CPython` rejects any.
    NoArgs(ffi::PyCFunction),
    /// With positional and keyword arguments.
    Args(ffi::PyCFunctionFastWithKeywords),
}

impl<T: Target> Method<T> {
    /// Describes a method; use [`method!`], which also makes the entry.
    ///
    /// # Safety
    /// `entry` must treat `self` as an instance of `T`.
    pub unsafe fn new(name: &'static CStr, entry: Entry, doc: &'static CStr) -> Self {
        let (ml_meth, ml_flags) = match entry {
            Entry::NoArgs(function) => {
                (ffi::PyMethodDefPointer { PyCFunction: function }, ffi::METH_NOARGS)
            }
            Entry::Args(function) => (
                ffi::PyMethodDefPointer { PyCFunctionFastWithKeywords: function },
                ffi::METH_FASTCALL | ffi::METH_KEYWORDS,
            ),
        };
        Self {
            definition: ffi::PyMethodDef {
                ml_name: name.as_ptr(),
                ml_meth,
                ml_flags,
                ml_doc: doc.as_ptr(),
            },
            target: PhantomData,
        }
    }
}

impl<T> Method<T> {
    /// Adds it to a class that exists.
    ///
    /// # Safety
    /// Instances of the class are such that [`Target::receive`] accepts them.
    pub(super) unsafe fn install(self, class: &Bound<'_, PyType>) -> PyResult<()> {
        let definition = Box::leak(Box::new(self.definition));
        // SAFETY: invariants 1 and 3: the definition is leaked, and the caller knows the class.
        let descriptor = unsafe { ffi::PyDescr_NewMethod(class.as_type_ptr(), definition) };
        // SAFETY: the name is a C string literal of `Method::new`.
        unsafe { set_descriptor(class, descriptor, definition.ml_name) }
    }
}

/// A C string from a text that ends with its only zero.
///
/// # Panics
/// If it does not; at compile time in [`method!`].
pub const fn c_text(text: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(text) => text,
        Err(_) => panic!("a zero inside, or none at the end"),
    }
}

impl<T: Target> Property<T> {
    /// Describes a property; use [`property!`], which also makes the entry.
    ///
    /// # Safety
    /// `get` must treat `self` as an instance of `T`.
    pub unsafe fn new(name: &'static CStr, get: ffi::getter, doc: &'static CStr) -> Self {
        Self {
            definition: ffi::PyGetSetDef {
                name: name.as_ptr(),
                get: Some(get),
                set: None,
                doc: doc.as_ptr(),
                closure: std::ptr::null_mut(),
            },
            target: PhantomData,
        }
    }

    /// Makes it writable.
    ///
    /// # Safety
    /// `set` must treat `self` as an instance of `T`.
    #[must_use]
    pub unsafe fn writable(mut self, set: ffi::setter) -> Self {
        self.definition.set = Some(set);
        self
    }

    /// Adds it to a class that exists.
    ///
    /// # Safety
    /// As for [`Method::install`].
    pub(super) unsafe fn install(self, class: &Bound<'_, PyType>) -> PyResult<()> {
        let definition = Box::leak(Box::new(self.definition));
        // SAFETY: invariants 1 and 3: the definition is leaked, and the caller knows the class.
        let descriptor = unsafe { ffi::PyDescr_NewGetSet(class.as_type_ptr(), definition) };
        // SAFETY: the name is a C string literal of `Property::new`.
        unsafe { set_descriptor(class, descriptor, definition.name) }
    }
}

/// Puts a descriptor into the dictionary of its class.
///
/// # Safety
/// `descriptor` is a new reference, or null with an exception set; `name` is a C string literal.
unsafe fn set_descriptor(
    class: &Bound<'_, PyType>,
    descriptor: *mut ffi::PyObject,
    name: *const c_char,
) -> PyResult<()> {
    let py = class.py();
    // SAFETY: the caller's contract.
    let descriptor = unsafe { Bound::from_owned_ptr_or_err(py, descriptor) }?;
    // SAFETY: the caller's contract.
    let name = unsafe { CStr::from_ptr(name) };
    class.setattr(new_str(py, &name.to_string_lossy())?, descriptor)
}

/// Target of methods on a `PyO3` class that are too hot for its trampolines.
pub struct Class<T>(PhantomData<fn(T)>);

// SAFETY: `install_methods` puts the methods on T's own type, so `self` is an instance of T.
unsafe impl<T: pyo3::PyClass<Frozen = pyo3::pyclass::boolean_struct::True> + Sync> Target
    for Class<T>
{
    type Receiver<'a, 'py> = Borrowed<'a, 'py, T>;
    // `PyO3` classes are `Sync` themselves.
    const LOCKED: bool = false;
    #[inline]
    unsafe fn receive<'a>(py: Python<'_>, object: *mut ffi::PyObject) -> Borrowed<'a, '_, T> {
        // SAFETY: the caller keeps the instance alive for 'a.
        let object = unsafe { Borrowed::from_ptr(py, object) };
        // SAFETY: the caller has checked the type.
        unsafe { object.cast_unchecked() }
    }
}

/// Installs methods on a `PyO3` type.
pub fn install_methods<T>(class: &Bound<'_, PyType>, methods: Vec<Method<Class<T>>>) -> PyResult<()>
where
    T: pyo3::PyClass,
{
    if !class.is(class.py().get_type::<T>()) {
        return Err(PyTypeError::raise("these methods belong to another type"));
    }
    for method in methods {
        // SAFETY: `T`'s own type, as just checked.
        unsafe { method.install(class) }?;
    }
    Ok(())
}

/// Runs a body at the boundary: errors and panics become exceptions.
#[inline]
pub(super) fn guard<R>(failure: R, body: impl for<'py> FnOnce(Python<'py>) -> PyResult<R>) -> R {
    arm();
    // SAFETY: invariant 2: CPython calls attached; the token does not leave this function.
    let py = unsafe { Python::assume_attached() };
    match catch_unwind(AssertUnwindSafe(|| body(py))) {
        Ok(Ok(value)) => return value,
        Ok(Err(error)) => error.restore(py),
        Err(payload) => panic_to_error(&*payload).restore(py),
    }
    failure
}

/// The error of a panic of ours.
#[cold]
pub(super) fn panic_to_error(payload: &(dyn Any + Send)) -> PyErr {
    let message = panic_message(payload);
    PyRuntimeError::raise(format!("internal error of ringloop (please report it): {message}"))
}

/// The message of a panic.
pub fn panic_message(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

/// Entry of a method; the body of what [`method!`] makes.
///
/// # Safety
/// Called by `CPython` as `METH_FASTCALL | METH_KEYWORDS` of `T`'s type.
#[doc(hidden)]
#[inline]
pub unsafe fn entry<T: Target>(
    object: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
    keyword_names: *mut ffi::PyObject,
    body: impl for<'a, 'py> FnOnce(
        Python<'py>,
        T::Receiver<'a, 'py>,
        Args<'a, 'py>,
    ) -> PyResult<*mut ffi::PyObject>,
) -> *mut ffi::PyObject {
    guard(std::ptr::null_mut(), |py| {
        let keyword_count = if keyword_names.is_null() {
            0
        } else {
            // SAFETY: invariant 2: a tuple of names when it is not null.
            unsafe { ffi::PyTuple_GET_SIZE(keyword_names) }
        };
        let total = (count + keyword_count) as usize;
        let all = if total == 0 {
            &[][..]
        } else {
            // SAFETY: invariant 2: `count` positional values, then one per keyword name.
            unsafe { std::slice::from_raw_parts(arguments, total) }
        };
        let args = Args { all, positional_count: count as usize, keyword_names, py };
        // SAFETY: invariants 1 and 2.
        unsafe { receive_alone::<T, _>(py, object, |receiver| body(py, receiver, args)) }
    })
}

/// Entry of a getter or a slot that takes only `self`.
///
/// # Safety
/// Called by `CPython` as a member of `T`'s type.
#[doc(hidden)]
#[inline]
pub unsafe fn entry_getter<T: Target, R: Copy>(
    object: *mut ffi::PyObject,
    failure: R,
    body: impl for<'a, 'py> FnOnce(Python<'py>, T::Receiver<'a, 'py>) -> PyResult<R>,
) -> R {
    guard(failure, |py| {
        // SAFETY: invariants 1 and 2.
        unsafe { receive_alone::<T, _>(py, object, |receiver| body(py, receiver)) }
    })
}

/// Entry of a setter; deleting the attribute sets it to None.
///
/// # Safety
/// Called by `CPython` as the setter of a property of `T`'s type.
#[doc(hidden)]
pub unsafe fn entry_setter<T: Target>(
    object: *mut ffi::PyObject,
    value: *mut ffi::PyObject,
    body: impl for<'a, 'b, 'py> FnOnce(T::Receiver<'a, 'py>, Borrowed<'b, 'py, PyAny>) -> PyResult<()>,
) -> c_int {
    guard(-1, |py| {
        // SAFETY: invariant 2: null to delete the attribute, else alive during the call.
        let value = unsafe { Borrowed::from_ptr_or_opt(py, value) };
        let none = py.None();
        let value = value.unwrap_or_else(|| none.bind_borrowed(py));
        // SAFETY: invariants 1 and 2.
        unsafe { receive_alone::<T, _>(py, object, |receiver| body(receiver, value)) }.map(|()| 0)
    })
}

/// Runs `body` with the receiver, with exclusive access if its type requires it.
///
/// # Safety
/// As for [`Target::receive`], for as long as `body` runs.
#[inline]
unsafe fn receive_alone<'py, T: Target, R>(
    py: Python<'py>,
    object: *mut ffi::PyObject,
    body: impl for<'a> FnOnce(T::Receiver<'a, 'py>) -> R,
) -> R {
    // SAFETY: the caller keeps the instance alive.
    let instance = unsafe { Borrowed::from_ptr(py, object) };
    // SAFETY: the caller has checked the type.
    let receiver = || unsafe { T::receive(py, object) };
    if T::LOCKED { locked(&instance, || body(receiver())) } else { body(receiver()) }
}

/// Passes a receiver to a function or closure, fixing its parameter type.
#[doc(hidden)]
#[inline]
pub fn apply<'a, 'py, T: Target, R>(
    this: T::Receiver<'a, 'py>,
    function: impl FnOnce(T::Receiver<'a, 'py>) -> R,
) -> R {
    function(this)
}

/// Makes a [`Method`] of safe functions. `inspect.signature` reads the parameters.
///
/// * `name() => function, "doc"`: of `fn(This<T>) -> impl Return`, or of a closure like it;
/// * `name(first, second=None) => function, "doc"`: of `fn(This<T>, Borrowed<PyAny>, Option<Borrowed<PyAny>>)`; an argument
///   with a default is an `Option`;
/// * `name("parameters") => function, "doc"`: of `fn(This<T>, Args)`, which parses the arguments
///   itself.
macro_rules! method {
    (@ $target:ty, [$($generics:tt)*], [$($arguments:tt)*]; $name:ident() => $function:expr, $doc:literal) => {{
        unsafe extern "C" fn enter<$($generics)*>(
            object: *mut ::pyo3::ffi::PyObject,
            _none: *mut ::pyo3::ffi::PyObject,
        ) -> *mut ::pyo3::ffi::PyObject {
            // SAFETY: ffi/method.rs, invariant 1: installed only through `Method` of this target.
            unsafe { $crate::ffi::enter_getter!($target, object, $function) }
        }
        let entry = $crate::ffi::Entry::NoArgs(enter::<$($arguments)*>);
        $crate::ffi::method!(# $target, $name, [], entry, $doc)
    }};
    (@ $target:ty, [$($generics:tt)*], [$($arguments:tt)*]; $name:ident($parameters:literal) => $function:expr, $doc:literal) => {{
        $crate::ffi::enter_method!($target, [$($generics)*], |this, args| ($function)(this, args));
        let entry = $crate::ffi::Entry::Args(enter::<$($arguments)*>);
        $crate::ffi::method!(# $target, $name, [", ", $parameters,], entry, $doc)
    }};
    (@ $target:ty, [$($generics:tt)*], [$($arguments:tt)*];
        $name:ident($($parameter:ident $(= $default:tt)?),+) => $function:expr, $doc:literal) => {{
        $crate::ffi::enter_method!($target, [$($generics)*], |this, args| {
            let names = [$(stringify!($parameter)),+];
            let [$($parameter),+] = args.named(stringify!($name), names)?;
            ($function)(this, $($crate::ffi::argument!($name, $parameter $(= $default)?)),+)
        });
        let entry = $crate::ffi::Entry::Args(enter::<$($arguments)*>);
        $crate::ffi::method!(# $target, $name, [$(", ", stringify!($parameter), $("=", stringify!($default),)?)+], entry, $doc)
    }};
    (# $target:ty, $name:ident, [$($parameters:tt)*], $entry:expr, $doc:literal) => {{
        const NAME: &::std::ffi::CStr = $crate::ffi::c_text(concat!(stringify!($name), "\0"));
        const DOC: &::std::ffi::CStr = $crate::ffi::c_text(concat!(
            stringify!($name), "($self", $($parameters)* ")\n--\n\n", $doc, "\0"
        ));
        // SAFETY: the entry treats `self` as the target.
        unsafe { $crate::ffi::Method::<$target>::new(NAME, $entry, DOC) }
    }};
    ($target:ty, $($member:tt)*) => {
        $crate::ffi::method!(@ $target, [], []; $($member)*)
    };
}

/// Defines the entry function of a method with arguments.
macro_rules! enter_method {
    ($target:ty, [$($generics:tt)*], |$this:ident, $args:ident| $call:expr) => {
        unsafe extern "C" fn enter<$($generics)*>(
            object: *mut ::pyo3::ffi::PyObject,
            arguments: *const *mut ::pyo3::ffi::PyObject,
            count: ::pyo3::ffi::Py_ssize_t,
            keyword_names: *mut ::pyo3::ffi::PyObject,
        ) -> *mut ::pyo3::ffi::PyObject {
            // SAFETY: ffi/method.rs, invariant 1: installed only through `Method` of this target.
            unsafe {
                $crate::ffi::entry::<$target>(
                    object,
                    arguments,
                    count,
                    keyword_names,
                    |py, $this, $args| $crate::ffi::Return::into_new_reference($call, py),
                )
            }
        }
    };
}

/// Converts an argument to the function's parameter type.
macro_rules! argument {
    ($name:ident, $parameter:ident) => {
        match $parameter {
            Some(given) => given,
            None => {
                let (function, parameter) = (stringify!($name), stringify!($parameter));
                return Err($crate::ffi::missing(function, parameter));
            }
        }
    };
    ($name:ident, $parameter:ident = $default:tt) => {
        $parameter
    };
}

/// Makes a read-only [`Property`] from `fn(This<T>) -> impl Return` or a closure like it.
macro_rules! property {
    ($target:ty, [$($generics:tt)*], [$($arguments:tt)*]; $name:ident => $get:expr, $doc:literal) => {{
        unsafe extern "C" fn get<$($generics)*>(
            object: *mut ::pyo3::ffi::PyObject,
            _closure: *mut ::std::ffi::c_void,
        ) -> *mut ::pyo3::ffi::PyObject {
            // SAFETY: ffi/method.rs, invariant 1: installed only through `Property` of this target.
            unsafe { $crate::ffi::enter_getter!($target, object, $get) }
        }
        const NAME: &::std::ffi::CStr = $crate::ffi::c_text(concat!(stringify!($name), "\0"));
        const DOC: &::std::ffi::CStr = $crate::ffi::c_text(concat!($doc, "\0"));
        // SAFETY: the entry treats `self` as the target.
        unsafe { $crate::ffi::Property::<$target>::new(NAME, get::<$($arguments)*>, DOC) }
    }};
}

/// Makes a [`Property`] from a getter as in [`property!`] and a setter, `fn(This<T>, Borrowed<PyAny>) -> PyResult<()>`.
macro_rules! writable {
    ($target:ty, [$($generics:tt)*], [$($arguments:tt)*]; $name:ident => $get:expr, $set:expr, $doc:literal) => {{
        unsafe extern "C" fn enter_set<$($generics)*>(
            object: *mut ::pyo3::ffi::PyObject,
            value: *mut ::pyo3::ffi::PyObject,
            _closure: *mut ::std::ffi::c_void,
        ) -> ::std::ffi::c_int {
            // SAFETY: ffi/method.rs, invariant 1: installed only through `Property` of this target.
            unsafe { $crate::ffi::entry_setter::<$target>(object, value, |this, value| ($set)(this, value)) }
        }
        let property = $crate::ffi::property!($target, [$($generics)*], [$($arguments)*]; $name => $get, $doc);
        // SAFETY: the entry treats `self` as the target.
        unsafe { property.writable(enter_set::<$($arguments)*>) }
    }};
}

/// Lists members in a [`Definition`](super::Definition): methods as in [`method!`], properties as
/// `get name => function, "doc"`, writable ones as `set name => getter, setter, "doc"`; each ends with a semicolon. `T: Trait` instead of a type: for
/// every such type.
macro_rules! members {
    ($type_:expr, $target:ident: $bound:path; $($members:tt)*) => {
        $crate::ffi::members!(@ $type_, $target, [$target: $bound], [$target]; $($members)*);
    };
    ($type_:expr, $target:ty; $($members:tt)*) => {
        $crate::ffi::members!(@ $type_, $target, [], []; $($members)*);
    };
    (@ $type_:expr, $target:ty, $generics:tt, $arguments:tt;) => {};
    (@ $type_:expr, $target:ty, $generics:tt, $arguments:tt;
        get $name:ident => $get:expr, $doc:literal; $($rest:tt)*) => {
        $type_.property($crate::ffi::property!($target, $generics, $arguments; $name => $get, $doc));
        $crate::ffi::members!(@ $type_, $target, $generics, $arguments; $($rest)*);
    };
    (@ $type_:expr, $target:ty, $generics:tt, $arguments:tt;
        set $name:ident => $get:expr, $set:expr, $doc:literal; $($rest:tt)*) => {
        $type_.property($crate::ffi::writable!($target, $generics, $arguments; $name => $get, $set, $doc));
        $crate::ffi::members!(@ $type_, $target, $generics, $arguments; $($rest)*);
    };
    (@ $type_:expr, $target:ty, $generics:tt, $arguments:tt;
        $name:ident $parameters:tt => $function:expr, $doc:literal; $($rest:tt)*) => {
        $type_.method($crate::ffi::method!(@ $target, $generics, $arguments; $name $parameters => $function, $doc));
        $crate::ffi::members!(@ $type_, $target, $generics, $arguments; $($rest)*);
    };
}

/// Enters `fn(This<T>) -> impl Return`.
macro_rules! enter_getter {
    ($target:ty, $object:expr, $function:expr) => {
        $crate::ffi::entry_getter::<$target, _>($object, ::std::ptr::null_mut(), |py, this| {
            $crate::ffi::Return::into_new_reference(
                $crate::ffi::apply::<$target, _>(this, $function),
                py,
            )
        })
    };
}

/// Makes the `__repr__` slot from `fn(This<T>) -> PyResult<Bound<PyAny>>`.
macro_rules! repr_slot {
    ($target:ty, $function:path) => {{
        unsafe extern "C" fn enter(object: *mut ::pyo3::ffi::PyObject) -> *mut ::pyo3::ffi::PyObject {
            // SAFETY: ffi/method.rs, invariant 1: installed only through `Definition` of this target.
            unsafe { $crate::ffi::enter_getter!($target, object, $function) }
        }
        enter as ::pyo3::ffi::reprfunc
    }};
}

pub(crate) use {
    argument, enter_getter, enter_method, members, method, property, repr_slot, writable,
};
