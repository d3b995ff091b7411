//! Native types whose base is a Python class.
//!
//! ```text
//! object  │ header │ slots of the base classes │ pad │ payload T │ __dict__ │ weak list │
//!         0        16                          │     payload_offset           (where the base lacks them)
//!                                              └ base.tp_basicsize
//! ```
//! Invariants:
//! 1. `create` runs once per payload type; before it `type_object` is null and there is no
//!    instance.
//! 2. The types are final and have no constructor, so every instance comes from `instantiate`, which
//!    writes the payload before anything else can run.
//! 3. `payload_offset` is aligned for `T` (`create` rejects alignments above a pointer's), and the
//!    type's basic size covers payload, dictionary and weak list.
//! 4. The bases hold nothing but object slots between the header and `tp_basicsize` (`create`
//!    rejects others), so that lifecycle.rs knows every reference of an instance.
//! 5. The first `Payload::BASE_SLOTS` of these slots follow the header without a gap (`create` checks).

use std::ffi::CStr;
use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use pyo3::exceptions::PySystemError;
use pyo3::ffi;
use pyo3::prelude::*;

use super::make::Raise as _;
use super::method::{Method, Property, Target};
use super::object::{ObjCell, Visited, Visitor};
use super::spares::Spares;

/// State that lives in a native type's instances.
pub trait Payload: Sized + 'static {
    /// The qualified name, `package.module.Name`.
    const NAME: &'static CStr;
    /// The type's documentation.
    const DOC: &'static CStr;
    /// Give instances a `__dict__`.
    const DICT: bool = false;
    /// Support weak references to instances; ignored if the base does.
    const WEAKREF: bool = true;
    /// How many slots of the base classes the payload uses; see [`This::base_slots`].
    const BASE_SLOTS: usize = 0;
    /// How many freed instances are kept for the next ones; with `BASE_SLOTS` and no `DICT` only.
    const SPARES_MAX: usize = 0;
    /// Call [`Payload::finalize`] before an instance is freed.
    const FINALIZER: bool = false;

    /// The one type object of this payload.
    fn native() -> &'static Native<Self>;
    fn define(definition: &mut Definition<Self>);
    /// Shows every reference to the garbage collector; must not call into Python.
    fn visit(&self, visitor: &mut dyn Visitor) -> Visited;
    /// Drops every reference; values are moved out of their cells before they are dropped.
    fn clear(&self);
    /// What `__del__` would do; runs at most once, may resurrect.
    fn finalize(_this: This<'_, '_, Self>) {}
}

/// The functions of a [`Payload`] that are lists: `define` names the one that lists the members, and
/// `finalize` is optional. The fields need `visit` and `clear`, as [`ObjCell`] has them.
macro_rules! payload {
    ($type:ty; define $define:path; visit $($($seen:ident).+),*; clear $($($cleared:ident).+),*
        $(; finalize $finalize:path)?) => {
        $(const FINALIZER: bool = true;
        fn finalize(this: $crate::ffi::This<'_, '_, Self>) {
            $finalize(this);
        })?
        fn native() -> &'static $crate::ffi::Native<Self> {
            static TYPE: $crate::ffi::Native<$type> = $crate::ffi::Native::new();
            &TYPE
        }
        fn define(definition: &mut $crate::ffi::Definition<Self>) {
            $define(definition);
        }
        fn visit(&self, _visitor: &mut dyn $crate::ffi::Visitor) -> $crate::ffi::Visited {
            $(self.$($seen).+.visit(_visitor)?;)*
            $crate::ffi::Visited::Continue(())
        }
        fn clear(&self) {
            $(self.$($cleared).+.clear();)*
        }
    };
}
pub(crate) use payload;

/// An instance, and its payload behind `Deref`.
pub struct This<'a, 'py, T> {
    object: Borrowed<'a, 'py, PyAny>,
    payload: &'a T,
}

impl<T> Clone for This<'_, '_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for This<'_, '_, T> {}

impl<T> Deref for This<'_, '_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        self.payload
    }
}

impl<'a, 'py, T> This<'a, 'py, T> {
    #[inline]
    pub fn py(&self) -> Python<'py> {
        self.object.py()
    }

    #[inline]
    pub fn object(&self) -> Borrowed<'a, 'py, PyAny> {
        self.object
    }

    /// The payload for as long as the instance is borrowed.
    #[inline]
    pub fn payload(&self) -> &'a T {
        self.payload
    }
}

impl<'a, T: Payload> This<'a, '_, T> {
    /// The first slots of the base classes, right after the header, as cells. The base's own
    /// descriptors return the objects that the payload puts there.
    #[inline]
    pub fn base_slots<const N: usize>(&self) -> &'a [ObjCell; N] {
        const { assert!(N <= T::BASE_SLOTS, "`create` has not checked so many") };
        let first = self.object.as_ptr().wrapping_add(1).cast::<[ObjCell; N]>();
        // SAFETY: invariants 4 and 5: as many words hold a reference or null each, as an `ObjCell` does.
        unsafe { &*first }
    }
}

// SAFETY: `receive` returns the payload of instances of `T::native()`, on which `Definition<T>`
// installs.
unsafe impl<T: Payload> Target for T {
    type Receiver<'a, 'py> = This<'a, 'py, T>;
    const LOCKED: bool = true;
    #[inline]
    unsafe fn receive<'a>(py: Python<'_>, object: *mut ffi::PyObject) -> This<'a, '_, T> {
        let payload = T::native().payload_ptr(object);
        // SAFETY: invariants 2 and 3: an instance's payload is initialised for as long as it lives.
        let payload = unsafe { &*payload };
        // SAFETY: the caller keeps the instance alive for 'a.
        let object = unsafe { Borrowed::from_ptr(py, object) };
        This { object, payload }
    }
}

/// Members of a type while it is being defined.
pub struct Definition<T> {
    pub(super) methods: Vec<ffi::PyMethodDef>,
    pub(super) properties: Vec<ffi::PyGetSetDef>,
    pub(super) slots: Vec<ffi::PyType_Slot>,
    pub(super) marker: PhantomData<fn(T)>,
}

impl<T: Payload> Definition<T> {
    #[expect(clippy::needless_pass_by_value, reason = "a method is installed once")]
    pub fn method(&mut self, method: Method<T>) {
        self.methods.push(method.definition);
    }

    /// Add a property.
    #[expect(clippy::needless_pass_by_value, reason = "a property is installed once")]
    pub fn property(&mut self, property: Property<T>) {
        self.properties.push(property.definition);
    }

    /// Sets `__repr__`, made by `repr_slot!` for this payload.
    pub fn repr(&mut self, function: ffi::reprfunc) {
        self.slot(ffi::Py_tp_repr, function as *mut _);
    }

    pub(super) fn slot(&mut self, slot: i32, function: *mut std::ffi::c_void) {
        self.slots.push(ffi::PyType_Slot { slot, pfunc: function });
    }
}

/// Where an instance's references are that are neither in its payload nor in the first
/// `Payload::BASE_SLOTS` slots.
pub(super) struct Layout {
    /// Offsets of the other slots of the base classes, and of our own `__dict__`.
    pub(super) references: Box<[usize]>,
    /// Offset of the weak list; negative if `CPython` keeps it before the object.
    pub(super) weak_list: Option<isize>,
}

/// The type object of one payload, in a static.
pub struct Native<T> {
    pub(super) type_object: AtomicPtr<ffi::PyTypeObject>,
    pub(super) payload_offset: AtomicUsize,
    pub(super) layout: OnceLock<Layout>,
    pub(super) spares: Spares,
    marker: PhantomData<fn(T)>,
}

impl<T: Payload> Native<T> {
    /// Makes the static; [`Native::create`] makes the type.
    pub const fn new() -> Self {
        Self {
            type_object: AtomicPtr::new(ptr::null_mut()),
            payload_offset: AtomicUsize::new(0),
            layout: OnceLock::new(),
            spares: Spares::new(),
            marker: PhantomData,
        }
    }

    #[inline]
    pub fn instantiate<'py>(&self, py: Python<'py>, payload: T) -> PyResult<Bound<'py, PyAny>> {
        let type_object = self.type_object.load(Ordering::Relaxed);
        if type_object.is_null() {
            return Err(PySystemError::raise("the type was not created"));
        }
        let object = match self.spares.take(type_object) {
            Some(object) => object,
            // SAFETY: invariant 1: a ready heap type.
            None => unsafe { ffi::PyType_GenericAlloc(type_object, 0) },
        };
        if object.is_null() {
            return Err(PyErr::fetch(py));
        }
        let place = self.payload_ptr(object);
        // SAFETY: invariants 2 and 3: fresh, aligned memory, and no code ran since the allocation.
        unsafe { place.write(payload) };
        // SAFETY: the allocation is a new reference.
        Ok(unsafe { Bound::from_owned_ptr(py, object) })
    }

    /// Makes an instance and lets `fill` set its slots.
    #[inline]
    pub fn instantiate_with<'py>(
        &self,
        py: Python<'py>,
        payload: T,
        fill: impl FnOnce(This<'_, 'py, T>),
    ) -> PyResult<Bound<'py, PyAny>> {
        let object = self.instantiate(py, payload)?;
        // SAFETY: an instance that was just made.
        fill(unsafe { T::receive(py, object.as_ptr()) });
        Ok(object)
    }

    /// The payload of `object` when it is exactly of this type.
    #[inline]
    pub fn get<'a, 'py>(&self, object: &'a Bound<'py, PyAny>) -> Option<This<'a, 'py, T>> {
        // SAFETY: the type check above `then` makes it an instance; the borrow keeps it alive.
        self.is_exactly(object).then(|| unsafe { T::receive(object.py(), object.as_ptr()) })
    }

    /// Runs `body` with the payload of `object`, if it is of this type.
    #[inline]
    pub fn with<'a, 'py>(
        &self,
        object: &'a Bound<'py, PyAny>,
        body: impl FnOnce(This<'a, 'py, T>) -> PyResult<()>,
    ) -> PyResult<()> {
        self.get(object).map_or(Ok(()), body)
    }

    /// Whether `object` is of this type.
    #[inline]
    pub fn is_exactly(&self, object: &Bound<'_, PyAny>) -> bool {
        object.get_type_ptr() == self.type_object.load(Ordering::Relaxed)
    }

    /// Whether [`Native::create`] has run.
    #[inline]
    pub fn is_created(&self) -> bool {
        !self.type_object.load(Ordering::Relaxed).is_null()
    }

    #[inline]
    pub(super) fn payload_ptr(&self, object: *mut ffi::PyObject) -> *mut T {
        object.cast::<u8>().wrapping_add(self.payload_offset.load(Ordering::Relaxed)).cast()
    }

    #[inline]
    pub(super) fn layout(&self) -> Option<&Layout> {
        self.layout.get()
    }
}
