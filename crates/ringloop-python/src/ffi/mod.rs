//! The C API of `CPython`: the only folder of this crate with `unsafe` code.
//!
//! Owns: native types with a Python base class, method trampolines, owned references that cost one
//! decrement, vectorcalls, contexts. Called by every class of the extension. Knows nothing of event
//! loops or transports.
//!
//! # Defining a native type
//! ```ignore
//! pub struct Counter { callback: ObjCell, count: Cell<u64> }        // the payload, behind the base's layout
//!
//! impl Payload for Counter {
//!     const NAME: &'static CStr = c"ringloop._native.Counter";
//!     const DOC: &'static CStr = c"Count calls.";
//!     payload!(Counter; define define; visit callback; clear callback);
//! }
//! fn define(type_: &mut Definition<Counter>) {
//!     members!(type_, Counter;
//!         add(n, times=None) => add, "Add n.";                 // without parameters: `fn add(this)`
//!         get count => |this| this.count.get(), "How many.";
//!     );
//!     type_.repr(repr_slot!(Counter, repr));
//! }
//! fn add(this: This<'_, '_, Counter>, n: Argument<'_, '_>, times: Option<Argument<'_, '_>>) -> PyResult<()> { … }
//!
//! Counter::native().create(py, &base)?            // once, in the module's initialisation
//! let object = Counter::native().instantiate(py, Counter { … })?;   // Bound<'py, PyAny>
//! let this = Counter::native().get(&object);      // Option<This>: exact type only
//! ```
//! The type is final, cannot be instantiated from Python, always supports garbage collection, and
//! adds on request what the base lacks: `const DICT`, `const WEAKREF` (default true),
//! `payload!(…; finalize f)` (runs once, may resurrect, like `__del__`). `This`
//! dereferences to the payload; its state is in `Cell`, [`ObjCell`] or [`Confined`].
//!
//! A panic in such a function becomes `RuntimeError`, an `Err` its exception. One thread at a time
//! has access to an object (`critical.rs`): functions like the ones above run with it, and code
//! that gets a payload through `Native::get` takes it with [`locked`].
//! Never hold a borrow of any cell across a call into Python, an allocation of a Python object (it
//! may run the garbage collector), or the drop of an [`Obj`] (it may run `__del__`).

mod args;
mod audit;
mod bytes;
mod call;
mod confined;
mod context;
mod coroutine;
mod critical;
mod exported;
mod frames;
mod handled;
mod interpreter;
pub mod libssl;
mod lifecycle;
mod make;
mod method;
mod names;
mod native_type;
mod object;
mod shell;
mod socket;
mod spares;
mod task_step;
mod thread_end;
mod type_object;

#[doc(hidden)]
pub use args::missing;
pub use args::{Args, Argument};
pub use audit::{Watch as AuditWatch, watch as watch_audit};
pub use bytes::{
    Filling, Room, array_append, array_take, array_with, bytes_from, bytes_len, copy_bytes,
    copy_into, fill, gather_bytes, is_bytes_like, is_writable, join_bytes, read_bytes,
    receive_bytes, receive_into, receive_scratch, send_from, take_over, take_over_anywhere,
    with_bytes, with_memory,
};
pub use call::{call, call_method, call_no_args, call_one, call_tuple, check_signals, thread_id};
pub use confined::{Busy, Confined};
pub use context::{
    calibrate, context_copy, context_copy_current, context_enter, context_exit, context_is_current,
    context_is_fresh, context_new, current_context_is_empty, is_context, is_unique,
};
pub use coroutine::{Coroutine, Step};
pub use critical::{locked, released};
pub use exported::{Exports, ForeignCall, capsule};
pub use frames::{Calls, call_stacks};
pub use handled::while_handled;
pub use interpreter::check_main_interpreter;
pub use make::{
    EmptyTuple, Fallible, IntoObject, Raise, fill_template, import_once, new_base, new_bytes,
    new_dict, new_list, new_path, new_slice, new_str, new_tuple, no_memory, raise_os, room_for,
    spare, try_copy,
};
pub use method::{Class, Entry, Method, Property, Return, c_text, install_methods, panic_message};
#[doc(hidden)]
pub use method::{apply, entry, entry_getter, entry_setter};
pub use names::initialise as intern_names;
#[doc(hidden)]
pub use names::{index_of, interned};
pub use native_type::{Definition, Native, Payload, This};
pub use object::{Obj, ObjCell, Visited, Visitor};
pub use shell::{Core, Members, Shell, ShellRef, Shelled, core_of};
pub use socket::{SocketCell, is_plain_socket};
pub use task_step::StepTypes;
pub use thread_end::arm;
pub use type_object::type_version;

pub(crate) use make::imported;
pub(crate) use method::{
    argument, enter_getter, enter_method, members, method, property, repr_slot, writable,
};
pub(crate) use names::intern;
pub(crate) use native_type::payload;
