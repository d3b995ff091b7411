//! Visits, clears and frees instances; `native_type.rs` creates them.
//!
//! `CPython`'s own `subtype_*` functions start at the object's type and would call ours again, so
//! the slots of base classes are handled here in the same way.
//!
//! Invariants, in addition to those of `native_type.rs`:
//! 1. `CPython` calls these functions attached, with an instance of `T`'s type; `dealloc` once, at
//!    reference count zero, after which nothing reads the instance.
//! 2. A slot is set to null before its old value is released.

use std::cell::{Cell, RefCell};
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use pyo3::ffi;
use pyo3::prelude::*;

use super::method::entry_getter;
use super::native_type::Payload;
use super::object::{Obj, Visited, Visitor};
use super::thread_end::arm;

/// Depth of nested deallocations at which the rest is deferred, as in `CPython`'s trashcan.
const DEALLOC_DEPTH_MAX: u32 = 50;

struct RawVisitor {
    function: ffi::visitproc,
    argument: *mut c_void,
}

impl RawVisitor {
    fn visit_ptr(&self, object: *mut ffi::PyObject) -> Visited {
        if object.is_null() {
            return Visited::Continue(());
        }
        // SAFETY: function and argument of this traversal, from CPython; the object is alive.
        match unsafe { (self.function)(object, self.argument) } {
            0 => Visited::Continue(()),
            stop => Visited::Break(stop),
        }
    }
}

impl Visitor for RawVisitor {
    fn visit(&mut self, object: &Obj) -> Visited {
        self.visit_ptr(object.as_ptr())
    }
}

/// `tp_traverse`.
pub(super) unsafe extern "C" fn traverse<T: Payload>(
    object: *mut ffi::PyObject,
    function: ffi::visitproc,
    argument: *mut c_void,
) -> c_int {
    let mut visitor = RawVisitor { function, argument };
    match visit_all::<T>(object, &mut visitor) {
        Visited::Continue(()) => 0,
        Visited::Break(stop) => stop,
    }
}

fn visit_all<T: Payload>(object: *mut ffi::PyObject, visitor: &mut RawVisitor) -> Visited {
    let native = T::native();
    // SAFETY: invariant 1: an instance has a type.
    visitor.visit_ptr(unsafe { ffi::Py_TYPE(object) }.cast())?;
    // SAFETY: invariant 4 of native_type.rs: a slot holds a reference or null.
    slots::<T>(object).try_for_each(|slot| visitor.visit_ptr(unsafe { *slot }))?;
    let payload = native.payload_ptr(object);
    // SAFETY: invariant 2 of native_type.rs: the payload of a live instance is initialised.
    unsafe { &*payload }.visit(visitor)
}

/// `tp_clear`.
pub(super) unsafe extern "C" fn clear<T: Payload>(object: *mut ffi::PyObject) -> c_int {
    arm();
    clear_slots::<T>(object);
    let payload = T::native().payload_ptr(object);
    // SAFETY: invariant 2 of native_type.rs: the payload of a live instance is initialised.
    unsafe { &*payload }.clear();
    0
}

/// `tp_finalize`.
pub(super) unsafe extern "C" fn finalize<T: Payload>(object: *mut ffi::PyObject) {
    // A finaliser runs at any point, so a pending exception is saved.
    // SAFETY: invariant 1: attached.
    let saved = PyErr::take(unsafe { Python::assume_attached() });
    // SAFETY: invariant 1: an instance of T's type.
    unsafe {
        entry_getter::<T, ()>(object, (), |_py, this| {
            T::finalize(this);
            Ok(())
        });
    }
    // SAFETY: invariant 1: attached.
    let py = unsafe { Python::assume_attached() };
    if let Some(error) = saved {
        error.restore(py);
    }
}

/// `tp_dealloc`.
pub(super) unsafe extern "C" fn dealloc<T: Payload>(object: *mut ffi::PyObject) {
    arm();
    if T::FINALIZER {
        // SAFETY: invariant 1: count zero, which is what this function wants.
        if unsafe { ffi::PyObject_CallFinalizerFromDealloc(object) } < 0 {
            return; // resurrected
        }
    }
    // SAFETY: invariant 1; idempotent.
    unsafe { ffi::PyObject_GC_UnTrack(object.cast()) };
    NESTING.with(|nesting| {
        let depth = nesting.depth.get();
        if depth >= DEALLOC_DEPTH_MAX {
            nesting.has_put_off.set(true);
            PUT_OFF.with(|list| list.borrow_mut().push((object, free::<T>)));
            return;
        }
        nesting.depth.set(depth + 1);
        free::<T>(object);
        if depth == 0 && nesting.has_put_off.replace(false) {
            free_put_off();
        }
        nesting.depth.set(depth);
    });
}

/// Each is freed at depth one; objects deferred meanwhile join the list.
#[cold]
fn free_put_off() {
    while let Some((object, free)) = PUT_OFF.with(|list| list.borrow_mut().pop()) {
        free(object);
    }
}

/// Drops everything that a dead, untracked instance owns, and frees its memory.
fn free<T: Payload>(object: *mut ffi::PyObject) {
    let native = T::native();
    if let Some(weak_list) = native.layout().and_then(|layout| layout.weak_list) {
        let list = slot_at(object, weak_list);
        // SAFETY: the weak list is a pointer at this offset, null without references. Another
        // thread may be removing its dead reference from the list, under the list's own lock.
        let first = unsafe { AtomicPtr::from_ptr(list) }.load(Ordering::Acquire);
        if !first.is_null() {
            // SAFETY: invariant 1: being deallocated, untracked.
            unsafe { ffi::PyObject_ClearWeakRefs(object) };
        }
    }
    clear_slots::<T>(object);
    // SAFETY: invariant 1: the payload is initialised and not read after this.
    unsafe { native.payload_ptr(object).drop_in_place() };
    // SAFETY: invariant 1: an instance has a type.
    let class = unsafe { ffi::Py_TYPE(object) };
    if T::SPARES_MAX == 0 || !native.spares.keep(object, T::SPARES_MAX) {
        // SAFETY: untracked and without references: only the memory is left.
        unsafe { ffi::PyObject_GC_Del(object.cast()) };
    }
    // SAFETY: instances of heap types own a reference to their type.
    unsafe { ffi::Py_DECREF(class.cast()) };
}

#[inline]
fn clear_slots<T: Payload>(object: *mut ffi::PyObject) {
    slots::<T>(object).for_each(|slot| {
        // SAFETY: invariant 2, and invariant 4 of native_type.rs.
        let old = unsafe { ptr::replace(slot, ptr::null_mut()) };
        if !old.is_null() {
            // SAFETY: the slot owned the reference.
            unsafe { ffi::Py_DECREF(old) };
        }
    });
}

/// All slots of an instance: invariant 5 of `native_type.rs` says where the first are.
#[inline]
fn slots<T: Payload>(object: *mut ffi::PyObject) -> impl Iterator<Item = *mut *mut ffi::PyObject> {
    let first = object.wrapping_add(1).cast::<*mut ffi::PyObject>();
    let others = T::native().layout().map_or(&[][..], |layout| &*layout.references);
    let others = others.iter().map(move |&offset| slot_at(object, offset as isize));
    (0..T::BASE_SLOTS).map(move |index| first.wrapping_add(index)).chain(others)
}

fn slot_at(object: *mut ffi::PyObject, offset: isize) -> *mut *mut ffi::PyObject {
    object.cast::<u8>().wrapping_offset(offset).cast()
}

type Free = fn(*mut ffi::PyObject);

/// Nesting of our deallocations in a thread.
struct Nesting {
    depth: Cell<u32>,
    /// The list below is not empty: a destructor's thread-local costs more to look at.
    has_put_off: Cell<bool>,
}

thread_local! {
    static NESTING: Nesting =
        const { Nesting { depth: Cell::new(0), has_put_off: Cell::new(false) } };
    /// Dead instances to be freed when the stack is shallow again: a long chain of instances that
    /// own each other must not overflow it.
    static PUT_OFF: RefCell<Vec<(*mut ffi::PyObject, Free)>> = const { RefCell::new(Vec::new()) };
}
