//! Classes of Python's whose instances own a native object: for bases that native types cannot have.
//!
//! A native type (`native_type.rs`) lays its payload out behind a base that has nothing but slots.
//! `asyncio.StreamReader` and its kin have a `__dict__`, whose place differs by version. So a *shell* is an
//! ordinary class, made by calling `type`, with one slot for an instance of a native type, the *core*. `CPython` makes,
//! traverses and frees the shells itself; subclasses are allowed.
//!
//! ```text
//! shell   │ header │ slots of the base classes │ slot │ what subclasses add
//!                                              └ offset ──▶ core: header │ payload │ …
//! ```
//! Invariants:
//! 1. `create` runs once per core type; the class and the offset never change. Before it, `class` is null.
//! 2. The slot holds a reference or null. Its descriptor is deleted before other code can see the class, so
//!    that only `core` fills it, and only `CPython` empties it, when it clears or frees the shell. What is in it
//!    is checked before it is used: an instance of a class with an equal slot may become a shell by
//!    assigning `__class__`.
//! 3. Methods and properties are installed on the class itself, so `self` is an instance of it or of a
//!    subclass, which has the slot at the same place.

use std::marker::PhantomData;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use pyo3::exceptions::{PySystemError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyType};

use super::critical::locked;
use super::make::{Raise as _, new_tuple};
use super::method::{Method, Property, Target};
use super::names::intern;
use super::native_type::{Payload, This};
use super::object::Obj;

/// A payload that is the core of shells.
pub trait Core: Payload {
    /// The one class of this core.
    fn shell() -> &'static Shell<Self>;
    /// The core of a shell that has none yet.
    fn new() -> Self;
}

/// Target of the members of a shell.
pub struct Shelled<T>(PhantomData<fn(T)>);

/// A shell, as its members get it.
pub struct ShellRef<'a, 'py, T> {
    object: Borrowed<'a, 'py, PyAny>,
    marker: PhantomData<fn(T)>,
}

impl<T> Clone for ShellRef<'_, '_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for ShellRef<'_, '_, T> {}

impl<'a, 'py, T: Core> ShellRef<'a, 'py, T> {
    #[inline]
    pub fn py(self) -> Python<'py> {
        self.object.py()
    }

    #[inline]
    pub fn object(self) -> Borrowed<'a, 'py, PyAny> {
        self.object
    }

    /// As [`ShellRef::with`], for a `body` that may fail.
    #[inline]
    pub fn run<R>(self, body: impl FnOnce(This<'_, 'py, T>) -> PyResult<R>) -> PyResult<R> {
        self.with(body)?
    }

    /// Runs `body` with the core, with exclusive access to it.
    #[inline]
    pub fn with<R>(self, body: impl FnOnce(This<'_, 'py, T>) -> R) -> PyResult<R> {
        let core = T::shell().core(&self.object)?;
        Ok(enter(&core, body))
    }
}

/// Runs `body` with a core that [`Shell::core`] returned.
#[inline]
fn enter<'py, T: Core, R>(core: &Bound<'py, PyAny>, body: impl FnOnce(This<'_, 'py, T>) -> R) -> R {
    // SAFETY: `core` has checked its type, and it is alive while it is borrowed.
    locked(core, || body(unsafe { T::receive(core.py(), core.as_ptr()) }))
}

// SAFETY: invariant 3.
unsafe impl<T: Core> Target for Shelled<T> {
    type Receiver<'a, 'py> = ShellRef<'a, 'py, T>;
    // The core has its own lock.
    const LOCKED: bool = false;
    #[inline]
    unsafe fn receive<'a>(py: Python<'_>, object: *mut ffi::PyObject) -> ShellRef<'a, '_, T> {
        // SAFETY: the caller keeps the instance alive for 'a.
        let object = unsafe { Borrowed::from_ptr(py, object) };
        ShellRef { object, marker: PhantomData }
    }
}

/// The class of one core, in a static.
pub struct Shell<T> {
    class: AtomicPtr<ffi::PyTypeObject>,
    offset: AtomicUsize,
    marker: PhantomData<fn(T)>,
}

impl<T: Core> Shell<T> {
    /// Makes the static; [`Shell::create`] makes the class.
    pub const fn new() -> Self {
        Self {
            class: AtomicPtr::new(ptr::null_mut()),
            offset: AtomicUsize::new(0),
            marker: PhantomData,
        }
    }

    /// Makes the class `name`, a subclass of `base`, with these members and native ones.
    pub fn create<'py>(
        &'static self,
        base: &Bound<'py, PyType>,
        name: &Bound<'py, PyString>,
        attributes: &Bound<'py, PyDict>,
        members: Members<T>,
    ) -> PyResult<Bound<'py, PyType>> {
        let py = base.py();
        if !self.class.load(Ordering::Relaxed).is_null() {
            return Err(PySystemError::raise("a shell is created once a process"));
        }
        let slot = intern!(py, "_core");
        let slots = new_tuple(py, [slot.clone().into_any()].into_iter())?;
        attributes.set_item(intern!(py, "__slots__"), slots)?;
        let bases = new_tuple(py, [base.clone().into_any()].into_iter())?;
        let class = py.get_type::<PyType>().call1((name, bases, attributes))?;
        let class = class.cast_into::<PyType>()?;
        self.offset.store(slot_offset(&class, slot)?, Ordering::Relaxed);
        class.delattr(slot)?;
        // Instances are not copied or pickled: that would lose the core.
        class.delattr(intern!(py, "__slots__"))?;
        members.install(&class)?;
        self.class.store(class.clone().into_ptr().cast(), Ordering::Release);
        Ok(class)
    }

    /// The class.
    pub fn class<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyType>> {
        let class = self.class.load(Ordering::Relaxed);
        // SAFETY: invariant 1: null, or a class that is never freed.
        let class = unsafe { Bound::from_borrowed_ptr_or_opt(py, class.cast()) }?;
        class.cast_into().ok()
    }

    /// Whether `object` is of this class, and of no subclass.
    #[inline]
    pub fn is_exactly(&self, object: &Bound<'_, PyAny>) -> bool {
        object.get_type_ptr() == self.class.load(Ordering::Relaxed)
    }

    /// The object as a shell, if it is exactly of this class.
    #[inline]
    pub fn get<'a, 'py>(&self, object: &'a Bound<'py, PyAny>) -> Option<ShellRef<'a, 'py, T>> {
        self.is_exactly(object)
            .then(|| ShellRef { object: object.as_borrowed(), marker: PhantomData })
    }

    /// As [`Shell::get`], also of a subclass.
    pub fn get_instance<'a, 'py>(
        &self,
        object: &'a Bound<'py, PyAny>,
    ) -> Option<ShellRef<'a, 'py, T>> {
        let class = self.class.load(Ordering::Relaxed);
        // SAFETY: both are types; null is excluded first.
        let is_instance =
            !class.is_null() && unsafe { ffi::PyType_IsSubtype(object.get_type_ptr(), class) } != 0;
        is_instance.then(|| ShellRef { object: object.as_borrowed(), marker: PhantomData })
    }

    /// The core of a shell.
    #[inline]
    fn core<'py>(&self, shell: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let offset = self.offset.load(Ordering::Relaxed);
        let slot = shell.as_ptr().wrapping_byte_add(offset).cast::<*mut ffi::PyObject>();
        // SAFETY: invariants 2 and 3: an aligned slot of a live object.
        let slot = unsafe { AtomicPtr::from_ptr(slot) };
        let core = slot.load(Ordering::Acquire);
        if core.is_null() {
            return make_core::<T>(shell, slot);
        }
        // SAFETY: invariant 2: alive; the slot of a reachable shell is not emptied.
        let core = unsafe { Bound::from_borrowed_ptr(shell.py(), core) };
        if T::native().is_exactly(&core) { Ok(core) } else { Err(not_a_core(shell)) }
    }
}

/// An instance of another class with such a slot was made one of ours, by assigning `__class__`.
#[cold]
fn not_a_core(shell: &Bound<'_, PyAny>) -> PyErr {
    PyTypeError::raise(format!("{} was not made by its own class", shell.get_type()))
}

#[cold]
fn make_core<'py, T: Core>(
    shell: &Bound<'py, PyAny>,
    slot: &AtomicPtr<ffi::PyObject>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = shell.py();
    let core = T::native().instantiate(py, T::new())?;
    let fresh = core.clone().into_ptr();
    let place = slot.compare_exchange(ptr::null_mut(), fresh, Ordering::AcqRel, Ordering::Acquire);
    match place {
        Ok(_) => Ok(core),
        Err(other) => {
            // SAFETY: our own reference, which no other thread has seen.
            unsafe { ffi::Py_DECREF(fresh) };
            // SAFETY: invariant 2: another thread was faster.
            Ok(unsafe { Bound::from_borrowed_ptr(py, other) })
        }
    }
}

/// Where instances have the slot `name`.
fn slot_offset(class: &Bound<'_, PyType>, name: &Bound<'_, PyString>) -> PyResult<usize> {
    let py = class.py();
    let member = class.getattr(name)?;
    let descriptor_type =
        py.import(intern!(py, "types"))?.getattr(intern!(py, "MemberDescriptorType"))?;
    if !member.is_instance(&descriptor_type)? {
        return Err(PyTypeError::raise(format!("{class} has no slot of its own")));
    }
    let descriptor = member.as_ptr().cast::<ffi::PyMemberDescrObject>();
    // SAFETY: the check above makes it a PyMemberDescrObject, alive with `member`.
    let definition = unsafe { (*descriptor).d_member };
    // SAFETY: a member descriptor points to its definition inside the type.
    Ok(unsafe { &*definition }.offset as usize)
}

/// Members of a shell while it is being made.
pub struct Members<T> {
    methods: Vec<Method<Shelled<T>>>,
    properties: Vec<Property<Shelled<T>>>,
}

impl<T: Core> Members<T> {
    pub fn new() -> Self {
        Self { methods: Vec::new(), properties: Vec::new() }
    }

    pub fn method(&mut self, method: Method<Shelled<T>>) {
        self.methods.push(method);
    }

    pub fn property(&mut self, property: Property<Shelled<T>>) {
        self.properties.push(property);
    }

    fn install(self, class: &Bound<'_, PyType>) -> PyResult<()> {
        for method in self.methods {
            // SAFETY: invariant 3.
            unsafe { method.install(class) }?;
        }
        for property in self.properties {
            // SAFETY: invariant 3.
            unsafe { property.install(class) }?;
        }
        Ok(())
    }
}

/// The core object of a shell, to be kept instead of the shell.
pub fn core_of<T: Core>(shell: ShellRef<'_, '_, T>) -> PyResult<Obj> {
    T::shell().core(&shell.object).map(Obj::from)
}
